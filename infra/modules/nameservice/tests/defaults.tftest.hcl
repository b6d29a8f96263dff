# The module with its defaults. Resources are mocked (mock_provider), so that computed values are known.

mock_provider "aws" {
  mock_data "aws_region" {
    defaults = { id = "eu-central-1" }
  }
}

variables {
  jwt_issuer   = "https://issuer.example/"
  jwt_audience = "nameservice"
  jwks         = "{\"keys\": [{\"kty\": \"RSA\", \"kid\": \"one\"}]}"
}

run "functions" {
  assert {
    condition     = alltrue([for name, function in aws_lambda_function.this : function.runtime == "provided.al2023" && function.architectures == tolist(["arm64"])])
    error_message = "A function is not built for arm64 on provided.al2023."
  }

  assert {
    condition     = alltrue([for name, function in aws_lambda_function.this : function.role == aws_iam_role.this[name].arn && aws_cloudwatch_log_group.function[name].retention_in_days == 90])
    error_message = "A function has no role or no log group of its own."
  }

  assert {
    condition     = alltrue([for function in aws_lambda_function.this : function.reserved_concurrent_executions == -1])
    error_message = "A new account has no concurrency to reserve."
  }

  assert {
    condition     = aws_lambda_function.this["change_stream"].timeout == 900 && alltrue([for name in ["change_list", "record_get", "record_list", "snapshot_get", "lease_acquire"] : aws_lambda_function.this[name].timeout == 29])
    error_message = "A stream of Fluree's route lasts as long as Lambda allows, and readers can wait for twenty seconds."
  }

  assert {
    condition     = alltrue([for name, role in aws_iam_role.this : role.name == "nameservice-${name}-eu-central-1"]) && aws_cloudwatch_dashboard.this[0].dashboard_name == "nameservice-eu-central-1"
    error_message = "Names that are those of an account lack the region."
  }

  # The longest names of a deployment, a function and a region of AWS.
  assert {
    condition     = 27 + 1 + max([for name, function in local.functions : length(name)]...) + 1 + length("us-isof-south-1") <= 64
    error_message = "The name of a role has at most 64 characters."
  }

  assert {
    condition     = length(aws_lambda_alias.live) == 0 && alltrue([for function in aws_lambda_function.this : !function.publish]) && alltrue([for permission in aws_lambda_permission.route : permission.qualifier == null])
    error_message = "By default there are no versions."
  }

  assert {
    condition     = toset([for name, function in aws_lambda_function.this : name if contains(keys(function.environment[0].variables), "NAMESERVICE_JWKS")]) == toset(["change_stream", "fluree"])
    error_message = "Only functions that verify tokens themselves get keys."
  }

  assert {
    condition     = toset([for name, function in aws_lambda_function.this : name if contains(keys(function.environment[0].variables), "NAMESERVICE_TOPIC_ARN")]) == toset(["stream_consumer", "topic_publisher"])
    error_message = "The publisher publishes, and for one release a stream consumer of the release before."
  }

  assert {
    condition     = aws_lambda_function.this["stream_consumer"].environment[0].variables["NAMESERVICE_DEAD_LETTER_QUEUE_URL"] == aws_sqs_queue.dead_letters.id && aws_lambda_function.this["stream_consumer"].environment[0].variables["NAMESERVICE_FEED_TABLE"] == "fluree-nameservice-feed"
    error_message = "The consumer needs its queue and the feed's table."
  }
}

