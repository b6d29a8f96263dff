output "url" {
  description = "URL of the API. Requests are signed (`appsync:GraphQL`)."
  value       = aws_appsync_graphql_api.this.uris["GRAPHQL"]
}

output "realtime_url" {
  description = "URL of the API for subscribers (`wss://…`), or null without `subscriptions`."
  value       = var.subscriptions == null ? null : aws_appsync_graphql_api.this.uris["REALTIME"]
}

output "subscriber_policy" {
  description = "IAM policy, as JSON, of a role that subscribes to changes, or null without `subscriptions`."
  value = var.subscriptions == null ? null : jsonencode({
    Version = "2012-10-17"
    Statement = [{
      Effect   = "Allow"
      Action   = "appsync:GraphQL"
      Resource = "${aws_appsync_graphql_api.this.arn}/types/Subscription/fields/changes"
    }]
  })
}

output "api_arn" {
  description = "ARN of the API, for the policies of its callers."
  value       = aws_appsync_graphql_api.this.arn
}

output "api_id" {
  description = "Id of the API."
  value       = aws_appsync_graphql_api.this.id
}
