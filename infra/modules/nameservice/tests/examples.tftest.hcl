# The examples, planned and applied with mocked resources.

mock_provider "aws" {
  mock_data "aws_region" {
    defaults = { id = "eu-central-1" }
  }

  mock_data "aws_caller_identity" {
    defaults = { account_id = "123456789012" }
  }

  mock_data "aws_partition" {
    defaults = { partition = "aws" }
  }

  mock_data "aws_dynamodb_table" {
    defaults = {
      arn              = "arn:aws:dynamodb:eu-central-1:123456789012:table/fluree-nameservice"
      stream_arn       = "arn:aws:dynamodb:eu-central-1:123456789012:table/fluree-nameservice/stream/2026-01-01T00:00:00.000"
      stream_enabled   = true
      stream_view_type = "NEW_AND_OLD_IMAGES"
    }
  }

  mock_resource "aws_kms_key" {
    defaults = { arn = "arn:aws:kms:eu-central-1:123456789012:key/00000000-0000-0000-0000-000000000000" }
  }
}

mock_provider "aws" {
  alias = "standby"

  mock_data "aws_region" {
    defaults = { id = "eu-west-1" }
  }
}

# What has the same name in both regions: an account has one role and one dashboard of a name.
run "two_regions" {
  module {
    source = "../../examples/two-regions"
  }

  providers = {
    aws         = aws
    aws.standby = aws.standby
  }

  assert {
    condition     = length(setintersection(values(module.home.role_names), values(module.standby.role_names))) == 0 && length(module.home.role_names) == length(module.home.function_names)
    error_message = "A role of the account would be made twice."
  }

  assert {
    condition     = endswith(module.home.dashboard_url, "/nameservice-eu-central-1") && endswith(module.standby.dashboard_url, "/nameservice-eu-west-1")
    error_message = "One dashboard would replace the other."
  }

  assert {
    condition     = module.home.function_names["head_push"] == module.standby.function_names["head_push"]
    error_message = "What a region has of its own has the same name."
  }
}

run "minimal" {
  module {
    source = "../../examples/minimal"
  }

  assert {
    condition     = length(module.nameservice.function_names) > 25 && output.api_url == module.nameservice.api_url
    error_message = "The minimal example makes every function."
  }
}

run "existing_table" {
  module {
    source = "../../examples/existing-table"
  }

  assert {
    condition     = module.nameservice.table_name == data.aws_dynamodb_table.fluree.name && module.nameservice.table_arn == data.aws_dynamodb_table.fluree.arn
    error_message = "The module uses the table that exists."
  }
}

run "complete" {
  module {
    source = "../../examples/complete"
  }

  variables {
    region          = "eu-central-1"
    jwt_issuer      = "https://issuer.example/"
    jwt_audience    = "nameservice"
    jwks            = "{\"keys\": [{\"kty\": \"RSA\", \"kid\": \"one\"}]}"
    operators_email = "operators@example.com"
    domain = {
      name            = "names.example.com"
      certificate_arn = "arn:aws:acm:eu-central-1:123456789012:certificate/1"
      zone_id         = "Z1"
    }
  }

  assert {
    condition     = output.api_url == "https://names.example.com" && aws_sns_topic_subscription.operators[0].endpoint == "operators@example.com"
    error_message = "The complete example has a domain, and operators who are notified."
  }

  assert {
    condition = alltrue([
      for statement in jsondecode(aws_kms_key.nameservice.policy).Statement :
      try(statement.Condition.StringEquals["aws:SourceAccount"], null) == "123456789012" || try(statement.Condition.ArnLike["kms:EncryptionContext:aws:logs:arn"], null) != null
      if try(statement.Principal.Service, null) != null
    ])
    error_message = "A service may use the key for another account."
  }

  assert {
    condition     = aws_kms_key.nameservice.enable_key_rotation && length([for statement in jsondecode(aws_kms_key.nameservice.policy).Statement : statement if statement.Sid == "Logs"]) == 1
    error_message = "The key is rotated, and CloudWatch Logs may use it."
  }

  assert {
    condition = alltrue([
      for statement in jsondecode(aws_kms_key.nameservice.policy).Statement :
      toset(statement.Action) == toset(["kms:Decrypt", "kms:GenerateDataKey*"]) && statement.Principal.Service == "sns.amazonaws.com" && statement.Effect == "Allow"
      if try(statement.Sid, "") == "Topic"
    ]) && length([for statement in jsondecode(aws_kms_key.nameservice.policy).Statement : statement if try(statement.Sid, "") == "Topic"]) == 1
    error_message = "SNS may use the key: it delivers to the encrypted queue of the read model."
  }
}

run "graphql" {
  module {
    source = "../../examples/graphql"
  }

  override_resource {
    target = module.nameservice.aws_iam_role.this
    values = { arn = "arn:aws:iam::123456789012:role/nameservice-stream_consumer" }
  }

  override_resource {
    target = module.graphql.aws_appsync_graphql_api.this
    values = {
      arn  = "arn:aws:appsync:eu-central-1:123456789012:apis/api1"
      uris = { GRAPHQL = "https://api1.appsync-api.eu-central-1.amazonaws.com/graphql", REALTIME = "wss://api1.appsync-realtime-api.eu-central-1.amazonaws.com/graphql" }
    }
  }

  assert {
    condition     = output.graphql_url == "https://api1.appsync-api.eu-central-1.amazonaws.com/graphql" && output.realtime_url == "wss://api1.appsync-realtime-api.eu-central-1.amazonaws.com/graphql"
    error_message = "The two modules can name each other."
  }
}
