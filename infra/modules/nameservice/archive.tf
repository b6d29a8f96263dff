# The archive of the feed, if `archive` is set: the schedule that invokes the function that writes it. The topic does not invoke it: an
# archive only has to be ahead of the feed's retention, and an object for each burst of changes would mean many small ones. The
# function reads the feed itself, so the next invocation makes up for a failed one.

locals {
  # The prefix of the keys of its objects.
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
  arn  = local.invoked["feed_archive"].arn
}

resource "aws_lambda_permission" "archive" {
  count = var.archive == null ? 0 : 1

  statement_id  = "AllowInvocationBySchedule"
  action        = "lambda:InvokeFunction"
  function_name = aws_lambda_function.this["feed_archive"].function_name
  qualifier     = local.invoked["feed_archive"].qualifier
  principal     = "events.amazonaws.com"
  source_arn    = aws_cloudwatch_event_rule.archive[0].arn
}
