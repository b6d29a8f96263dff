# One Lambda function and one log group per entry of local.functions.

resource "aws_lambda_function" "this" {
  #checkov:skip=CKV_AWS_50:Traces are sent if x_ray is set. The gateway's request id is in every log line.
  #checkov:skip=CKV_AWS_116:All are invoked synchronously; the consumer has its own queue for records that it cannot read.
  #checkov:skip=CKV_AWS_117:They call DynamoDB, SNS, SQS, S3, OpenSearch and AppSync only. They are in a VPC if vpc is set.
  #checkov:skip=CKV_AWS_173:The environment holds names and public keys, no secrets.
  #checkov:skip=CKV_AWS_272:Signing needs a profile of the account. The artifacts are built where they are deployed from.
  for_each = local.function

  function_name                  = "${var.name}-${each.key}"
  description                    = join(", ", concat(each.value.routes, each.value.url))
  role                           = aws_iam_role.this[each.key].arn
  filename                       = var.artifacts_bucket == null ? "${var.artifacts}/${each.key}/bootstrap.zip" : null
  source_code_hash               = var.artifacts_bucket == null ? filebase64sha256("${var.artifacts}/${each.key}/bootstrap.zip") : null
  s3_bucket                      = var.artifacts_bucket
  s3_key                         = var.artifacts_bucket == null ? null : "${var.artifacts}/${each.key}/bootstrap.zip"
  handler                        = "bootstrap"
  runtime                        = "provided.al2023"
  architectures                  = [var.architecture]
  memory_size                    = each.value.memory
  timeout                        = each.value.timeout
  reserved_concurrent_executions = var.frozen && contains(local.writers, each.key) ? 0 : each.value.concurrency
  publish                        = var.aliases
  tags                           = local.tags

  environment {
    variables = merge(
      {
        NAMESERVICE_TABLE                  = local.table.name
        NAMESERVICE_FEED_TABLE             = aws_dynamodb_table.feed.name
        NAMESERVICE_FEED_RETENTION_SECONDS = var.feed_retention_in_days * 86400
      },
      var.fluree ? { NAMESERVICE_FLUREE = "true" } : {},
      var.request_metrics ? { NAMESERVICE_METRICS = var.name } : {},
      contains(keys(each.value.actions), "views") ? { NAMESERVICE_VIEW_TABLE = one(module.views[*].name) } : {},
      # Shows the function that there is a search.
      var.search != null && each.key == "health_get" ? { NAMESERVICE_SEARCH_URL = var.search.url } : {},
      var.search != null && contains(keys(each.value.actions), "search") ? {
        NAMESERVICE_SEARCH_URL   = var.search.url
        NAMESERVICE_SEARCH_INDEX = var.search.index
      } : {},
      contains(keys(each.value.actions), "search_dead_letters") ? { NAMESERVICE_SEARCH_DEAD_LETTER_QUEUE_URL = one(aws_sqs_queue.search_dead_letters[*].id) } : {},
      var.archive != null && contains(keys(each.value.actions), "archive") ? {
        NAMESERVICE_ARCHIVE_BUCKET = var.archive.bucket
        NAMESERVICE_ARCHIVE_PREFIX = var.archive.prefix
      } : {},
      contains(keys(each.value.actions), "topic") && var.topic ? { NAMESERVICE_TOPIC_ARN = one(aws_sns_topic.changes[*].arn) } : {},
      var.event_channels != null && contains(keys(each.value.actions), "event_channels") ? {
        NAMESERVICE_DOORBELL_URL       = "https://${try(local.event_hosts["HTTP"], "")}/event"
        NAMESERVICE_DOORBELL_NAMESPACE = var.event_channels.namespace
      } : {},
      var.graphql_api != null && contains(keys(each.value.actions), "graphql_api") ? { NAMESERVICE_GRAPHQL_URL = var.graphql_api.url } : {},
      contains(keys(each.value.actions), "dead_letters") ? { NAMESERVICE_DEAD_LETTER_QUEUE_URL = aws_sqs_queue.dead_letters.id } : {},
      var.console_sign_in != null && each.key == "console_get" ? {
        NAMESERVICE_CONSOLE_SIGN_IN = jsonencode({ for name, value in merge(var.console_sign_in, { issuer = var.jwt_issuer }) : name => value if value != null })
      } : {},
      each.value.verifies_tokens && local.by_token ? {
        NAMESERVICE_ISSUER   = var.jwt_issuer
        NAMESERVICE_AUDIENCE = var.jwt_audience
      } : {},
      each.value.verifies_tokens && local.by_token && var.jwks != null ? { NAMESERVICE_JWKS = var.jwks } : {},
      each.value.verifies_tokens && local.by_token && var.jwks_url != null ? { NAMESERVICE_JWKS_URL = var.jwks_url } : {},
    )
  }

  logging_config {
    log_group             = aws_cloudwatch_log_group.function[each.key].name
    log_format            = "JSON"
    application_log_level = var.log_level
    system_log_level      = "WARN"
  }

  dynamic "tracing_config" {
    for_each = var.x_ray ? ["Active"] : []

    content {
      mode = tracing_config.value
    }
  }

  dynamic "vpc_config" {
    for_each = var.vpc == null ? [] : [var.vpc]

    content {
      subnet_ids         = vpc_config.value.subnet_ids
      security_group_ids = vpc_config.value.security_group_ids
    }
  }

  # A function that runs before its policy exists cannot log that it lacks permissions.
  depends_on = [aws_iam_role_policy.this]
}

# What callers invoke, if `aliases` is set. The alias begins at the first version; infra/release.py moves it, part by part, to the
# versions that an apply publishes, and back.
resource "aws_lambda_alias" "live" {
  for_each = var.aliases ? local.function : {}

  name             = "live"
  description      = "What callers invoke."
  function_name    = aws_lambda_function.this[each.key].function_name
  function_version = aws_lambda_function.this[each.key].version

  lifecycle {
    ignore_changes = [function_version, routing_config]
  }
}

locals {
  # What to invoke: the functions themselves, or their aliases.
  invoked = {
    for name, function in aws_lambda_function.this : name => {
      qualifier  = var.aliases ? aws_lambda_alias.live[name].name : null
      arn        = var.aliases ? aws_lambda_alias.live[name].arn : function.arn
      invoke_arn = var.aliases ? aws_lambda_alias.live[name].invoke_arn : function.invoke_arn
    }
  }
}

resource "aws_cloudwatch_log_group" "function" {
  #checkov:skip=CKV_AWS_158:Encrypted with CloudWatch's own key, unless kms_key_arn is set. Logs hold addresses and errors, no payloads and no tokens.
  #checkov:skip=CKV_AWS_338:The retention is a variable: these logs are for operating, not for audits.
  for_each = local.function

  name              = "/aws/lambda/${var.name}-${each.key}"
  retention_in_days = var.log_retention_in_days
  kms_key_id        = var.kms_key_arn
  tags              = local.tags
}
