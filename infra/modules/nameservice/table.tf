# The table that this service and Fluree's servers share. shared/store/src/schema.rs documents it; tests/infra compares the two.
resource "aws_dynamodb_table" "this" {
  #checkov:skip=CKV_AWS_119:Encrypted with the key that AWS manages, unless kms_key_arn is set.
  #checkov:skip=CKV2_AWS_16:On demand, or scaled by capacity.tf.
  count = var.existing_table == null ? 1 : 0

  name                        = var.table_name
  billing_mode                = local.billing_mode
  read_capacity               = local.capacity.table.read
  write_capacity              = local.capacity.table.write
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

  # Newer providers of version 6 call `hash_key` and `range_key` of an index deprecated, in favour of `key_schema`, with which they have
  # made existing indexes anew (https://github.com/hashicorp/terraform-provider-aws/issues/46197). Plan such a change against a table
  # with rows before it is released: no index, and no table, may be replaced.
  global_secondary_index {
    name               = "gsi1-kind"
    hash_key           = "kind"
    range_key          = "pk"
    projection_type    = "INCLUDE"
    non_key_attributes = ["name", "branch", "source_type", "dependencies", "retracted"]
    read_capacity      = local.capacity.table.index_read
    write_capacity     = local.capacity.table.index_write
  }

  global_secondary_index {
    name               = "source-type-index"
    hash_key           = "source_type"
    range_key          = "pk"
    projection_type    = "INCLUDE"
    non_key_attributes = ["name", "branch", "source_type", "dependencies", "retracted"]
    read_capacity      = local.capacity.table.index_read
    write_capacity     = local.capacity.table.index_write
  }

  global_secondary_index {
    name            = "state-index"
    hash_key        = "status"
    range_key       = "pk"
    projection_type = "KEYS_ONLY"
    read_capacity   = local.capacity.table.index_read
    write_capacity  = local.capacity.table.index_write
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
    enabled     = true
    kms_key_arn = var.kms_key_arn
  }

  tags = local.tags

  lifecycle {
    # Set by autoscaling. On demand there are none.
    ignore_changes = [read_capacity, write_capacity]
  }
}

locals {
  # The table, created here or elsewhere.
  table = {
    name       = var.existing_table == null ? aws_dynamodb_table.this[0].name : var.existing_table.name
    arn        = var.existing_table == null ? aws_dynamodb_table.this[0].arn : var.existing_table.arn
    stream_arn = var.existing_table == null ? aws_dynamodb_table.this[0].stream_arn : var.existing_table.stream_arn
  }
}
