# HTTP APIs buffer responses; a function URL streams them. With JWTs the function verifies tokens itself. The provider adds the
# two permissions that an open URL needs; with IAM the callers' own policies grant access.
resource "aws_lambda_function_url" "this" {
  for_each = { for name, function in local.function : name => function if length(function.url) > 0 }

  function_name      = aws_lambda_function.this[each.key].function_name
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
