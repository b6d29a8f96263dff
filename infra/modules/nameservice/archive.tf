# The archive of the feed, where `archive` is set: what invokes the function that writes it. A schedule, and not the topic: an archive
# has to be ahead of the feed's retention, and an object for each burst of changes would be many small ones. The function reads
# the feed itself, so an invocation that failed is made up for by the next.

locals {
  # What the keys of its objects begin with.
  archive_folder = try(join("/", compact([var.archive.prefix, "changes/"])), "")
}

resource "aws_cloudwatch_event_rule" "archive" {
  count = var.archive == null ? 0 : 1

  name                = "${var.name}-archive"
  description         = "Writes the changes of the feed to the archive."
  schedule_expression = var.archive.rate
  tags                = local.tags
}

resource "aws_cloudwatch_event_target" "archive" {
  count = var.archive == null ? 0 : 1

  rule = aws_cloudwatch_event_rule.archive[0].name
  arn  = aws_lambda_function.this["feed_archive"].arn
}

resource "aws_lambda_permission" "archive" {
  count = var.archive == null ? 0 : 1

  statement_id  = "AllowInvocationBySchedule"
  action        = "lambda:InvokeFunction"
  function_name = aws_lambda_function.this["feed_archive"].function_name
  principal     = "events.amazonaws.com"
  source_arn    = aws_cloudwatch_event_rule.archive[0].arn
}
