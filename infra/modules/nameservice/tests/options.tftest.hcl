# The options, each by itself and from nothing (state_key): what it adds, and that nothing else needs it.

mock_provider "aws" {
  mock_data "aws_region" {
    defaults = { id = "eu-central-1" }
  }

  # The names that a domain gets are lists in the provider's schema.
  mock_resource "aws_apigatewayv2_domain_name" {
    defaults = { id = "names.example.com" }
  }
}

variables {
  authorization = "AWS_IAM"
}

run "no_option" {
  state_key = "no_option"

  assert {
    condition     = length(aws_appautoscaling_target.this) + length(aws_vpc_endpoint.dynamodb) + length(aws_vpc_endpoint.messages) + length(aws_apigatewayv2_domain_name.this) + length(aws_apigatewayv2_api_mapping.this) + length(aws_route53_record.this) == 0
    error_message = "By default nothing is made that an option adds."
  }

  assert {
    condition     = length(aws_appsync_api.events) + length(aws_appsync_channel_namespace.records) == 0 && output.event_hosts == null && output.event_subscriber_policy == null && !strcontains(join("", [for policy in aws_iam_role_policy.this : policy.policy]), "appsync")
    error_message = "By default nothing rings, and nothing is published to subscriptions."
  }

  assert {
    condition     = alltrue([for table in [aws_dynamodb_table.this[0], aws_dynamodb_table.feed] : table.billing_mode == "PAY_PER_REQUEST"])
    error_message = "By default the tables are on demand."
  }

  assert {
    condition     = alltrue([for function in aws_lambda_function.this : length(function.vpc_config) == 0 && length(function.tracing_config) == 0 && function.s3_bucket == null])
    error_message = "By default the functions are in no VPC, send no traces and come from files."
  }

  assert {
    condition     = !strcontains(join("", [for policy in aws_iam_role_policy.this : policy.policy]), "kms:") && !strcontains(join("", [for policy in aws_iam_role_policy.this : policy.policy]), "xray:") && !strcontains(join("", [for policy in aws_iam_role_policy.this : policy.policy]), "ec2:")
    error_message = "By default no role has the permissions that an option needs."
  }

  assert {
    condition     = aws_sqs_queue.dead_letters.sqs_managed_sse_enabled && aws_sns_topic.changes[0].kms_master_key_id == "alias/aws/sns"
    error_message = "Queue and topic are encrypted by default."
  }
}

run "a_doorbell" {
  state_key = "a_doorbell"

  variables {
    event_channels = {}
  }

  override_resource {
    target = aws_appsync_api.events
    values = {
      api_id  = "events1"
      api_arn = "arn:aws:appsync:eu-central-1:123456789012:apis/events1"
      dns     = { HTTP = "events1.appsync-api.eu-central-1.amazonaws.com", REALTIME = "events1.appsync-realtime-api.eu-central-1.amazonaws.com" }
    }
  }

  override_resource {
    target = aws_appsync_channel_namespace.records
    values = { channel_namespace_arn = "arn:aws:appsync:eu-central-1:123456789012:apis/events1/channelNamespace/nameservice" }
  }

  assert {
    condition     = aws_appsync_channel_namespace.records[0].name == "nameservice" && aws_appsync_channel_namespace.records[0].api_id == "events1"
    error_message = "The namespace is one of the API."
  }

  assert {
    condition = alltrue([
      for mode in flatten([
        for config in aws_appsync_api.events[0].event_config :
        [config.auth_provider[*].auth_type, config.connection_auth_mode[*].auth_type, config.default_publish_auth_mode[*].auth_type, config.default_subscribe_auth_mode[*].auth_type]
      ]) : mode == "AWS_IAM"
    ]) && length(aws_appsync_api.events[0].event_config[0].default_subscribe_auth_mode) == 1
    error_message = "Somebody may call the API without a signature."
  }

  assert {
    condition = {
      for name, function in aws_lambda_function.this : name => [function.environment[0].variables["NAMESERVICE_DOORBELL_URL"], function.environment[0].variables["NAMESERVICE_DOORBELL_NAMESPACE"]]
      if contains(keys(function.environment[0].variables), "NAMESERVICE_DOORBELL_URL")
    } == { stream_consumer = ["https://events1.appsync-api.eu-central-1.amazonaws.com/event", "nameservice"] }
    error_message = "The consumer rings, and nothing else."
  }

  assert {
    condition = flatten([
      for name, policy in aws_iam_role_policy.this : [
        for statement in jsondecode(policy.policy).Statement : [name, statement.Action, statement.Resource]
        if strcontains(jsonencode(statement), "appsync")
      ]
    ]) == ["stream_consumer", "appsync:EventPublish", "arn:aws:appsync:eu-central-1:123456789012:apis/events1/channelNamespace/nameservice"]
    error_message = "The consumer may publish to the namespace, and nobody may do anything else."
  }

  assert {
    condition = jsondecode(output.event_subscriber_policy).Statement == [
      { Effect = "Allow", Action = "appsync:EventConnect", Resource = "arn:aws:appsync:eu-central-1:123456789012:apis/events1" },
      { Effect = "Allow", Action = "appsync:EventSubscribe", Resource = "arn:aws:appsync:eu-central-1:123456789012:apis/events1/channelNamespace/nameservice" },
    ] && output.event_hosts["REALTIME"] == "events1.appsync-realtime-api.eu-central-1.amazonaws.com"
    error_message = "Subscribers may connect and subscribe, and not publish."
  }
}

