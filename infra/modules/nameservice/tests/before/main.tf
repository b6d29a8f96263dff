# The table of the read model as the module declared it before `modules/read-model`, and the topic as it was before it could be left out: for the
# tests that existing ones are kept.

terraform {
  required_providers {
    aws = {
      source  = "hashicorp/aws"
      version = ">= 6.29, < 7.0"
    }
  }
}

resource "aws_dynamodb_table" "views" {
  #checkov:skip=CKV_AWS_119:It is never created.
  count = 1

  name                        = "fluree-nameservice-views"
  billing_mode                = "PAY_PER_REQUEST"
  hash_key                    = "address"
  deletion_protection_enabled = true

  attribute {
    name = "address"
    type = "S"
  }

  attribute {
    name = "kind"
    type = "S"
  }

  attribute {
    name = "state"
    type = "S"
  }

  attribute {
    name = "source_type"
    type = "S"
  }

  attribute {
    name = "holder"
    type = "S"
  }

  attribute {
    name = "due"
    type = "S"
  }

  global_secondary_index {
    name            = "by-kind"
    hash_key        = "kind"
    range_key       = "address"
    projection_type = "ALL"
  }

  global_secondary_index {
    name            = "by-state"
    hash_key        = "state"
    range_key       = "address"
    projection_type = "ALL"
  }

  global_secondary_index {
    name            = "by-type"
    hash_key        = "source_type"
    range_key       = "address"
    projection_type = "ALL"
  }

  global_secondary_index {
    name            = "by-holder"
    hash_key        = "holder"
    range_key       = "address"
    projection_type = "ALL"
  }

  global_secondary_index {
    name            = "by-due"
    hash_key        = "due"
    range_key       = "address"
    projection_type = "ALL"
  }

  ttl {
    attribute_name = "ttl"
    enabled        = true
  }

  point_in_time_recovery {
    enabled                 = true
    recovery_period_in_days = 35
  }

  server_side_encryption {
    enabled     = true
    kms_key_arn = null
  }

  tags = { Application = "nameservice", Deployment = "nameservice" }
}

resource "aws_sns_topic" "changes" {
  #checkov:skip=CKV_AWS_26:It is never created.
  name = "nameservice-changes"
  tags = { Application = "nameservice", Deployment = "nameservice" }
}

output "table" {
  description = "The table."
  value       = aws_dynamodb_table.views[0]
}

output "topic" {
  description = "The topic."
  value       = aws_sns_topic.changes
}
