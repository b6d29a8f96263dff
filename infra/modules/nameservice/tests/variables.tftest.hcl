# What the variables change, and which values they reject.

mock_provider "aws" {
  mock_data "aws_region" {
    defaults = { id = "eu-central-1" }
  }

  mock_data "aws_partition" {
    defaults = { partition = "aws" }
  }
}

variables {
  jwt_issuer   = "https://issuer.example/"
  jwt_audience = "nameservice"
  jwks         = "{\"keys\": [{\"kty\": \"RSA\", \"kid\": \"one\"}]}"
}

run "signed_requests" {
  variables {
    authorization = "AWS_IAM"
    jwt_issuer    = null
    jwt_audience  = null
    jwks          = null
  }

  assert {
    condition     = length(aws_apigatewayv2_authorizer.jwt) == 0 && toset([for route, it in aws_apigatewayv2_route.this : route if it.authorization_type != "AWS_IAM"]) == toset(["$default", "GET /.well-known/fluree.json", "GET /console", "GET /console/{file+}", "GET /v1/docs", "GET /v1/docs/{file+}", "GET /v1/health", "GET /v1/openapi.json"])
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
    long_poll_concurrency = 100
    cors_allow_origins    = ["https://console.example"]
    alarm_actions         = ["arn:aws:sns:eu-central-1:123456789012:operators"]
    alarm_thresholds      = { function_p99_ms = 250 }
  }

  assert {
    condition     = aws_dynamodb_table.this[0].name == "staging-ns" && aws_dynamodb_table.feed.name == "staging-ns-feed" && !aws_dynamodb_table.this[0].deletion_protection_enabled && !aws_dynamodb_table.feed.deletion_protection_enabled
    error_message = "Both tables follow the variables."
  }

  assert {
    condition     = alltrue([for name, function in aws_lambda_function.this : function.function_name == "staging-${name}" && function.architectures == tolist(["x86_64"]) && function.environment[0].variables["NAMESERVICE_TABLE"] == "staging-ns"])
    error_message = "All functions follow the variables."
  }

  assert {
    condition     = aws_lambda_function.this["change_list"].reserved_concurrent_executions == 100
    error_message = "Long polls have what is reserved for them."
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

run "users_who_sign_in" {
  variables {
    console_sign_in = { client_id = "console", token_origin = "https://login.example:8443" }
  }

  assert {
    condition = jsondecode(aws_lambda_function.this["console_get"].environment[0].variables["NAMESERVICE_CONSOLE_SIGN_IN"]) == {
      issuer       = "https://issuer.example/"
      client_id    = "console"
      scope        = "openid nameservice:read nameservice:write"
      token_origin = "https://login.example:8443"
    }
    error_message = "The console signs in at the issuer of the tokens, as this client."
  }

  assert {
    condition     = !contains(keys(aws_lambda_function.this["head_push"].environment[0].variables), "NAMESERVICE_CONSOLE_SIGN_IN")
    error_message = "Only the console needs it."
  }
}

run "users_who_sign_in_without_tokens" {
  command = plan
  variables {
    authorization   = "AWS_IAM"
    jwt_issuer      = null
    jwt_audience    = null
    jwks            = null
    console_sign_in = { client_id = "console" }
  }
  expect_failures = [var.console_sign_in]
}

run "a_token_endpoint_with_a_path" {
  command = plan
  variables {
    console_sign_in = { client_id = "console", token_origin = "https://login.example/token" }
  }
  expect_failures = [var.console_sign_in]
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

run "a_key_that_the_gateway_does_not_know" {
  command = plan
  variables { jwks = "{\"keys\": [{\"kty\": \"RSA\", \"kid\": \"one\"}, {\"kty\": \"EC\", \"crv\": \"P-256\", \"kid\": \"two\"}]}" }
  expect_failures = [var.jwks]
}

run "a_key_that_the_gateway_cannot_find" {
  command = plan
  variables { jwks = "{\"keys\": [{\"kty\": \"RSA\"}]}" }
  expect_failures = [var.jwks]
}

run "a_key_that_the_functions_do_not_know" {
  command = plan
  variables { jwks = "{\"keys\": [{\"kty\": \"RSA\", \"kid\": \"one\", \"alg\": \"RS384\"}]}" }
  expect_failures = [var.jwks]
}

# Keys for encryption sign no tokens.
run "a_key_for_something_else" {
  command = plan
  variables { jwks = "{\"keys\": [{\"kty\": \"RSA\", \"kid\": \"one\"}, {\"kty\": \"RSA\", \"use\": \"enc\", \"alg\": \"RSA-OAEP\"}]}" }

  assert {
    condition     = aws_lambda_function.this["fluree"].environment[0].variables["NAMESERVICE_JWKS"] == var.jwks && !contains(keys(aws_lambda_function.this["fluree"].environment[0].variables), "NAMESERVICE_JWKS_URL")
    error_message = "The functions have the keys, and fetch none."
  }
}

run "keys_that_functions_fetch" {
  command = plan
  variables {
    jwks     = null
    jwks_url = "https://issuer.example/keys"
  }

  assert {
    condition = {
      for name, function in aws_lambda_function.this : name => function.environment[0].variables["NAMESERVICE_JWKS_URL"] if contains(keys(function.environment[0].variables), "NAMESERVICE_JWKS_URL")
    } == { change_stream = var.jwks_url, fluree = var.jwks_url }
    error_message = "The functions that verify tokens fetch the keys, and no others."
  }
}

run "no_keys" {
  command = plan
  variables { jwks = null }
  expect_failures = [var.jwks]
}

run "keys_without_tls" {
  command = plan
  variables { jwks_url = "http://issuer.example/keys" }
  expect_failures = [var.jwks_url]
}

run "a_key_set_that_does_not_fit" {
  command = plan
  variables { jwks = "{\"keys\": [{\"kty\": \"RSA\", \"kid\": \"one\", \"x\": \"${join("", [for n in range(400) : "xxxxxxxx"])}\"}]}" }
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

run "a_table_without_a_stream" {
  command = plan
  variables {
    existing_table = { name = "t", arn = "arn:aws:dynamodb:eu-central-1:123456789012:table/t", stream_arn = "" }
  }
  expect_failures = [var.existing_table]
}

run "a_minimum_above_its_maximum" {
  command = plan
  variables {
    provisioned_capacity = {
      table = { read_min = 10, read_max = 5, write_min = 1, write_max = 1 }
      feed  = { read_min = 1, read_max = 1, write_min = 1, write_max = 1 }
    }
  }
  expect_failures = [var.provisioned_capacity]
}

run "a_target_that_autoscaling_does_not_have" {
  command = plan
  variables {
    provisioned_capacity = {
      table              = { read_min = 1, read_max = 1, write_min = 1, write_max = 1 }
      feed               = { read_min = 1, read_max = 1, write_min = 1, write_max = 1 }
      target_utilization = 95
    }
  }
  expect_failures = [var.provisioned_capacity]
}

run "an_alias_of_a_key" {
  command = plan
  variables { kms_key_arn = "arn:aws:kms:eu-central-1:123456789012:alias/nameservice" }
  expect_failures = [var.kms_key_arn]
}

run "a_vpc_without_subnets" {
  command = plan
  variables {
    vpc = { subnet_ids = [], security_group_ids = ["sg-1"] }
  }
  expect_failures = [var.vpc]
}

run "a_domain_with_a_scheme" {
  command = plan
  variables {
    domain = { name = "https://names.example.com", certificate_arn = "arn:aws:acm:eu-central-1:123456789012:certificate/1" }
  }
  expect_failures = [var.domain]
}

run "a_base_path_that_looks_like_a_route" {
  command = plan
  variables {
    domain = { name = "names.example.com", certificate_arn = "arn:aws:acm:eu-central-1:123456789012:certificate/1", base_path = "v1" }
  }
  expect_failures = [var.domain]
}

run "a_prefix_with_a_slash_at_its_end" {
  command = plan
  variables {
    artifacts        = "nameservice/1.4.0/"
    artifacts_bucket = "releases"
  }
  expect_failures = [var.artifacts]
}

run "read_model" {
  variables {
    read_model = true
  }

  assert {
    condition     = aws_lambda_function.this["view_projector"].environment[0].variables["NAMESERVICE_VIEW_TABLE"] == "fluree-nameservice-views" && module.views[0].name == "fluree-nameservice-views"
    error_message = "The projector writes the table of the read model."
  }

  assert {
    condition     = aws_sns_topic_subscription.doorbell[0].endpoint == aws_sqs_queue.doorbell[0].arn && aws_lambda_event_source_mapping.doorbell[0].event_source_arn == aws_sqs_queue.doorbell[0].arn
    error_message = "The topic rings the queue, and the queue the projector."
  }

  assert {
    condition     = aws_sqs_queue.doorbell[0].visibility_timeout_seconds >= 6 * aws_lambda_function.this["view_projector"].timeout
    error_message = "A message comes back before its invocation has ended."
  }
}

run "search" {
  variables {
    search = { url = "https://search-names.eu-central-1.es.amazonaws.com", domain_arn = "arn:aws:es:eu-central-1:123456789012:domain/names" }
  }

  assert {
    condition     = aws_lambda_function.this["health_get"].environment[0].variables["NAMESERVICE_SEARCH_URL"] == var.search.url && alltrue([for name in ["search_get", "search_sink"] : aws_lambda_function.this[name].environment[0].variables["NAMESERVICE_SEARCH_URL"] == "https://search-names.eu-central-1.es.amazonaws.com" && strcontains(aws_iam_role_policy.this[name].policy, "arn:aws:es:eu-central-1:123456789012:domain/names/nameservice/*")])
    error_message = "The sink writes the index that the search reads, and both may use no other."
  }

  assert {
    condition     = aws_sns_topic_subscription.search[0].endpoint == aws_sqs_queue.search[0].arn && aws_lambda_event_source_mapping.search[0].event_source_arn == aws_sqs_queue.search[0].arn && aws_lambda_event_source_mapping.search[0].function_response_types == toset(["ReportBatchItemFailures"])
    error_message = "The topic fills the queue, and the sink answers for each of its messages."
  }

  assert {
    condition     = jsondecode(aws_sqs_queue.search[0].redrive_policy).deadLetterTargetArn == aws_sqs_queue.search_dead_letters[0].arn && aws_lambda_function.this["search_sink"].environment[0].variables["NAMESERVICE_SEARCH_DEAD_LETTER_QUEUE_URL"] == aws_sqs_queue.search_dead_letters[0].id && aws_cloudwatch_metric_alarm.metric["search-dead-letters"].threshold == 0
    error_message = "What cannot be indexed is kept, and seen."
  }

  assert {
    condition     = aws_sqs_queue.search[0].visibility_timeout_seconds >= 6 * aws_lambda_function.this["search_sink"].timeout
    error_message = "A message comes back before its invocation has ended."
  }
}

run "no_search" {
  assert {
    condition     = length(aws_sqs_queue.search) == 0 && !contains(keys(aws_lambda_function.this), "search_sink") && alltrue([for function in values(aws_lambda_function.this) : !contains(keys(function.environment[0].variables), "NAMESERVICE_SEARCH_URL")]) && !strcontains(aws_iam_role_policy.this["search_get"].policy, "es:")
    error_message = "What is off costs something, or is allowed."
  }
}

run "a_search_with_a_path" {
  command = plan

  variables {
    search = { url = "https://search.example/names", domain_arn = "arn:aws:es:eu-central-1:123456789012:domain/names" }
  }
  expect_failures = [var.search]
}

run "archive" {
  variables {
    archive = { bucket = "my-archive", prefix = "nameservice/production" }
  }

  assert {
    condition     = aws_cloudwatch_event_target.archive[0].arn == aws_lambda_function.this["feed_archive"].arn && aws_cloudwatch_event_target.archive[0].rule == aws_cloudwatch_event_rule.archive[0].name && aws_cloudwatch_event_rule.archive[0].schedule_expression == "rate(1 hour)" && aws_lambda_permission.archive[0].source_arn == aws_cloudwatch_event_rule.archive[0].arn
    error_message = "The schedule invokes the archive, and may."
  }

  assert {
    condition     = aws_lambda_function.this["feed_archive"].environment[0].variables["NAMESERVICE_ARCHIVE_BUCKET"] == "my-archive" && aws_lambda_function.this["feed_archive"].environment[0].variables["NAMESERVICE_ARCHIVE_PREFIX"] == "nameservice/production"
    error_message = "The archive knows its bucket."
  }

  assert {
    condition     = toset([for name, function in aws_lambda_function.this : name if try(function.environment[0].variables["NAMESERVICE_ARCHIVE_BUCKET"], null) == "my-archive"]) == toset(["change_list", "change_stream", "feed_archive", "history_list"])
    error_message = "What reads the feed reads the archive, and nothing else does."
  }

  assert {
    condition     = alltrue([for name in ["change_list", "change_stream", "history_list"] : [for statement in jsondecode(aws_iam_role_policy.this[name].policy).Statement : statement if startswith(flatten([statement.Action])[0], "s3:")] == [{ Effect = "Allow", Action = ["s3:ListBucket"], Resource = "arn:aws:s3:::my-archive" }, { Effect = "Allow", Action = ["s3:GetObject"], Resource = "arn:aws:s3:::my-archive/nameservice/production/changes/*" }]])
    error_message = "A reader of the archive lists it and reads its objects, and no more."
  }

  assert {
    condition     = local.resources.archive_objects == "arn:aws:s3:::my-archive/nameservice/production/changes/*" && local.resources.archive == "arn:aws:s3:::my-archive"
    error_message = "The archive may write its own objects alone."
  }

  assert {
    condition     = aws_cloudwatch_metric_alarm.metric["feed_archive-errors"].dimensions.FunctionName == "nameservice-feed_archive"
    error_message = "An archive that fails is seen."
  }
}

run "archive_at_the_root_of_its_bucket" {
  variables {
    archive = { bucket = "my-archive" }
  }

  assert {
    condition     = local.resources.archive_objects == "arn:aws:s3:::my-archive/changes/*"
    error_message = "Without a prefix the objects are in changes/."
  }
}

run "a_namespace_that_no_channel_can_begin_with" {
  command = plan

  variables {
    event_channels = { namespace = "name_service" }
  }
  expect_failures = [var.event_channels]
}

run "a_graphql_api_by_its_id" {
  command = plan

  variables {
    graphql_api = { url = "https://api1.appsync-api.eu-central-1.amazonaws.com/graphql", arn = "api1" }
  }
  expect_failures = [var.graphql_api]
}

run "an_archive_with_a_slash_too_many" {
  command = plan

  variables {
    archive = { bucket = "my-archive", prefix = "nameservice/" }
  }
  expect_failures = [var.archive]
}

run "no_read_model" {
  assert {
    condition     = length(module.views) == 0 && length(aws_sqs_queue.doorbell) == 0 && !contains(keys(aws_lambda_function.this), "view_projector") && length(aws_cloudwatch_event_rule.archive) == 0 && !contains(keys(aws_lambda_function.this), "feed_archive")
    error_message = "What is off costs something."
  }

  assert {
    condition     = alltrue([for name in ["change_list", "change_stream", "history_list"] : !strcontains(aws_iam_role_policy.this[name].policy, "s3:") && !contains(keys(aws_lambda_function.this[name].environment[0].variables), "NAMESERVICE_ARCHIVE_BUCKET")])
    error_message = "Without an archive nobody reads a bucket."
  }
}
