# One role per function, with only the actions of its entry in local.functions, and its own log group.

resource "aws_iam_role" "this" {
  for_each = local.function

  name                 = "${var.name}-${each.key}"
  permissions_boundary = var.permissions_boundary_arn

  assume_role_policy = jsonencode({
    Version = "2012-10-17"
    Statement = [{
      Effect    = "Allow"
      Action    = "sts:AssumeRole"
      Principal = { Service = "lambda.amazonaws.com" }
    }]
  })
}

resource "aws_iam_role_policy" "this" {
  for_each = local.function

  name = "nameservice"
  role = aws_iam_role.this[each.key].id

  policy = jsonencode({
    Version = "2012-10-17"
    Statement = concat(
      [{
        Effect   = "Allow"
        Action   = ["logs:CreateLogStream", "logs:PutLogEvents"]
        Resource = "${aws_cloudwatch_log_group.function[each.key].arn}:*"
      }],
      [for resource, actions in each.value.actions : {
        Effect   = "Allow"
        Action   = actions
        Resource = local.resources[resource]
      }],
    )
  })
}
