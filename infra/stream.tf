# From the table's stream to the feed, and from the feed to the topic.
resource "aws_lambda_event_source_mapping" "changes" {
  event_source_arn  = aws_dynamodb_table.this.stream_arn
  function_name     = aws_lambda_function.this["stream_consumer"].arn
  starting_position = "TRIM_HORIZON"
  # The feed is one sequence: more than one batch of a shard at a time would only contend for its counter.
  parallelization_factor = 1
  batch_size             = 100

  # The consumer sets aside what it cannot read, so what fails is worth another try for as long as the stream has it: a bounded
  # number of tries would drop changes after the last. The alarm on the iterator's age tells when it hangs.
  maximum_retry_attempts         = -1
  maximum_record_age_in_seconds  = -1
  bisect_batch_on_function_error = true
  function_response_types        = ["ReportBatchItemFailures"]

  # Only what can be a change; back references and Fluree's commit log are not even read.
  filter_criteria {
    filter {
      pattern = jsonencode({ dynamodb = { Keys = { sk = { S = ["meta", "head", "index", "status", "config"] } } } })
    }
  }

  depends_on = [aws_iam_role_policy.this]
}

# Records that the consumer cannot read, whole, with the reason. It goes on behind them.
resource "aws_sqs_queue" "dead_letters" {
  name                      = "${var.name}-dead-letters"
  message_retention_seconds = 1209600
  sqs_managed_sse_enabled   = true
}