run "subscriptions_of_graphql" {
  state_key = "subscriptions_of_graphql"

  variables {
    graphql_api = { url = "https://api1.appsync-api.eu-central-1.amazonaws.com/graphql", arn = "arn:aws:appsync:eu-central-1:123456789012:apis/api1" }
  }

  assert {
    condition = {
      for name, function in aws_lambda_function.this : name => function.environment[0].variables["NAMESERVICE_GRAPHQL_URL"]
      if contains(keys(function.environment[0].variables), "NAMESERVICE_GRAPHQL_URL")
    } == { stream_consumer = "https://api1.appsync-api.eu-central-1.amazonaws.com/graphql" }
    error_message = "The consumer publishes to the API, and nothing else does."
  }

  assert {
    condition = flatten([
      for name, policy in aws_iam_role_policy.this : [
        for statement in jsondecode(policy.policy).Statement : [name, statement.Action, statement.Resource]
        if strcontains(jsonencode(statement), "appsync")
      ]
    ]) == ["stream_consumer", "appsync:GraphQL", "arn:aws:appsync:eu-central-1:123456789012:apis/api1/types/Mutation/fields/publishChange"]
    error_message = "The consumer may call the one mutation, and nobody may do anything else."
  }

  assert {
    condition     = length(aws_appsync_api.events) == 0
    error_message = "Subscriptions need no doorbell."
  }
}

run "a_table_of_others" {
  state_key = "a_table_of_others"

  variables {
    existing_table = {
      name       = "fluree-production"
      arn        = "arn:aws:dynamodb:eu-central-1:123456789012:table/fluree-production"
      stream_arn = "arn:aws:dynamodb:eu-central-1:123456789012:table/fluree-production/stream/2026-01-01T00:00:00.000"
    }
  }

  assert {
    condition     = length(aws_dynamodb_table.this) == 0 && aws_dynamodb_table.feed.name == "fluree-production-feed"
    error_message = "The module makes the feed's table alone."
  }

  assert {
    condition     = alltrue([for function in aws_lambda_function.this : function.environment[0].variables["NAMESERVICE_TABLE"] == "fluree-production"]) && aws_lambda_event_source_mapping.changes.event_source_arn == var.existing_table.stream_arn
    error_message = "Functions and mapping use the table that exists."
  }

  assert {
    condition = alltrue(flatten([
      for policy in aws_iam_role_policy.this : [
        for statement in jsondecode(policy.policy).Statement : !strcontains(statement.Resource, ":table/") || startswith(statement.Resource, var.existing_table.arn)
      ]
    ]))
    error_message = "Roles reach the table that exists, and no other."
  }

  assert {
    condition     = output.table_name == "fluree-production" && output.table_arn == var.existing_table.arn
    error_message = "Outputs name the table that exists."
  }
}

