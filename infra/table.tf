# The table that this service and Fluree's servers share. shared/store/src/schema.rs documents it; tests/infra compares the two.
resource "aws_dynamodb_table" "this" {
  #checkov:skip=CKV_AWS_119:Encrypted with the key that AWS manages. A customer-managed key would be billed per request, and each function and Fluree server would need a grant on it.
  name                        = var.table_name
  billing_mode                = "PAY_PER_REQUEST"
  hash_key                    = "pk"
  range_key                   = "sk"
  deletion_protection_enabled = var.deletion_protection
  stream_enabled              = true
  stream_view_type            = "NEW_AND_OLD_IMAGES"

  attribute {
    name = "pk"
    type = "S"
  }

  attribute {
    name = "sk"
    type = "S"
  }

  attribute {
    name = "kind"
    type = "S"
  }

  attribute {
    name = "source_type"
    type = "S"
  }

  attribute {
    name = "status"
    type = "S"
  }

  global_secondary_index {
    name               = "gsi1-kind"
    hash_key           = "kind"
    range_key          = "pk"
    projection_type    = "INCLUDE"
    non_key_attributes = ["name", "branch", "source_type", "dependencies", "retracted"]
  }

  global_secondary_index {
    name               = "source-type-index"
    hash_key           = "source_type"
    range_key          = "pk"
    projection_type    = "INCLUDE"
    non_key_attributes = ["name", "branch", "source_type", "dependencies", "retracted"]
  }

  global_secondary_index {
    name            = "state-index"
    hash_key        = "status"
    range_key       = "pk"
    projection_type = "KEYS_ONLY"
  }

  # Fluree's commit log rows expire.
  ttl {
    attribute_name = "ttl"
    enabled        = true
  }

  point_in_time_recovery {
    enabled                 = true
    recovery_period_in_days = var.recovery_period_in_days
  }

  server_side_encryption {
    enabled = true
  }
}
