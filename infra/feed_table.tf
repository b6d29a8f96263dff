# The change feed, the counter that numbers it, and what tells a redelivered stream record.
resource "aws_dynamodb_table" "feed" {
  #checkov:skip=CKV_AWS_119:As the table whose changes it holds.
  name                        = "${var.table_name}-feed"
  billing_mode                = "PAY_PER_REQUEST"
  hash_key                    = "id"
  range_key                   = "position"
  deletion_protection_enabled = var.deletion_protection

  attribute {
    name = "id"
    type = "S"
  }

  attribute {
    name = "position"
    type = "S"
  }

  attribute {
    name = "address"
    type = "S"
  }

  # The history of one record.
  global_secondary_index {
    name            = "by-address"
    hash_key        = "address"
    range_key       = "position"
    projection_type = "ALL"
  }

  # Seven days for changes, two for the memory of redeliveries: the consumer writes when.
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