run "provisioned_capacity" {
  state_key = "provisioned_capacity"

  variables {
    provisioned_capacity = {
      table = { read_min = 10, read_max = 200, write_min = 5, write_max = 100, index_write = 20 }
      feed  = { read_min = 4, read_max = 40, write_min = 6, write_max = 60 }
    }
  }

  assert {
    condition     = alltrue([for table in [aws_dynamodb_table.this[0], aws_dynamodb_table.feed] : table.billing_mode == "PROVISIONED"]) && aws_dynamodb_table.this[0].read_capacity == 10 && aws_dynamodb_table.this[0].write_capacity == 5 && aws_dynamodb_table.feed.write_capacity == 6
    error_message = "Tables start with their minimum."
  }

  assert {
    condition     = alltrue([for index in aws_dynamodb_table.this[0].global_secondary_index : index.read_capacity == 5 && index.write_capacity == 20]) && length(aws_dynamodb_table.feed.global_secondary_index) == 0
    error_message = "Indexes have what is given, or never throttle their table."
  }

  assert {
    condition = { for name, target in aws_appautoscaling_target.this : name => [target.resource_id, target.scalable_dimension, target.min_capacity, target.max_capacity] } == {
      feed-read   = ["table/fluree-nameservice-feed", "dynamodb:table:ReadCapacityUnits", 4, 40]
      feed-write  = ["table/fluree-nameservice-feed", "dynamodb:table:WriteCapacityUnits", 6, 60]
      table-read  = ["table/fluree-nameservice", "dynamodb:table:ReadCapacityUnits", 10, 200]
      table-write = ["table/fluree-nameservice", "dynamodb:table:WriteCapacityUnits", 5, 100]
    }
    error_message = "Both tables are scaled, reads and writes by themselves."
  }

  assert {
    condition     = alltrue([for name, policy in aws_appautoscaling_policy.this : policy.target_tracking_scaling_policy_configuration[0].target_value == 70 && policy.target_tracking_scaling_policy_configuration[0].predefined_metric_specification[0].predefined_metric_type == (endswith(name, "read") ? "DynamoDBReadCapacityUtilization" : "DynamoDBWriteCapacityUtilization")])
    error_message = "Autoscaling aims at 70 % of the capacity that it scales."
  }
}

run "provisioned_capacity_beside_a_table_of_others" {
  state_key = "provisioned_capacity_beside_a_table_of_others"

  variables {
    existing_table = {
      name       = "fluree-production"
      arn        = "arn:aws:dynamodb:eu-central-1:123456789012:table/fluree-production"
      stream_arn = "arn:aws:dynamodb:eu-central-1:123456789012:table/fluree-production/stream/2026-01-01T00:00:00.000"
    }
    provisioned_capacity = {
      table = { read_min = 10, read_max = 200, write_min = 5, write_max = 100 }
      feed  = { read_min = 4, read_max = 40, write_min = 6, write_max = 60 }
    }
  }

  assert {
    condition     = keys(aws_appautoscaling_target.this) == ["feed-read", "feed-write"]
    error_message = "A table of others is scaled by them."
  }
}

run "a_key_of_the_customer" {
  state_key = "a_key_of_the_customer"

  variables {
    kms_key_arn = "arn:aws:kms:eu-central-1:123456789012:key/00000000-0000-0000-0000-000000000000"
    read_model  = true
  }

  assert {
    condition     = aws_sqs_queue.doorbell[0].kms_master_key_id == var.kms_key_arn && strcontains(module.views[0].writer_policy, var.kms_key_arn)
    error_message = "The read model is encrypted with the key, too: its policy must admit SNS."
  }

  assert {
    condition     = alltrue([for table in [aws_dynamodb_table.this[0], aws_dynamodb_table.feed] : table.server_side_encryption[0].kms_key_arn == var.kms_key_arn]) && aws_sns_topic.changes[0].kms_master_key_id == var.kms_key_arn && aws_sqs_queue.dead_letters.kms_master_key_id == var.kms_key_arn && aws_cloudwatch_log_group.api.kms_key_id == var.kms_key_arn && alltrue([for group in aws_cloudwatch_log_group.function : group.kms_key_id == var.kms_key_arn])
    error_message = "Everything that is stored is encrypted with the key."
  }

  assert {
    condition = alltrue([
      for name, policy in aws_iam_role_policy.this :
      length([for statement in jsondecode(policy.policy).Statement : statement if statement.Resource == var.kms_key_arn]) == (length(setsubtract(keys(local.function[name].actions), ["search"])) == 0 ? 0 : 1)
    ])
    error_message = "Functions that use the tables may use the key, and no others."
  }

  assert {
    condition = alltrue(flatten([
      for policy in aws_iam_role_policy.this : [
        for statement in jsondecode(policy.policy).Statement :
        statement.Condition.StringEquals["kms:ViaService"] == ["dynamodb.eu-central-1.amazonaws.com", "sns.eu-central-1.amazonaws.com", "sqs.eu-central-1.amazonaws.com"] && alltrue([for action in statement.Action : !strcontains(action, "*")])
        if statement.Resource == var.kms_key_arn
      ]
    ]))
    error_message = "The key can be used through the services alone."
  }
}

