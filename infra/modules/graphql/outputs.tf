output "url" {
  description = "URL of the API. Requests are signed (`appsync:GraphQL`)."
  value       = aws_appsync_graphql_api.this.uris["GRAPHQL"]
}

output "api_arn" {
  description = "ARN of the API, for the policies of its callers."
  value       = aws_appsync_graphql_api.this.arn
}

output "api_id" {
  description = "Id of the API."
  value       = aws_appsync_graphql_api.this.id
}