run "the_topic_follows_the_feed" {
  assert {
    condition     = aws_dynamodb_table.feed.stream_enabled && aws_dynamodb_table.feed.stream_view_type == "KEYS_ONLY" && aws_lambda_event_source_mapping.topic[0].event_source_arn == aws_dynamodb_table.feed.stream_arn
    error_message = "The stream of the feed's table invokes the publisher."
  }

  assert {
    condition     = aws_lambda_event_source_mapping.topic[0].function_name == aws_lambda_function.this["topic_publisher"].arn && aws_lambda_event_source_mapping.topic[0].maximum_retry_attempts == -1 && aws_lambda_event_source_mapping.topic[0].maximum_record_age_in_seconds == -1 && aws_lambda_event_source_mapping.topic[0].parallelization_factor == 1
    error_message = "What failed is repeated, and nothing is published twice at the same time."
  }

  assert {
    condition     = aws_cloudwatch_event_target.topic[0].arn == aws_lambda_function.this["topic_publisher"].arn && aws_lambda_permission.topic[0].source_arn == aws_cloudwatch_event_rule.topic[0].arn
    error_message = "A schedule invokes the publisher for what no longer has an event."
  }

  assert {
    condition     = [for filter in aws_lambda_event_source_mapping.topic[0].filter_criteria[0].filter : jsondecode(filter.pattern)] == [{ eventName = ["INSERT"], dynamodb = { Keys = { id = { S = ["feed#0"] } } } }]
    error_message = "Only segments that were appended invoke the publisher."
  }

  assert {
    condition     = aws_lambda_function.this["topic_publisher"].environment[0].variables["NAMESERVICE_DEAD_LETTER_QUEUE_URL"] == aws_sqs_queue.dead_letters.id && aws_lambda_function.this["topic_publisher"].environment[0].variables["NAMESERVICE_FEED_TABLE"] == "fluree-nameservice-feed"
    error_message = "The publisher needs its queue and the feed's table."
  }
}

run "permissions" {
  # A policy allows, written as "action on resource", exactly the entry in the list and the function's own log.
  assert {
    condition = alltrue([
      for name, policy in aws_iam_role_policy.this :
      toset(flatten([for statement in jsondecode(policy.policy).Statement : [for action in flatten([statement.Action]) : "${action} on ${statement.Resource}"]])) ==
      toset(concat(
        [for action in ["logs:CreateLogStream", "logs:PutLogEvents"] : "${action} on ${aws_cloudwatch_log_group.function[name].arn}:*"],
        flatten([for resource, actions in local.function[name].actions : [for action in actions : "${action} on ${local.resources[resource]}"] if local.allowed[resource]]),
      ))
    ])
    error_message = "A role allows something else than local.functions lists."
  }

  assert {
    condition = alltrue(flatten([
      for name, policy in aws_iam_role_policy.this : [
        for statement in jsondecode(policy.policy).Statement : statement.Effect == "Allow" && (
          statement.Resource == "${aws_cloudwatch_log_group.function[name].arn}:*" ||
          contains(values(local.resources), statement.Resource)
        )
      ]
    ]))
    error_message = "A role reaches beyond its own log group and the resources of this deployment."
  }

  assert {
    condition     = alltrue(flatten([for policy in aws_iam_role_policy.this : [for statement in jsondecode(policy.policy).Statement : [for action in flatten([statement.Action]) : !strcontains(action, "*")]]]))
    error_message = "A wildcard is not least privilege."
  }

  assert {
    condition = alltrue(flatten([
      for name, function in local.function : [
        for action in flatten(values(function.actions)) : !can(regex("Put|Update|Delete|Write|Publish|Send|Create", action))
      ] if function.scope == "read" || contains(["health_get", "change_stream"], name)
    ]))
    error_message = "A function that only reads may write."
  }

  assert {
    condition     = keys(local.function["not_found"].actions) == [] && keys(local.function["openapi_get"].actions) == [] && keys(local.function["console_get"].actions) == []
    error_message = "A function that needs no table may use one."
  }
}

