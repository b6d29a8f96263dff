output "api_url" {
  description = "URL of the API: `export NAMESERVICE_URL=…` for the command line, `<api_url>/console` in a browser."
  value       = var.domain == null ? aws_apigatewayv2_api.this.api_endpoint : join("/", compact(["https://${var.domain.name}", var.domain.base_path]))
}

output "events_url" {
  description = "URL of the event streams: `<events_url>v1/events`, and `<events_url>fluree/events` for Fluree's servers. Null without `event_streams`."
  value       = var.event_streams ? aws_lambda_function_url.this["change_stream"].function_url : null
}

output "table_name" {
  description = "Name of the nameservice table, for `nameservice --aws --table …` and for Fluree's `dynamodbTable`."
  value       = local.table.name
}

output "feed_table_name" {
  description = "Name of the change feed's table."
  value       = aws_dynamodb_table.feed.name
}

output "view_table_name" {
  description = "Name of the table of the read model, if there is one."
  value       = one(module.views[*].name)
}

output "view_table_arn" {
  description = "ARN of the table of the read model, if there is one."
  value       = one(module.views[*].arn)
}

output "topic_arn" {
  description = "SNS topic of all changes, or null without `topic`; subscribe with a filter policy."
  value       = one(aws_sns_topic.changes[*].arn)
}

output "event_hosts" {
  description = "Hosts of the AppSync Events API, or null without `event_channels`: `REALTIME` for subscribers (`wss://HOST/event/realtime`), `HTTP` for publishers."
  value       = one(aws_appsync_api.events[*].dns)
}

output "event_subscriber_policy" {
  description = "IAM policy, as JSON, of a role that subscribes to channels of records, or null without `event_channels`."
  value = one([for api in aws_appsync_api.events[*] : jsonencode({
    Version = "2012-10-17"
    Statement = [
      { Effect = "Allow", Action = "appsync:EventConnect", Resource = api.api_arn },
      { Effect = "Allow", Action = "appsync:EventSubscribe", Resource = one(aws_appsync_channel_namespace.records[*].channel_namespace_arn) },
    ]
  })])
}

output "search_queue_url" {
  description = "URL of the queue that `search_sink` reads, or null without `search`. Its dead letters are replayed there."
  value       = one(aws_sqs_queue.search[*].id)
}

output "search_dead_letter_queue_url" {
  description = "URL of the queue with messages that could not be indexed, or null without `search`."
  value       = one(aws_sqs_queue.search_dead_letters[*].id)
}

output "dead_letter_queue_url" {
  description = "SQS queue that keeps, for 14 days, stream records that could not be read, and changes that were never published."
  value       = aws_sqs_queue.dead_letters.id
}

output "function_names" {
  description = "Names of the Lambda functions, by operation."
  value       = { for name, function in aws_lambda_function.this : name => function.function_name }
}

output "dashboard_url" {
  description = "URL of the CloudWatch dashboard, or null without `dashboard`."
  value       = one([for dashboard in aws_cloudwatch_dashboard.this : "https://${local.region}.console.aws.amazon.com/cloudwatch/home?region=${local.region}#dashboards/dashboard/${dashboard.dashboard_name}"])
}

output "table_arn" {
  description = "ARN of the nameservice table, for the policies of Fluree's servers and of `nameservice --aws`."
  value       = local.table.arn
}

output "feed_table_arn" {
  description = "ARN of the change feed's table."
  value       = aws_dynamodb_table.feed.arn
}

output "api_id" {
  description = "Id of the HTTP API, for the callers' policies and for metrics."
  value       = aws_apigatewayv2_api.this.id
}

output "role_arns" {
  description = "ARNs of the functions' roles, by operation: for the policy of a key, or of an endpoint that others own."
  value       = { for name, role in aws_iam_role.this : name => role.arn }
}

output "role_names" {
  description = "Names of the functions' roles, by operation."
  value       = { for name, role in aws_iam_role.this : name => role.name }
}

output "domain_target" {
  description = "Name to which `domain.name` has to point if `domain.zone_id` is not set: a CNAME, or an alias in its `zone_id`."
  value = var.domain == null ? null : {
    name    = aws_apigatewayv2_domain_name.this[0].domain_name_configuration[0].target_domain_name
    zone_id = aws_apigatewayv2_domain_name.this[0].domain_name_configuration[0].hosted_zone_id
  }
}

output "alarm_names" {
  description = "Names of the CloudWatch alarms, for `nameservice doctor --aws-deployment`."
  value       = sort([for alarm in concat(values(aws_cloudwatch_metric_alarm.metric), values(aws_cloudwatch_metric_alarm.compared), values(aws_cloudwatch_metric_alarm.operations), values(aws_cloudwatch_metric_alarm.latency)) : alarm.alarm_name])
}
