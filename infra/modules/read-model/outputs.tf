output "name" {
  description = "Name of the table."
  value       = aws_dynamodb_table.this.name
}

output "arn" {
  description = "ARN of the table."
  value       = aws_dynamodb_table.this.arn
}

output "stream_arn" {
  description = "ARN of the table's stream; null if the declaration has none."
  value       = var.declaration.stream ? aws_dynamodb_table.this.stream_arn : null
}

output "index_arns" {
  description = "ARNs of the indexes, by name."
  value       = { for name in keys(local.indexes) : name => "${aws_dynamodb_table.this.arn}/index/${name}" }
}

output "writer_policy" {
  description = "IAM policy, as JSON, of the role that writes the rows: the requests of a projector over `TableRows`."
  value       = jsonencode({ Version = "2012-10-17", Statement = local.writer_statements })
}

output "reader_policy" {
  description = "IAM policy, as JSON, of a role that reads rows: one by its key, and pages of the indexes."
  value       = jsonencode({ Version = "2012-10-17", Statement = local.reader_statements })
}
