locals {
  by_token = var.authorization == "JWT"

  # The scopes, one of which a route's caller must have. The gateway does not order scopes, so each lists those that include it.
  scopes = {
    read  = ["nameservice:read", "nameservice:write", "nameservice:admin"]
    write = ["nameservice:write", "nameservice:admin"]
    admin = ["nameservice:admin"]
  }

  # Route key -> name of the function.
  routes = merge([for name, function in local.function : { for route in function.routes : route => name }]...)
}

resource "aws_apigatewayv2_api" "this" {
  name          = var.name
  description   = "Versioned pointers to the heads, indexes, states and configurations of ledgers and graph sources."
  protocol_type = "HTTP"
  tags          = local.tags

  # Callers must use the domain, so that what is in front of it cannot be bypassed.
  disable_execute_api_endpoint = try(var.domain.only, false)

  dynamic "cors_configuration" {
    for_each = length(var.cors_allow_origins) > 0 ? [local.cors] : []

    content {
      allow_origins  = cors_configuration.value.allow_origins
      allow_methods  = cors_configuration.value.allow_methods
      allow_headers  = cors_configuration.value.allow_headers
      expose_headers = cors_configuration.value.expose_headers
      max_age        = cors_configuration.value.max_age
    }
  }
}

locals {
  cors = {
    allow_origins  = var.cors_allow_origins
    allow_methods  = ["GET", "POST", "PUT", "DELETE"]
    allow_headers  = ["authorization", "content-type", "idempotency-key", "if-none-match", "last-event-id", "x-request-id"]
    expose_headers = ["etag", "location", "x-request-id"]
    max_age        = 3600
  }
}

resource "aws_apigatewayv2_authorizer" "jwt" {
  count = local.by_token ? 1 : 0

  name             = "jwt"
  api_id           = aws_apigatewayv2_api.this.id
  authorizer_type  = "JWT"
  identity_sources = ["$request.header.Authorization"]

  jwt_configuration {
    issuer   = var.jwt_issuer
    audience = [var.jwt_audience]
  }
}

resource "aws_apigatewayv2_integration" "this" {
  for_each = toset(values(local.routes))

  api_id                 = aws_apigatewayv2_api.this.id
  integration_type       = "AWS_PROXY"
  integration_uri        = local.invoked[each.key].invoke_arn
  payload_format_version = "2.0"
  # The gateway's maximum: long polls take up to twenty seconds.
  timeout_milliseconds = 30000
}

# Every route with a scope has an authorizer. Health, documentation, the files of the console and $default are open; with JWTs Fluree's routes are too,
# since their function verifies tokens itself.
resource "aws_apigatewayv2_route" "this" {
  for_each = local.routes

  api_id    = aws_apigatewayv2_api.this.id
  route_key = each.key
  target    = "integrations/${aws_apigatewayv2_integration.this[each.value].id}"

  authorization_type = (
    local.by_token && local.function[each.value].scope != null ? "JWT" :
    !local.by_token && (local.function[each.value].scope != null || local.function[each.value].verifies_tokens) ? "AWS_IAM" :
    "NONE"
  )
  authorizer_id        = local.by_token && local.function[each.value].scope != null ? aws_apigatewayv2_authorizer.jwt[0].id : null
  authorization_scopes = local.by_token && local.function[each.value].scope != null ? local.scopes[local.function[each.value].scope] : null
}

# The gateway may invoke a function for that function's routes only.
resource "aws_lambda_permission" "route" {
  for_each = local.routes

  statement_id  = "route-${substr(sha256(each.key), 0, 16)}"
  function_name = aws_lambda_function.this[each.value].function_name
  qualifier     = local.invoked[each.value].qualifier
  action        = "lambda:InvokeFunction"
  principal     = "apigateway.amazonaws.com"
  # "PUT /v1/heads/{address+}" is <api>/<stage>/PUT/v1/heads/*, and "$default" is <api>/<stage>/$default
  source_arn = "${aws_apigatewayv2_api.this.execution_arn}/*/${replace(replace(each.key, " ", ""), "/{[a-z]+\\+}/", "*")}"

  # If `aliases` changes, there is one for the alias and one for the function until the gateway has changed over.
  lifecycle {
    create_before_destroy = true
  }
}

resource "aws_apigatewayv2_stage" "this" {
  api_id      = aws_apigatewayv2_api.this.id
  name        = "$default"
  auto_deploy = true
  tags        = local.tags

  default_route_settings {
    detailed_metrics_enabled = var.detailed_metrics
    throttling_rate_limit    = var.throttling_rate_limit
    throttling_burst_limit   = var.throttling_burst_limit
  }

  access_log_settings {
    destination_arn = aws_cloudwatch_log_group.api.arn
    format = jsonencode({
      requestId       = "$context.requestId"
      time            = "$context.requestTime"
      ip              = "$context.identity.sourceIp"
      subject         = "$context.authorizer.claims.sub"
      caller          = "$context.identity.userArn"
      route           = "$context.routeKey"
      path            = "$context.path"
      status          = "$context.status"
      bytes           = "$context.responseLength"
      latency         = "$context.responseLatency"
      functionLatency = "$context.integrationLatency"
      error           = "$context.error.message"
      functionError   = "$context.integrationErrorMessage"
    })
  }
}

resource "aws_cloudwatch_log_group" "api" {
  #checkov:skip=CKV_AWS_158:See the functions' log groups.
  #checkov:skip=CKV_AWS_338:See the functions' log groups.
  # Under this prefix the gateway needs no entry in the account's resource policy of CloudWatch Logs, which is limited to 5,120
  # characters: https://docs.aws.amazon.com/AmazonCloudWatch/latest/logs/AWS-logs-and-resource-policy.html
  name              = "/aws/vendedlogs/apigateway/${var.name}"
  retention_in_days = var.log_retention_in_days
  kms_key_id        = var.kms_key_arn
  tags              = local.tags
}
