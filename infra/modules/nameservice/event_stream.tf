# HTTP APIs buffer responses; a function URL streams them. With JWTs the function verifies tokens itself; with IAM the callers' own
# policies grant access.
resource "aws_lambda_function_url" "this" {
  for_each = { for name, function in local.function : name => function if length(function.url) > 0 }

  function_name      = aws_lambda_function.this[each.key].function_name
  qualifier          = local.invoked[each.key].qualifier
  authorization_type = local.by_token ? "NONE" : "AWS_IAM"
  invoke_mode        = "RESPONSE_STREAM"

  dynamic "cors" {
    for_each = length(var.cors_allow_origins) > 0 ? [local.cors] : []

    content {
      allow_origins  = cors.value.allow_origins
      allow_methods  = ["GET"]
      allow_headers  = cors.value.allow_headers
      expose_headers = cors.value.expose_headers
      max_age        = cors.value.max_age
    }
  }
}

# The two permissions that a URL needs to which everyone may connect. The provider adds them when it creates a URL, and never again:
# these are in the state, and are created again if they are lost.
# https://docs.aws.amazon.com/lambda/latest/dg/urls-auth.html
locals {
  url_permissions = merge([
    for name, function in local.function : {
      "${name}-url"      = { function = name, action = "lambda:InvokeFunctionUrl", auth_type = "NONE", via_url = null }
      "${name}-function" = { function = name, action = "lambda:InvokeFunction", auth_type = null, via_url = true }
    } if length(function.url) > 0 && local.by_token
  ]...)
}

resource "aws_lambda_permission" "url" {
  #checkov:skip=CKV_AWS_301:Everyone may connect: the function verifies tokens itself. With authorization = "AWS_IAM" there are none.
  for_each = local.url_permissions

  statement_id             = "nameservice-${each.key}"
  function_name            = aws_lambda_function.this[each.value.function].function_name
  qualifier                = local.invoked[each.value.function].qualifier
  action                   = each.value.action
  principal                = "*"
  function_url_auth_type   = each.value.auth_type
  invoked_via_function_url = each.value.via_url
}
