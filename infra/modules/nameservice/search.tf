# The search over OpenSearch, if `search` is set: the queue between the topic and the sink that writes documents. Unlike for the read
# model, the messages matter: each has its own outcome, and those that the index cannot accept are delivered again.
resource "aws_sqs_queue" "search" {
  count = var.search == null ? 0 : 1

  name                       = "${var.name}-search"
  message_retention_seconds  = 1209600
  visibility_timeout_seconds = 6 * local.function["search_sink"].timeout
  sqs_managed_sse_enabled    = var.kms_key_arn == null ? true : null
  kms_master_key_id          = var.kms_key_arn
  tags                       = local.tags

  # Messages that fail for two hours become dead letters. `nameservice aws deadletters replay` sends them here again.
  redrive_policy = jsonencode({
    deadLetterTargetArn = aws_sqs_queue.search_dead_letters[0].arn
    maxReceiveCount     = 20
  })
}

# Messages that cannot be indexed: with the attribute `reason` if the sink or the index has rejected them, as they were in any case.
resource "aws_sqs_queue" "search_dead_letters" {
  count = var.search == null ? 0 : 1

  name                      = "${var.name}-search-dead-letters"
  message_retention_seconds = 1209600
  sqs_managed_sse_enabled   = var.kms_key_arn == null ? true : null
  kms_master_key_id         = var.kms_key_arn
  tags                      = local.tags
}

resource "aws_sqs_queue_policy" "search" {
  count = var.search == null ? 0 : 1

  queue_url = aws_sqs_queue.search[0].id
  policy = jsonencode({
    Version = "2012-10-17"
    Statement = [{
      Effect    = "Allow"
      Principal = { Service = "sns.amazonaws.com" }
      Action    = "sqs:SendMessage"
      Resource  = aws_sqs_queue.search[0].arn
      Condition = { ArnEquals = { "aws:SourceArn" = one(aws_sns_topic.changes[*].arn) } }
    }]
  })
}

resource "aws_sns_topic_subscription" "search" {
  count = var.search == null ? 0 : 1

  topic_arn = one(aws_sns_topic.changes[*].arn)
  protocol  = "sqs"
  endpoint  = aws_sqs_queue.search[0].arn
  # Heads and indexes are not in documents. By attributes, which are always ones that SNS can read: a filter of bodies is paid by the GB.
  filter_policy        = jsonencode({ concern = ["config", "meta", "status"] })
  raw_message_delivery = true
}

resource "aws_lambda_event_source_mapping" "search" {
  count = var.search == null ? 0 : 1

  event_source_arn                   = aws_sqs_queue.search[0].arn
  function_name                      = local.invoked["search_sink"].arn
  batch_size                         = 100
  maximum_batching_window_in_seconds = 1
  function_response_types            = ["ReportBatchItemFailures"]
  tags                               = local.tags

  scaling_config {
    maximum_concurrency = 5
  }

  depends_on = [aws_iam_role_policy.this]
}
