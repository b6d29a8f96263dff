# The change feed: segments of changes, the counter that numbers them, and a row for each change in the history of its record.
resource "aws_dynamodb_table" "feed" {
  #checkov:skip=CKV_AWS_119:See the table whose changes it holds.
  #checkov:skip=CKV2_AWS_16:On demand, or scaled by capacity.tf.
  name                        = "${local.table.name}-feed"
  billing_mode                = local.billing_mode
  read_capacity               = local.capacity.feed.read
  write_capacity              = local.capacity.feed.write
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

  # Set by the consumer: seven days by default, and at least two for histories, which also show what has already been appended.
  ttl {
    attribute_name = "ttl"
    enabled        = true
  }

  point_in_time_recovery {
    enabled                 = true
    recovery_period_in_days = var.recovery_period_in_days
  }

  # Invokes the publisher of the topic, which reads the feed itself: keys show enough.
  stream_enabled   = var.topic
  stream_view_type = var.topic ? "KEYS_ONLY" : null

  server_side_encryption {
    enabled     = true
    kms_key_arn = var.kms_key_arn
  }

  tags = local.tags

  lifecycle {
    ignore_changes = [read_capacity, write_capacity]
  }
}