run "traces" {
  state_key = "traces"

  variables {
    x_ray = true
  }

  assert {
    condition     = alltrue([for function in aws_lambda_function.this : function.tracing_config[0].mode == "Active"])
    error_message = "Every function is traced."
  }

  assert {
    condition     = alltrue([for policy in aws_iam_role_policy.this : strcontains(policy.policy, "xray:PutTraceSegments")])
    error_message = "Every role may send traces."
  }
}

run "a_vpc" {
  state_key = "a_vpc"

  variables {
    vpc = {
      subnet_ids         = ["subnet-1", "subnet-2"]
      security_group_ids = ["sg-functions"]
    }
  }

  assert {
    condition     = alltrue([for function in aws_lambda_function.this : function.vpc_config[0].subnet_ids == toset(["subnet-1", "subnet-2"]) && function.vpc_config[0].security_group_ids == toset(["sg-functions"])])
    error_message = "Every function is in the VPC."
  }

  assert {
    condition     = alltrue([for policy in aws_iam_role_policy.this : strcontains(policy.policy, "ec2:CreateNetworkInterface")])
    error_message = "Every role may join the VPC."
  }

  assert {
    condition     = length(aws_vpc_endpoint.dynamodb) + length(aws_vpc_endpoint.messages) == 0
    error_message = "Endpoints are made if they are asked for."
  }
}

run "a_vpc_with_endpoints" {
  state_key = "a_vpc_with_endpoints"

  variables {
    read_model = true
    vpc = {
      subnet_ids         = ["subnet-1"]
      security_group_ids = ["sg-functions"]
      endpoints = {
        vpc_id             = "vpc-1"
        route_table_ids    = ["rtb-1"]
        security_group_ids = ["sg-endpoints"]
      }
    }
  }

  assert {
    condition     = aws_vpc_endpoint.dynamodb[0].vpc_endpoint_type == "Gateway" && aws_vpc_endpoint.dynamodb[0].service_name == "com.amazonaws.eu-central-1.dynamodb" && aws_vpc_endpoint.dynamodb[0].route_table_ids == toset(["rtb-1"])
    error_message = "DynamoDB is reached through a gateway endpoint."
  }

  assert {
    condition     = toset(jsondecode(aws_vpc_endpoint.dynamodb[0].policy).Statement[0].Resource) == toset(flatten([for arn in [aws_dynamodb_table.this[0].arn, aws_dynamodb_table.feed.arn, module.views[0].arn] : [arn, "${arn}/*"]]))
    error_message = "The endpoint admits the tables of this deployment."
  }

  assert {
    condition = { for service, endpoint in aws_vpc_endpoint.messages : service => [endpoint.service_name, endpoint.vpc_endpoint_type, endpoint.private_dns_enabled] } == {
      sns = ["com.amazonaws.eu-central-1.sns", "Interface", true]
      sqs = ["com.amazonaws.eu-central-1.sqs", "Interface", true]
    } && alltrue([for endpoint in aws_vpc_endpoint.messages : endpoint.subnet_ids == toset(["subnet-1"]) && endpoint.security_group_ids == toset(["sg-endpoints"])])
    error_message = "The functions reach topic and queue through interface endpoints in its subnets."
  }
}

run "endpoints_that_others_use" {
  state_key = "endpoints_that_others_use"

  variables {
    vpc = {
      subnet_ids         = ["subnet-1"]
      security_group_ids = ["sg-functions"]
      endpoints = {
        vpc_id             = "vpc-1"
        route_table_ids    = ["rtb-1"]
        security_group_ids = ["sg-endpoints"]
        shared             = true
      }
    }
  }

  override_resource {
    target = aws_vpc_endpoint.dynamodb
    values = { policy = "the default" }
  }

  assert {
    condition     = aws_vpc_endpoint.dynamodb[0].policy == "the default"
    error_message = "A shared endpoint has the policy that AWS gives it."
  }
}