run "routes" {
  assert {
    condition = toset([for route, it in aws_apigatewayv2_route.this : route if it.authorization_type == "NONE"]) == toset([
      "$default", "GET /console", "GET /console/{file+}", "GET /v1/docs", "GET /v1/docs/{file+}", "GET /v1/health", "GET /v1/openapi.json",
      "GET /.well-known/fluree.json",
      "GET /fluree/nameservice/snapshot", "GET /fluree/storage/ns/{address+}", "POST /fluree/nameservice/refs/{address+}",
      "GET /v1/fluree/nameservice/snapshot", "GET /v1/fluree/storage/ns/{address+}", "POST /v1/fluree/nameservice/refs/{address+}",
    ])
    error_message = "Exactly these routes are open at the gateway."
  }

  assert {
    condition     = alltrue([for it in aws_apigatewayv2_route.this : it.authorizer_id == aws_apigatewayv2_authorizer.jwt[0].id && contains(it.authorization_scopes, "nameservice:admin") if it.authorization_type != "NONE"])
    error_message = "A guarded route lacks the authorizer, or rejects administrators."
  }

  assert {
    condition = (
      aws_apigatewayv2_route.this["GET /v1/records/{address+}"].authorization_scopes == toset(["nameservice:read", "nameservice:write", "nameservice:admin"]) &&
      aws_apigatewayv2_route.this["PUT /v1/heads/{address+}"].authorization_scopes == toset(["nameservice:write", "nameservice:admin"]) &&
      aws_apigatewayv2_route.this["DELETE /v1/records/{address+}"].authorization_scopes == toset(["nameservice:admin"])
    )
    error_message = "Each scope includes those before it."
  }

  assert {
    condition     = length(aws_lambda_permission.route) == length(aws_apigatewayv2_route.this) && aws_lambda_permission.route["PUT /v1/heads/{address+}"].source_arn == "${aws_apigatewayv2_api.this.execution_arn}/*/PUT/v1/heads/*" && aws_lambda_permission.route["$default"].source_arn == "${aws_apigatewayv2_api.this.execution_arn}/*/$default"
    error_message = "The gateway may invoke a function for its own routes only."
  }

  assert {
    condition     = alltrue([for it in aws_apigatewayv2_integration.this : it.payload_format_version == "2.0"])
    error_message = "The functions require payload format 2.0."
  }

  assert {
    condition     = aws_apigatewayv2_stage.this.default_route_settings[0].throttling_rate_limit == 1000 && strcontains(aws_apigatewayv2_stage.this.access_log_settings[0].format, "$context.routeKey") && length(aws_apigatewayv2_api.this.cors_configuration) == 0
    error_message = "The API is throttled and logged, and no web page may call it."
  }

  assert {
    condition     = keys(aws_lambda_function_url.this) == ["change_stream"] && aws_lambda_function_url.this["change_stream"].invoke_mode == "RESPONSE_STREAM"
    error_message = "Events are streamed at a function URL."
  }

  assert {
    condition = toset([for permission in aws_lambda_permission.url : jsonencode([permission.statement_id, permission.action, permission.principal, permission.function_url_auth_type, permission.invoked_via_function_url])]) == toset([
      jsonencode(["nameservice-change_stream-url", "lambda:InvokeFunctionUrl", "*", "NONE", null]),
      jsonencode(["nameservice-change_stream-function", "lambda:InvokeFunction", "*", null, true]),
    ])
    error_message = "Everyone may connect to the URL, and to nothing else."
  }

  assert {
    condition     = !aws_apigatewayv2_stage.this.default_route_settings[0].detailed_metrics_enabled && aws_cloudwatch_log_group.api.name == "/aws/vendedlogs/apigateway/nameservice"
    error_message = "Metrics of each route are paid for, and a log group with another prefix needs an entry in a policy of the account."
  }
}

run "change_feed" {
  assert {
    condition     = aws_lambda_event_source_mapping.changes.maximum_retry_attempts == -1 && aws_lambda_event_source_mapping.changes.maximum_record_age_in_seconds == -1 && aws_lambda_event_source_mapping.changes.bisect_batch_on_function_error && aws_lambda_event_source_mapping.changes.function_response_types == toset(["ReportBatchItemFailures"]) && aws_lambda_event_source_mapping.changes.starting_position == "TRIM_HORIZON"
    error_message = "The mapping must never drop a change."
  }

  assert {
    condition     = [for filter in aws_lambda_event_source_mapping.changes.filter_criteria[0].filter : jsondecode(filter.pattern)] == [{ dynamodb = { Keys = { sk = { S = ["meta", "head", "index", "status", "config"] } } } }]
    error_message = "The mapping delivers exactly the items that can be changes."
  }

  assert {
    condition     = aws_sqs_queue.dead_letters.message_retention_seconds == 14 * 24 * 3600
    error_message = "Dead letters are kept as long as SQS can."
  }
}

