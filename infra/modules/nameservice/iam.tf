# One role per function, with only the actions of its entry in local.functions, and its own log group.

locals {
  # The entries of local.resources that this deployment has; those of an option that is off are null.
  allowed = {
    for resource in keys(local.resources) : resource => lookup({
      views               = var.read_model
      doorbell            = var.read_model
      event_channels      = var.event_channels != null
      graphql_api         = var.graphql_api != null
      archive             = var.archive != null
      archive_objects     = var.archive != null
      search              = var.search != null
      search_queue        = var.search != null
      search_dead_letters = var.search != null
      feed_stream         = var.topic
      topic               = var.topic
    }, resource, true)
  }
}

resource "aws_iam_role" "this" {
  for_each = local.function

  # Names of roles are those of the account, not of a region, and have at most 64 characters.
  name                 = "${var.name}-${each.key}-${local.region}"
  permissions_boundary = var.permissions_boundary_arn
  tags                 = local.tags

  assume_role_policy = jsonencode({
    Version = "2012-10-17"
    Statement = [{
      Effect    = "Allow"
      Action    = "sts:AssumeRole"
      Principal = { Service = "lambda.amazonaws.com" }
    }]
  })

  # A function keeps its role until it has the new one.
  lifecycle {
    create_before_destroy = true
  }
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
      } if local.allowed[resource]],
      # The permissions that options need; local.functions lists those of the operations.
      # A search reads no data that is encrypted with the key.
      var.kms_key_arn == null || length(setsubtract(keys(each.value.actions), ["search"])) == 0 ? [] : [{
        Effect   = "Allow"
        Action   = ["kms:Decrypt", "kms:DescribeKey", "kms:Encrypt", "kms:GenerateDataKey", "kms:ReEncryptFrom", "kms:ReEncryptTo"]
        Resource = var.kms_key_arn
        Condition = {
          StringEquals = { "kms:ViaService" = [for service in ["dynamodb", "sns", "sqs"] : "${service}.${local.region}.amazonaws.com"] }
        }
      }],
      # Neither service supports resources for these actions.
      !var.x_ray ? [] : [{
        Effect   = "Allow"
        Action   = ["xray:PutTelemetryRecords", "xray:PutTraceSegments"]
        Resource = "*"
      }],
      var.vpc == null ? [] : [{
        Effect   = "Allow"
        Action   = ["ec2:AssignPrivateIpAddresses", "ec2:CreateNetworkInterface", "ec2:DeleteNetworkInterface", "ec2:DescribeNetworkInterfaces", "ec2:DescribeSubnets", "ec2:UnassignPrivateIpAddresses"]
        Resource = "*"
      }],
    )
  })
}