run "a_domain" {
  state_key = "a_domain"

  variables {
    domain = {
      name            = "names.example.com"
      certificate_arn = "arn:aws:acm:eu-central-1:123456789012:certificate/1"
      zone_id         = "Z1"
      base_path       = "production"
      only            = true
    }
  }

  assert {
    condition     = aws_apigatewayv2_domain_name.this[0].domain_name == "names.example.com" && aws_apigatewayv2_domain_name.this[0].domain_name_configuration[0].certificate_arn == var.domain.certificate_arn && aws_apigatewayv2_domain_name.this[0].domain_name_configuration[0].security_policy == "TLS_1_2"
    error_message = "The domain has its certificate."
  }

  assert {
    condition     = aws_apigatewayv2_api_mapping.this[0].api_mapping_key == "production" && aws_apigatewayv2_api_mapping.this[0].stage == aws_apigatewayv2_stage.this.id && aws_apigatewayv2_api.this.disable_execute_api_endpoint
    error_message = "The API is below its base path, and at no other address."
  }

  assert {
    condition     = aws_route53_record.this[0].name == "names.example.com" && aws_route53_record.this[0].zone_id == "Z1"
    error_message = "The name has a record."
  }

  assert {
    condition     = output.api_url == "https://names.example.com/production"
    error_message = "The API's URL is the domain's."
  }
}

run "a_domain_in_a_zone_of_others" {
  state_key = "a_domain_in_a_zone_of_others"

  variables {
    domain = {
      name            = "names.example.com"
      certificate_arn = "arn:aws:acm:eu-central-1:123456789012:certificate/1"
    }
  }

  assert {
    condition     = length(aws_route53_record.this) == 0 && output.domain_target.name == aws_apigatewayv2_domain_name.this[0].domain_name_configuration[0].target_domain_name && output.api_url == "https://names.example.com" && !aws_apigatewayv2_api.this.disable_execute_api_endpoint
    error_message = "The record is left to the owner of the zone, who gets its target."
  }
}

run "archives_in_a_bucket" {
  state_key = "archives_in_a_bucket"

  variables {
    artifacts        = "nameservice/1.4.0"
    artifacts_bucket = "releases"
  }

  assert {
    condition     = alltrue([for name, function in aws_lambda_function.this : function.s3_bucket == "releases" && function.s3_key == "nameservice/1.4.0/${name}/bootstrap.zip" && function.filename == null])
    error_message = "Functions come from the bucket; no file is read."
  }
}

run "tags" {
  state_key = "tags"

  variables {
    name = "staging"
    tags = { Owner = "platform" }
  }

  assert {
    condition = alltrue([
      for resource in [aws_dynamodb_table.this[0], aws_dynamodb_table.feed, aws_apigatewayv2_api.this, aws_apigatewayv2_stage.this, aws_sns_topic.changes[0], aws_sqs_queue.dead_letters, aws_cloudwatch_log_group.api] :
      resource.tags == tomap({ Application = "nameservice", Deployment = "staging", Owner = "platform" })
    ])
    error_message = "What can have tags has them."
  }

  assert {
    condition     = aws_lambda_event_source_mapping.changes.tags == aws_lambda_function.this["head_push"].tags
    error_message = "Mappings have the tags."
  }

  assert {
    condition     = alltrue([for name, function in aws_lambda_function.this : function.tags == tomap({ Application = "nameservice", Deployment = "staging", Owner = "platform" }) && aws_iam_role.this[name].tags == function.tags && aws_cloudwatch_log_group.function[name].tags == function.tags])
    error_message = "Functions, roles and logs have the tags."
  }
}

run "frozen" {
  state_key = "frozen"

  variables {
    frozen     = true
    read_model = true
    archive    = { bucket = "archive" }
    search     = { url = "https://search.example", domain_arn = "arn:aws:es:eu-central-1:123456789012:domain/names" }
  }

  assert {
    condition = toset([for name, function in aws_lambda_function.this : name if function.reserved_concurrent_executions != 0]) == toset([
      "branch_list", "change_compare", "change_list", "change_stream", "console_get", "health_get", "history_list", "not_found", "openapi_get", "record_get",
      "record_list", "search_get", "snapshot_get",
    ])
    error_message = "While it is frozen nothing is written, and everything is read."
  }
}

