# The requests that a projector over `TableRows` and a reader of its rows send to DynamoDB. tests/infra records both and compares.
locals {
  writer_actions = ["dynamodb:BatchWriteItem", "dynamodb:DeleteItem", "dynamodb:GetItem", "dynamodb:PutItem", "dynamodb:Scan"]
  # One row by its key, and the pages of an index.
  reader_actions       = ["dynamodb:GetItem"]
  index_reader_actions = ["dynamodb:Query"]

  key_actions = {
    writer = ["kms:Decrypt", "kms:DescribeKey", "kms:Encrypt", "kms:GenerateDataKey", "kms:ReEncryptFrom", "kms:ReEncryptTo"]
    reader = ["kms:Decrypt"]
  }

  through_the_key = {
    for caller, actions in local.key_actions : caller => var.kms_key_arn == null ? [] : [{
      Effect    = "Allow"
      Action    = actions
      Resource  = var.kms_key_arn
      Condition = { StringEquals = { "kms:ViaService" = ["dynamodb.${data.aws_region.current.id}.amazonaws.com"] } }
    }]
  }

  writer_statements = concat([{
    Effect   = "Allow"
    Action   = local.writer_actions
    Resource = aws_dynamodb_table.this.arn
  }], local.through_the_key.writer)

  reader_statements = concat(
    [{
      Effect = "Allow"
      # The rows of one partition are a query if they have a sort key.
      Action   = concat(local.reader_actions, var.declaration.sort_key == null ? [] : local.index_reader_actions)
      Resource = aws_dynamodb_table.this.arn
    }],
    length(local.indexes) == 0 ? [] : [{
      Effect   = "Allow"
      Action   = local.index_reader_actions
      Resource = [for name in sort(keys(local.indexes)) : "${aws_dynamodb_table.this.arn}/index/${name}"]
    }],
    local.through_the_key.reader,
  )
}
