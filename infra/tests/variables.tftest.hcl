# What the variables change, and which values they reject.

mock_provider "aws" {}

variables {
  region       = "eu-central-1"
  jwt_issuer   = "https://issuer.example/"
  jwt_audience = "nameservice"
  jwks         = "{\"keys\": [{\"kty\": \"OKP\"}]}"
}

run "signed_requests" {
  variables {
    authorization = "AWS_IAM"
    jwt_issuer    = null
    jwt_audience  = null
    jwks          = null
  }

  assert {
    condition     = length(aws_apigatewayv2_authorizer.jwt) == 0 && toset([for route, it in aws_apigatewayv2_route.this : route if it.authorization_type != "AWS_IAM"]) == toset(["$default", "GET /console", "GET /console/{file+}", "GET /v1/docs", "GET /v1/health", "GET /v1/openapi.json"])
    error_message = "With IAM every route but the open ones requires signed requests."
  }

  assert {
    condition     = aws_lambda_function_url.this["change_stream"].authorization_type == "AWS_IAM" && alltrue([for function in aws_lambda_function.this : !contains(keys(function.environment[0].variables), "NAMESERVICE_JWKS")])
    error_message = "With IAM no function verifies tokens."
  }
}

run "another_deployment" {
  variables {
    name                  = "staging"
    table_name            = "staging-ns"
    architecture          = "x86_64"
    deletion_protection   = false
    long_poll_concurrency = -1
    cors_allow_origins    = ["https://console.example"]
    alarm_actions         = ["arn:aws:sns:eu-central-1:123456789012:operators"]
    alarm_thresholds      = { function_p99_ms = 250 }
  }

  assert {
    condition     = aws_dynamodb_table.this.name == "staging-ns" && aws_dynamodb_table.feed.name == "staging-ns-feed" && !aws_dynamodb_table.this.deletion_protection_enabled && !aws_dynamodb_table.feed.deletion_protection_enabled
    error_message = "Both tables follow the variables."
  }

  assert {
    condition     = alltrue([for name, function in aws_lambda_function.this : function.function_name == "staging-${name}" && function.architectures == tolist(["x86_64"]) && function.environment[0].variables["NAMESERVICE_TABLE"] == "staging-ns"])
    error_message = "All functions follow the variables."
  }

  assert {
    condition     = aws_lambda_function.this["change_list"].reserved_concurrent_executions == -1
    error_message = "-1 reserves nothing."
  }

  assert {
    condition     = aws_apigatewayv2_api.this.cors_configuration[0].allow_origins == toset(["https://console.example"]) && aws_lambda_function_url.this["change_stream"].cors[0].allow_origins == toset(["https://console.example"])
    error_message = "API and events are open to the page."
  }

  assert {
    condition     = aws_cloudwatch_metric_alarm.metric["head_push-p99"].threshold == 250 && aws_cloudwatch_metric_alarm.metric["iterator-age"].threshold == 60000 && alltrue([for alarm in merge(aws_cloudwatch_metric_alarm.metric, aws_cloudwatch_metric_alarm.operations, aws_cloudwatch_metric_alarm.latency) : length(alarm.alarm_actions) == 1])
    error_message = "A given threshold replaces the default, and every alarm has the action."
  }
}

run "no_region" {
  command = plan
  variables { region = "Frankfurt" }
  expect_failures = [var.region]
}

run "a_name_too_long_for_roles" {
  command = plan
  variables { name = "nameservice-of-the-department-of-names" }
  expect_failures = [var.name]
}

run "tokens_without_an_issuer" {
  command = plan
  variables { jwt_issuer = null }
  expect_failures = [var.jwt_issuer]
}

run "an_issuer_that_is_not_https" {
  command = plan
  variables { jwt_issuer = "http://issuer.example" }
  expect_failures = [var.jwt_issuer]
}

run "tokens_for_nobody" {
  command = plan
  variables { jwt_audience = "" }
  expect_failures = [var.jwt_audience]
}

run "an_empty_key_set" {
  command = plan
  variables { jwks = "{\"keys\": []}" }
  expect_failures = [var.jwks]
}

run "a_key_set_that_does_not_fit" {
  command = plan
  variables { jwks = "{\"keys\": [{\"x\": \"${join("", [for n in range(400) : "xxxxxxxx"])}\"}]}" }
  expect_failures = [var.jwks]
}

run "a_retention_that_cloudwatch_does_not_have" {
  command = plan
  variables { log_retention_in_days = 42 }
  expect_failures = [var.log_retention_in_days]
}

run "an_origin_with_a_path" {
  command = plan
  variables { cors_allow_origins = ["https://console.example/app"] }
  expect_failures = [var.cors_allow_origins]
}

run "no_concurrency_at_all" {
  command = plan
  variables { long_poll_concurrency = 0 }
  expect_failures = [var.long_poll_concurrency]
}
