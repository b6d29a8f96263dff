# Functions in a VPC reach DynamoDB, SNS, SQS and S3 through endpoints, or through whatever routes its subnets have. Logs and traces
# do not pass through the VPC.

locals {
  endpoints = try(var.vpc.endpoints, null)
}

resource "aws_vpc_endpoint" "dynamodb" {
  count = local.endpoints == null ? 0 : 1

  vpc_id            = local.endpoints.vpc_id
  service_name      = "com.amazonaws.${local.region}.dynamodb"
  vpc_endpoint_type = "Gateway"
  route_table_ids   = local.endpoints.route_table_ids
  tags              = merge(local.tags, { Name = "${var.name}-dynamodb" })

  # Only this deployment's tables can be reached through this endpoint, unless others use it too.
  policy = local.endpoints.shared ? null : jsonencode({
    Version = "2012-10-17"
    Statement = [{
      Effect    = "Allow"
      Principal = "*"
      Action    = "dynamodb:*"
      Resource  = flatten([for arn in concat([local.table.arn, aws_dynamodb_table.feed.arn], module.views[*].arn) : [arn, "${arn}/*"]])
    }]
  })
}

# The archive of the feed is in S3.
resource "aws_vpc_endpoint" "s3" {
  count = local.endpoints == null || var.archive == null ? 0 : 1

  vpc_id            = local.endpoints.vpc_id
  service_name      = "com.amazonaws.${local.region}.s3"
  vpc_endpoint_type = "Gateway"
  route_table_ids   = local.endpoints.route_table_ids
  tags              = merge(local.tags, { Name = "${var.name}-s3" })

  # Only the archive can be reached through this endpoint, unless others use it too.
  policy = local.endpoints.shared ? null : jsonencode({
    Version = "2012-10-17"
    Statement = [{
      Effect    = "Allow"
      Principal = "*"
      Action    = local.functions.feed_archive.actions.archive_objects
      Resource  = local.resources.archive_objects
      }, {
      Effect    = "Allow"
      Principal = "*"
      Action    = local.functions.feed_archive.actions.archive
      Resource  = local.resources.archive
    }]
  })
}

# For changes and dead letters.
resource "aws_vpc_endpoint" "messages" {
  for_each = toset(local.endpoints == null ? [] : var.topic ? ["sns", "sqs"] : ["sqs"])

  vpc_id              = local.endpoints.vpc_id
  service_name        = "com.amazonaws.${local.region}.${each.key}"
  vpc_endpoint_type   = "Interface"
  subnet_ids          = coalesce(local.endpoints.subnet_ids, var.vpc.subnet_ids)
  security_group_ids  = local.endpoints.security_group_ids
  private_dns_enabled = true
  tags                = merge(local.tags, { Name = "${var.name}-${each.key}" })
}
