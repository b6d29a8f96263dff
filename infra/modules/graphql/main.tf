# GraphQL over the read model, without a function: each query is one Query of one index.
locals {
  # The fields of `Query` in schema.graphql.
  lists = toset(["indexDue", "recordsByHolder", "recordsByKind", "recordsBySourceType", "recordsByState"])
}

# Callers sign their requests, and may read every row and every change: a role cannot be restricted to addresses. Callers with tokens use
# the API of the nameservice.
resource "aws_appsync_graphql_api" "this" {
  #checkov:skip=CKV2_AWS_33:A web application firewall is for the owner to attach.
  name                 = "${var.name}-views"
  authentication_type  = "AWS_IAM"
  schema               = file("${path.module}/${var.subscriptions == null ? "schema" : "changes"}.graphql")
  query_depth_limit    = 5
  resolver_count_limit = 20
  xray_enabled         = var.tracing

  log_config {
    cloudwatch_logs_role_arn = aws_iam_role.logs.arn
    exclude_verbose_content  = true
    field_log_level          = "ERROR"
  }

  tags = local.tags
}

resource "aws_appsync_datasource" "views" {
  api_id           = aws_appsync_graphql_api.this.id
  name             = "views"
  type             = "AMAZON_DYNAMODB"
  service_role_arn = aws_iam_role.views.arn

  dynamodb_config {
    table_name = var.view_table.name
  }
}

resource "aws_appsync_resolver" "list" {
  for_each = local.lists

  api_id      = aws_appsync_graphql_api.this.id
  type        = "Query"
  field       = each.key
  data_source = aws_appsync_datasource.views.name
  kind        = "UNIT"
  code        = file("${path.module}/resolvers/rows.js")

  runtime {
    name            = "APPSYNC_JS"
    runtime_version = "1.0.0"
  }
}

# The lists only need Query, on the indexes.
resource "aws_iam_role" "views" {
  # Names of roles are those of the account, not of a region.
  name               = "${var.name}-graphql-views-${local.region}"
  assume_role_policy = local.assumed_by_appsync
  tags               = local.tags

  lifecycle {
    create_before_destroy = true
  }
}

resource "aws_iam_role_policy" "views" {
  name = "views"
  role = aws_iam_role.views.id
  policy = jsonencode({
    Version = "2012-10-17"
    Statement = concat([{
      Effect   = "Allow"
      Action   = "dynamodb:Query"
      Resource = "${var.view_table.arn}/index/*"
      }], var.kms_key_arn == null ? [] : [{
      Effect   = "Allow"
      Action   = "kms:Decrypt"
      Resource = var.kms_key_arn
    }])
  })
}

resource "aws_iam_role" "logs" {
  name               = "${var.name}-graphql-logs-${local.region}"
  assume_role_policy = local.assumed_by_appsync
  tags               = local.tags

  lifecycle {
    create_before_destroy = true
  }
}

resource "aws_iam_role_policy" "logs" {
  name = "logs"
  role = aws_iam_role.logs.id
  policy = jsonencode({
    Version = "2012-10-17"
    Statement = [{
      Effect   = "Allow"
      Action   = ["logs:CreateLogStream", "logs:PutLogEvents"]
      Resource = "${aws_cloudwatch_log_group.this.arn}:*"
    }]
  })
}

# AppSync writes to the group of this name.
resource "aws_cloudwatch_log_group" "this" {
  #checkov:skip=CKV_AWS_338:The retention is a variable: these logs are for operating, not for audits.
  name              = "/aws/appsync/apis/${aws_appsync_graphql_api.this.id}"
  retention_in_days = var.log_retention_in_days
  kms_key_id        = var.kms_key_arn
  tags              = local.tags
}
