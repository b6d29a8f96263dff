output "api_url" {
  description = "URL of the API: `export NAMESERVICE_URL=…` for the command line, `<api_url>/console` in a browser."
  value       = aws_apigatewayv2_api.this.api_endpoint
}

output "events_url" {
  description = "URL of the event streams: `<events_url>v1/events`, and `<events_url>fluree/events` for Fluree's servers."
  value       = aws_lambda_function_url.this["change_stream"].function_url
}

output "table_name" {
  description = "Name of the nameservice table, for `nameservice --aws --table …` and for Fluree's `dynamodbTable`."
  value       = aws_dynamodb_table.this.name
}

output "feed_table_name" {
  description = "Name of the change feed's table."
  value       = aws_dynamodb_table.feed.name
}

output "topic_arn" {
  description = "SNS topic of all changes; subscribe with a filter policy."
  value       = aws_sns_topic.changes.arn
}

output "dead_letter_queue_url" {
  description = "SQS queue that keeps stream records which could not be read for 14 days."
  value       = aws_sqs_queue.dead_letters.id
}

output "function_names" {
  description = "Names of the Lambda functions, by operation."
  value       = { for name, function in aws_lambda_function.this : name => function.function_name }
}

output "dashboard_url" {
  description = "URL of the CloudWatch dashboard."
  value       = "https://${var.region}.console.aws.amazon.com/cloudwatch/home?region=${var.region}#dashboards/dashboard/${aws_cloudwatch_dashboard.this.dashboard_name}"
}