run "alarms" {
  assert {
    condition     = length(setsubtract(["table-conflicts", "feed-conflicts", "iterator-age", "feed-lag", "dead-letters", "undelivered", "undelivered-filters", "topic-iterator-age", "topic-lag", "topic_publisher-errors", "consumer-errors", "consumer-failures", "consumer-dead-letters", "outcomes-unknown", "lease-losses", "head_push-p99"], keys(aws_cloudwatch_metric_alarm.metric))) == 0 && toset(keys(aws_cloudwatch_metric_alarm.operations)) == toset(["table-throttled", "table-system-errors", "feed-throttled", "feed-system-errors"]) && toset(keys(aws_cloudwatch_metric_alarm.latency)) == toset(["table", "feed"])
    error_message = "An alarm is missing."
  }

  # The hourly invocation of a topic that is stuck fails once and twice more.
  assert {
    condition     = aws_cloudwatch_metric_alarm.metric["topic_publisher-errors"].period == 3600 && aws_cloudwatch_metric_alarm.metric["topic_publisher-errors"].threshold == 2 && aws_cloudwatch_metric_alarm.metric["topic_publisher-errors"].evaluation_periods == 1
    error_message = "A topic that stays stuck raises the alarm each hour, and one failed invocation does not."
  }

  assert {
    condition     = alltrue([for alarm in merge(aws_cloudwatch_metric_alarm.operations, aws_cloudwatch_metric_alarm.latency, aws_cloudwatch_metric_alarm.compared) : length(alarm.metric_query) <= 10])
    error_message = "CloudWatch allows ten metrics in an alarm, including the sum."
  }

  # A reader that waited in vain is no error of the server, and an idle deployment has no alarm.
  assert {
    condition = {
      for name, alarm in aws_cloudwatch_metric_alarm.compared : name =>
      concat([for query in alarm.metric_query : query.expression if query.return_data == true], sort(flatten([for query in alarm.metric_query : query.metric[*].metric_name])))
      } == {
      server-errors = ["FILL(errors, 0) - FILL(waited, 0)", "5xx", "nameservice_requests_total"]
      consumer-idle = ["IF(FILL(updated, 0) > 0 AND FILL(invocations, 0) == 0, 1, 0)", "Invocations", "nameservice_requests_total"]
    }
    error_message = "The alarms that compare metrics compare others."
  }

  assert {
    condition     = alltrue([for alarm in aws_cloudwatch_metric_alarm.metric : alarm.evaluate_low_sample_count_percentiles == "ignore" && alarm.evaluation_periods == 3 if alarm.extended_statistic == "p99"])
    error_message = "One cold start among a few requests raises an alarm."
  }

  assert {
    condition     = output.alarm_names == sort([for name in keys(merge(aws_cloudwatch_metric_alarm.metric, aws_cloudwatch_metric_alarm.compared, aws_cloudwatch_metric_alarm.operations, { for name, alarm in aws_cloudwatch_metric_alarm.latency : "${name}-latency" => alarm })) : "nameservice-${name}"])
    error_message = "An alarm is not listed."
  }

  assert {
    condition     = length(aws_cloudwatch_metric_alarm.metric) + sum([for alarm in merge(aws_cloudwatch_metric_alarm.operations, aws_cloudwatch_metric_alarm.latency, aws_cloudwatch_metric_alarm.compared) : length(alarm.metric_query) - 1]) <= 100
    error_message = "docs/costs.md counts alarms on 100 metrics at most: .ci/generate.py has the number."
  }

  assert {
    condition     = alltrue([for name in ["change_list", "change_stream", "stream_consumer"] : !contains(keys(local.prompt), name)])
    error_message = "Functions that wait have no duration alarm."
  }

  assert {
    condition     = length(jsondecode(aws_cloudwatch_dashboard.this[0].dashboard_body).widgets) == length(local.widgets)
    error_message = "The dashboard is not a JSON document of its widgets."
  }
}
