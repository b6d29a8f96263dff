# Every change as a CloudEvents 1.0 envelope, at least once, if `topic` is set. Subscribers filter by the message attributes address,
# name, branch, kind, concern and source_type, or by the body.
resource "aws_sns_topic" "changes" {
  count = var.topic ? 1 : 0

  name              = "${var.name}-changes"
  kms_master_key_id = coalesce(var.kms_key_arn, "alias/aws/sns")
  tags              = local.tags
}

# From the feed to the topic. The publisher has a checkpoint of its own, so that neither a batch nor its age matters: the next
# invocation continues. The feed does not wait for it.
resource "aws_lambda_event_source_mapping" "topic" {
  count = var.topic ? 1 : 0

  event_source_arn  = aws_dynamodb_table.feed.stream_arn
  function_name     = local.invoked["topic_publisher"].arn
  starting_position = "TRIM_HORIZON"
  # One invocation publishes everything that is in the feed, and one beside it would publish much of it again.
  parallelization_factor = 1
  batch_size             = 1000

  # What failed is repeated until it succeeds: meanwhile the feed keeps the changes, for as long as its retention.
  maximum_retry_attempts        = -1
  maximum_record_age_in_seconds = -1
  tags                          = local.tags

  # Only segments that were appended: histories, checkpoints and what has expired are not delivered.
  filter_criteria {
    filter {
      pattern = jsonencode({ eventName = ["INSERT"], dynamodb = { Keys = { id = { S = ["feed#0"] } } } })
    }
  }

  depends_on = [aws_iam_role_policy.this]
}

# For what no longer has an event: the stream drops records after 24 hours, and the feed keeps changes for days.
resource "aws_cloudwatch_event_rule" "topic" {
  count = var.topic ? 1 : 0

  name                = "${var.name}-topic"
  description         = "Publishes what was left of the feed."
  schedule_expression = "rate(1 hour)"
  tags                = local.tags
}

resource "aws_cloudwatch_event_target" "topic" {
  count = var.topic ? 1 : 0

  rule = aws_cloudwatch_event_rule.topic[0].name
  arn  = local.invoked["topic_publisher"].arn
}

resource "aws_lambda_permission" "topic" {
  count = var.topic ? 1 : 0

  statement_id  = "AllowInvocationBySchedule"
  action        = "lambda:InvokeFunction"
  function_name = aws_lambda_function.this["topic_publisher"].function_name
  qualifier     = local.invoked["topic_publisher"].qualifier
  principal     = "events.amazonaws.com"
  source_arn    = aws_cloudwatch_event_rule.topic[0].arn
}
