# From the table's stream to the feed.
resource "aws_lambda_event_source_mapping" "changes" {
  event_source_arn  = local.table.stream_arn
  function_name     = local.invoked["stream_consumer"].arn
  starting_position = "TRIM_HORIZON"
  # The feed is one sequence: parallel batches of a shard would only contend for its counter.
  parallelization_factor = 1
  # As many changes as fit one transaction.
  batch_size = 98

  # The consumer moves records that it cannot read to the dead-letter queue, and a record that ended it three times while it was alone,
  # so every other failure is worth a retry for as long as the stream keeps the record: a bounded number of retries would drop changes
  # after the last one. The alarms on failures and on the iterator's age report a consumer that makes no progress.
  maximum_retry_attempts         = -1
  maximum_record_age_in_seconds  = -1
  bisect_batch_on_function_error = true
  function_response_types        = ["ReportBatchItemFailures"]
  tags                           = local.tags

  # Only items that can be changes: back references and Fluree's commit log are not delivered.
  filter_criteria {
    filter {
      pattern = jsonencode({ dynamodb = { Keys = { sk = { S = ["meta", "head", "index", "status", "config"] } } } })
    }
  }

  depends_on = [aws_iam_role_policy.this]
}

# Dead letters: whole stream records that the consumer cannot read, and changes that are never published, with the reason. Feed and topic
# continue behind them.
resource "aws_sqs_queue" "dead_letters" {
  name                      = "${var.name}-dead-letters"
  message_retention_seconds = 1209600
  sqs_managed_sse_enabled   = var.kms_key_arn == null ? true : null
  kms_master_key_id         = var.kms_key_arn
  tags                      = local.tags
}
