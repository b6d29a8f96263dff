locals {
  # The functions whose readers wait.
  waiting = [for name in ["change_list", "change_stream"] : name if contains(keys(local.function), name)]

  # Widgets: title, metrics, and properties that differ from the defaults.
  widgets = concat([for widget in local.request_widgets : widget if var.request_metrics], local.aws_widgets)

  # The functions' own metrics, under the names of docs/metrics.md.
  request_widgets = [
    {
      title   = "Requests by outcome"
      metrics = [[{ expression = "SEARCH('{Nameservice,name,outcome} MetricName=\"nameservice_requests_total\" name=\"${var.name}\"', 'Sum')", label = "" }]]
      stat    = "Sum"
    },
    {
      title   = "Requests: duration, p99 (s)"
      metrics = [["Nameservice", "nameservice_request_duration_seconds", "name", var.name]]
      stat    = "p99"
    },
    {
      title   = "Leases: held, busy, lost, released"
      metrics = [[{ expression = "SEARCH('{Nameservice,name,outcome} MetricName=\"nameservice_leases_total\" name=\"${var.name}\"', 'Sum')", label = "" }]]
      stat    = "Sum"
    },
    {
      title   = "Requests to DynamoDB that were repeated, by reason"
      metrics = [[{ expression = "SEARCH('{Nameservice,name,reason} MetricName=\"nameservice_store_retries_total\" name=\"${var.name}\"', 'Sum')", label = "" }]]
      stat    = "Sum"
    },
    {
      title   = "Change feed: from a change to its place, p99 (s)"
      metrics = [["Nameservice", "nameservice_feed_lag_seconds", "name", var.name]]
      stat    = "p99"
    },
    {
      title   = "Change feed: changes of a batch"
      metrics = [["Nameservice", "nameservice_feed_batch_changes", "name", var.name]]
      stat    = "Average"
    },
  ]

  aws_widgets = [
    {
      title   = "API: requests and errors"
      metrics = [for metric in ["Count", "4xx", "5xx"] : ["AWS/ApiGateway", metric, "ApiId", aws_apigatewayv2_api.this.id]]
      stat    = "Sum"
    },
    {
      title   = "API: latency, p99 (ms)"
      metrics = [for metric in ["Latency", "IntegrationLatency"] : ["AWS/ApiGateway", metric, "ApiId", aws_apigatewayv2_api.this.id]]
      stat    = "p99"
    },
    {
      title   = "Functions: duration, p99 (ms)"
      metrics = [for name in keys(local.prompt) : ["AWS/Lambda", "Duration", "FunctionName", aws_lambda_function.this[name].function_name]]
      stat    = "p99"
    },
    {
      title   = "Functions: errors"
      metrics = [for name, function in aws_lambda_function.this : ["AWS/Lambda", "Errors", "FunctionName", function.function_name]]
      stat    = "Sum"
    },
    {
      title   = "Waiting readers"
      metrics = [for name in local.waiting : ["AWS/Lambda", "ConcurrentExecutions", "FunctionName", aws_lambda_function.this[name].function_name]]
      stat    = "Maximum"
    },
    {
      title   = "Waiting readers, throttled"
      metrics = [for name in local.waiting : ["AWS/Lambda", "Throttles", "FunctionName", aws_lambda_function.this[name].function_name]]
      stat    = "Sum"
    },
    {
      title   = "Change feed behind the table, topic behind the feed (ms)"
      metrics = [for name in ["stream_consumer", "topic_publisher"] : ["AWS/Lambda", "IteratorAge", "FunctionName", aws_lambda_function.this[name].function_name] if contains(keys(local.function), name)]
      stat    = "Maximum"
    },
    {
      title = "Change feed: published, undelivered, dead letters"
      metrics = concat(
        [for pair in setproduct(["NumberOfMessagesPublished", "NumberOfNotificationsFailed"], aws_sns_topic.changes[*].name) : ["AWS/SNS", pair[0], "TopicName", pair[1]]],
        [["AWS/SQS", "NumberOfMessagesSent", "QueueName", aws_sqs_queue.dead_letters.name]],
      )
      stat = "Sum"
    },
    {
      title   = "Tables: failed conditions"
      metrics = [for name in values(local.tables) : ["AWS/DynamoDB", "ConditionalCheckFailedRequests", "TableName", name]]
      stat    = "Sum"
    },
    {
      title   = "Tables: capacity units"
      metrics = [for pair in setproduct(["ConsumedReadCapacityUnits", "ConsumedWriteCapacityUnits"], values(local.tables)) : ["AWS/DynamoDB", pair[0], "TableName", pair[1]]]
      stat    = "Sum"
    },
    {
      title   = "Table: latency by operation (ms)"
      metrics = [for operation in local.operations : ["AWS/DynamoDB", "SuccessfulRequestLatency", "TableName", local.table.name, "Operation", operation]]
      stat    = "Average"
    },
    {
      title   = "Table: throttled requests"
      metrics = [for operation in local.operations : ["AWS/DynamoDB", "ThrottledRequests", "TableName", local.table.name, "Operation", operation]]
      stat    = "Sum"
    },
  ]
}

resource "aws_cloudwatch_dashboard" "this" {
  count = var.dashboard ? 1 : 0

  # Names of dashboards are those of the account, not of a region.
  dashboard_name = "${var.name}-${local.region}"

  dashboard_body = jsonencode({
    widgets = [
      for index, widget in local.widgets : {
        type       = "metric"
        x          = index % 2 * 12
        y          = floor(index / 2) * 6
        width      = 12
        height     = 6
        properties = merge(widget, { region = local.region, period = 300, view = "timeSeries" })
      }
    ]
  })
}
