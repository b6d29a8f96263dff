# The read model of records, where `read_model` is on: its table, and what invokes its projector.
resource "aws_dynamodb_table" "views" {
  #checkov:skip=CKV_AWS_119:See the table whose records it shows.
  count = var.read_model ? 1 : 0

  # On demand, also where the others are provisioned: a rebuild writes all rows at once, and nothing for weeks.
  name                        = "${local.table.name}-views"
  billing_mode                = "PAY_PER_REQUEST"
  hash_key                    = "address"
  deletion_protection_enabled = var.deletion_protection

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

  # Graph sources alone.
  global_secondary_index {
    name            = "by-type"
    hash_key        = "source_type"
    range_key       = "address"
    projection_type = "ALL"
  }

  # Records with a lease alone.
  global_secondary_index {
    name            = "by-holder"
    hash_key        = "holder"
    range_key       = "address"
    projection_type = "ALL"
  }

  # Records whose index is behind alone.
  global_secondary_index {
    name            = "by-due"
    hash_key        = "due"
    range_key       = "address"
    projection_type = "ALL"
  }

  # What remains of removed rows, for a day.
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
}

# The doorbell of the projector. It reads changes from the feed, in order, and not from the messages: one that is lost or late
# is made up for by the next, so there are no dead letters, and a message that failed for a day may go.
resource "aws_sqs_queue" "doorbell" {
  count = var.read_model ? 1 : 0

  name                       = "${var.name}-doorbell"
  message_retention_seconds  = 86400
  visibility_timeout_seconds = 6 * local.function["view_projector"].timeout
  sqs_managed_sse_enabled    = var.kms_key_arn == null ? true : null
  kms_master_key_id          = var.kms_key_arn
  tags                       = local.tags
}

resource "aws_sqs_queue_policy" "doorbell" {
  count = var.read_model ? 1 : 0

  queue_url = aws_sqs_queue.doorbell[0].id
  policy = jsonencode({
    Version = "2012-10-17"
    Statement = [{
      Effect    = "Allow"
      Principal = { Service = "sns.amazonaws.com" }
      Action    = "sqs:SendMessage"
      Resource  = aws_sqs_queue.doorbell[0].arn
      Condition = { ArnEquals = { "aws:SourceArn" = aws_sns_topic.changes.arn } }
    }]
  })
}

resource "aws_sns_topic_subscription" "doorbell" {
  count = var.read_model ? 1 : 0

  topic_arn = aws_sns_topic.changes.arn
  protocol  = "sqs"
  endpoint  = aws_sqs_queue.doorbell[0].arn
}

resource "aws_lambda_event_source_mapping" "doorbell" {
  count = var.read_model ? 1 : 0

  event_source_arn = aws_sqs_queue.doorbell[0].arn
  function_name    = aws_lambda_function.this["view_projector"].arn
  batch_size       = 1000
  # One invocation takes everything that is in the feed: messages of a second ring once.
  maximum_batching_window_in_seconds = 1

  # Two at the same time do the same work.
  scaling_config {
    maximum_concurrency = 2
  }

  depends_on = [aws_iam_role_policy.this]
}
