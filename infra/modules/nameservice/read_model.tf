# The read model of records, if `read_model` is on: its table, and the queue that invokes its projector.
module "views" {
  source = "../read-model"
  count  = var.read_model ? 1 : 0

  # On demand, even if the other tables are provisioned: a rebuild writes all rows in one go, and then nothing for weeks.
  name                    = "${local.table.name}-views"
  kms_key_arn             = var.kms_key_arn
  recovery_period_in_days = var.recovery_period_in_days
  deletion_protection     = var.deletion_protection
  tags                    = local.tags

  declaration = {
    partition_key = "address"
    indexes = {
      by-kind  = { partition_key = "kind", sort_key = "address" }
      by-state = { partition_key = "state", sort_key = "address" }
      # Only graph sources.
      by-type = { partition_key = "source_type", sort_key = "address" }
      # Only records with a lease.
      by-holder = { partition_key = "holder", sort_key = "address" }
      # Only records whose index is behind.
      by-due = { partition_key = "due", sort_key = "address" }
    }
    # The tombstones of removed rows expire after a day.
    ttl = "ttl"
  }
}

# The table of an existing deployment is kept.
moved {
  from = aws_dynamodb_table.views[0]
  to   = module.views[0].aws_dynamodb_table.this
}

# The doorbell of the projector. The projector reads changes from the feed, in order, and not from the messages: the next message
# makes up for one that is lost or late, so there are no dead letters, and a message that failed for a day may expire.
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
      Condition = { ArnEquals = { "aws:SourceArn" = one(aws_sns_topic.changes[*].arn) } }
    }]
  })
}

resource "aws_sns_topic_subscription" "doorbell" {
  count = var.read_model ? 1 : 0

  topic_arn = one(aws_sns_topic.changes[*].arn)
  protocol  = "sqs"
  endpoint  = aws_sqs_queue.doorbell[0].arn
}

resource "aws_lambda_event_source_mapping" "doorbell" {
  count = var.read_model ? 1 : 0

  event_source_arn = aws_sqs_queue.doorbell[0].arn
  function_name    = local.invoked["view_projector"].arn
  batch_size       = 1000
  tags             = local.tags
  # One invocation processes everything that is in the feed, so the messages of a second are batched.
  maximum_batching_window_in_seconds = 1

  # Concurrent invocations would do the same work.
  scaling_config {
    maximum_concurrency = 2
  }

  depends_on = [aws_iam_role_policy.this]
}