run "aliases" {
  state_key = "aliases"

  variables {
    aliases       = true
    read_model    = true
    archive       = { bucket = "archive" }
    authorization = "JWT"
    jwt_issuer    = "https://issuer.example/"
    jwt_audience  = "nameservice"
    jwks_url      = "https://issuer.example/keys"
  }

  assert {
    condition     = alltrue([for name, function in aws_lambda_function.this : function.publish && aws_lambda_alias.live[name].name == "live"])
    error_message = "Every function has versions, and an alias."
  }

  assert {
    condition     = alltrue([for name, it in aws_apigatewayv2_integration.this : it.integration_uri == aws_lambda_alias.live[name].invoke_arn]) && alltrue([for permission in aws_lambda_permission.route : permission.qualifier == "live"])
    error_message = "The gateway invokes the aliases, and may."
  }

  assert {
    condition     = aws_lambda_event_source_mapping.changes.function_name == aws_lambda_alias.live["stream_consumer"].arn && aws_lambda_event_source_mapping.doorbell[0].function_name == aws_lambda_alias.live["view_projector"].arn && aws_lambda_event_source_mapping.topic[0].function_name == aws_lambda_alias.live["topic_publisher"].arn && aws_cloudwatch_event_target.topic[0].arn == aws_lambda_alias.live["topic_publisher"].arn && aws_lambda_permission.topic[0].qualifier == "live" && aws_cloudwatch_event_target.archive[0].arn == aws_lambda_alias.live["feed_archive"].arn && aws_lambda_permission.archive[0].qualifier == "live"
    error_message = "Streams, queues and schedules invoke the aliases."
  }

  assert {
    condition     = aws_lambda_function_url.this["change_stream"].qualifier == "live" && alltrue([for permission in aws_lambda_permission.url : permission.qualifier == "live"])
    error_message = "The event streams are those of the alias."
  }
}

run "no_event_streams" {
  state_key = "no_event_streams"

  variables {
    event_streams = false
  }

  assert {
    condition     = length(aws_lambda_function_url.this) + length(aws_lambda_permission.url) == 0 && !contains(keys(aws_lambda_function.this), "change_stream") && output.events_url == null
    error_message = "There is a function URL."
  }
}

run "no_topic" {
  state_key = "no_topic"

  variables {
    topic = false
  }

  assert {
    condition     = length(aws_sns_topic.changes) + length(aws_lambda_event_source_mapping.topic) + length(aws_cloudwatch_event_rule.topic) + length(aws_lambda_permission.topic) == 0 && !contains(keys(aws_lambda_function.this), "topic_publisher") && output.topic_arn == null && !contains(keys(aws_lambda_function.this["stream_consumer"].environment[0].variables), "NAMESERVICE_TOPIC_ARN")
    error_message = "A part of the topic is left."
  }

  assert {
    condition     = !aws_dynamodb_table.feed.stream_enabled && length([for name in keys(aws_cloudwatch_metric_alarm.metric) : name if can(regex("topic|undelivered", name))]) == 0
    error_message = "The feed's table has a stream, or an alarm watches a topic."
  }
}

run "a_read_model_without_the_topic" {
  command   = plan
  state_key = "a_read_model_without_the_topic"

  variables {
    topic      = false
    read_model = true
  }

  expect_failures = [var.topic]
}

run "no_alarms_and_no_dashboard" {
  state_key = "no_alarms_and_no_dashboard"

  variables {
    alarms    = false
    dashboard = false
  }

  assert {
    condition     = length(aws_cloudwatch_metric_alarm.metric) + length(aws_cloudwatch_metric_alarm.compared) + length(aws_cloudwatch_metric_alarm.operations) + length(aws_cloudwatch_metric_alarm.latency) + length(aws_cloudwatch_dashboard.this) == 0 && output.dashboard_url == null
    error_message = "An alarm or the dashboard is left."
  }
}

run "endpoints_in_one_subnet_of_each_zone" {
  state_key = "endpoints_in_one_subnet_of_each_zone"

  variables {
    vpc = {
      subnet_ids         = ["subnet-1a", "subnet-1a-too", "subnet-1b"]
      security_group_ids = ["sg-functions"]
      endpoints = {
        vpc_id             = "vpc-1"
        route_table_ids    = ["rtb-1"]
        security_group_ids = ["sg-endpoints"]
        subnet_ids         = ["subnet-1a", "subnet-1b"]
      }
    }
  }

  assert {
    condition     = alltrue([for endpoint in aws_vpc_endpoint.messages : endpoint.subnet_ids == toset(["subnet-1a", "subnet-1b"])]) && aws_lambda_function.this["head_push"].vpc_config[0].subnet_ids == toset(var.vpc.subnet_ids)
    error_message = "An endpoint takes one subnet of a zone."
  }
}

run "beside_fluree" {
  variables {
    fluree = true
  }

  assert {
    condition     = alltrue([for function in aws_lambda_function.this : function.environment[0].variables["NAMESERVICE_FLUREE"] == "true"])
    error_message = "A function does not know that Fluree shares the table."
  }
}
