mock_provider "aws" {
  mock_data "aws_caller_identity" {
    defaults = { account_id = "123456789012" }
  }

  mock_resource "aws_appsync_graphql_api" {
    defaults = {
      arn  = "arn:aws:appsync:eu-central-1:123456789012:apis/api1"
      uris = { GRAPHQL = "https://api.example/graphql", REALTIME = "wss://api.example/graphql" }
    }
  }
}

variables {
  view_table = { name = "fluree-nameservice-views", arn = "arn:aws:dynamodb:eu-central-1:123456789012:table/fluree-nameservice-views" }
}

run "lists" {
  assert {
    condition     = alltrue([for field, resolver in aws_appsync_resolver.list : resolver.kind == "UNIT" && resolver.runtime[0].name == "APPSYNC_JS" && can(regex("${field}: \\{ index:", resolver.code))])
    error_message = "A list has no resolver that knows it."
  }

  assert {
    condition     = alltrue([for field in keys(aws_appsync_resolver.list) : strcontains(aws_appsync_graphql_api.this.schema, "${field}(")])
    error_message = "A resolver is of a field that the schema lacks."
  }

  assert {
    condition     = length(aws_appsync_resolver.list) == length(regexall("(?m)^  [a-zA-Z]+\\(", split("}", split("type Query {", aws_appsync_graphql_api.this.schema)[1])[0]))
    error_message = "A field of Query has no resolver."
  }
}

run "least_privilege" {
  assert {
    condition     = jsondecode(aws_iam_role_policy.views.policy).Statement == [{ Effect = "Allow", Action = "dynamodb:Query", Resource = "${var.view_table.arn}/index/*" }]
    error_message = "The role of the lists may query the indexes of the read model, and nothing else."
  }

  assert {
    condition     = jsondecode(aws_iam_role.views.assume_role_policy).Statement[0].Condition.StringEquals["aws:SourceAccount"] == "123456789012"
    error_message = "Only APIs of this account take the role."
  }

  assert {
    condition     = aws_appsync_graphql_api.this.authentication_type == "AWS_IAM"
    error_message = "Requests are signed."
  }
}

run "no_subscriptions" {
  assert {
    condition     = !can(regex("(?m)^type (Mutation|Subscription) ", aws_appsync_graphql_api.this.schema)) && length(aws_appsync_resolver.change) + length(aws_appsync_datasource.nothing) == 0
    error_message = "By default there is nothing to subscribe to, and nothing to publish."
  }

  assert {
    condition     = output.realtime_url == null && output.subscriber_policy == null
    error_message = "By default nobody subscribes."
  }
}

run "subscriptions" {
  variables {
    subscriptions = { publisher_role_arn = "arn:aws:iam::123456789012:role/services/nameservice-stream_consumer" }
  }

  assert {
    condition = toset([for name, resolver in aws_appsync_resolver.change : "${resolver.type}.${resolver.field}"]) == toset([
      for name in ["Mutation.publishChange", "Subscription.changes"] : name
      if can(regex("(?s)\ntype ${split(".", name)[0]} \\{[^}]*\n  ${split(".", name)[1]}\\(", aws_appsync_graphql_api.this.schema))
    ]) && length(aws_appsync_resolver.change) == 2
    error_message = "The mutation and the subscription of the schema have resolvers, and nothing else has."
  }

  assert {
    condition     = length(split("): Change @aws_subscribe(mutations: [\"publishChange\"])\n", aws_appsync_graphql_api.this.schema)) == 2 && strcontains(aws_appsync_graphql_api.this.schema, "  publishChange(change: ChangeInput!): Change @aws_iam\n")
    error_message = "The subscription is fed by the mutation, for which requests are signed."
  }

  assert {
    condition     = strcontains(aws_appsync_resolver.change["Mutation.publishChange"].code, "const PUBLISHER = 'arn:aws:sts::123456789012:assumed-role/nameservice-stream_consumer/';")
    error_message = "The resolver knows the sessions of the publisher's role, without the path of the role."
  }

  assert {
    condition     = strcontains(aws_appsync_resolver.change["Subscription.changes"].code, "extensions.setSubscriptionFilter(")
    error_message = "The resolver of the subscription sets its filter."
  }

  assert {
    condition     = aws_appsync_datasource.nothing[0].type == "NONE" && alltrue([for resolver in aws_appsync_resolver.change : resolver.data_source == "nothing" && resolver.kind == "UNIT" && resolver.runtime[0].name == "APPSYNC_JS"])
    error_message = "Changes come from no table."
  }

  assert {
    condition     = jsondecode(output.subscriber_policy).Statement == [{ Effect = "Allow", Action = "appsync:GraphQL", Resource = "arn:aws:appsync:eu-central-1:123456789012:apis/api1/types/Subscription/fields/changes" }] && output.realtime_url == "wss://api.example/graphql"
    error_message = "A subscriber may subscribe, and nothing else."
  }

  assert {
    condition     = jsondecode(aws_iam_role_policy.views.policy).Statement == [{ Effect = "Allow", Action = "dynamodb:Query", Resource = "${var.view_table.arn}/index/*" }]
    error_message = "Subscriptions need no more of the table."
  }

  assert {
    condition     = alltrue([for list in keys(aws_appsync_resolver.list) : strcontains(aws_appsync_graphql_api.this.schema, "\n  ${list}(")])
    error_message = "With subscriptions a list is gone."
  }
}

run "a_publisher_that_is_no_role" {
  command = plan

  variables {
    subscriptions = { publisher_role_arn = "arn:aws:iam::123456789012:user/somebody" }
  }

  expect_failures = [var.subscriptions]
}

run "no_read_model" {
  command = plan

  variables {
    view_table = { name = null, arn = null }
  }

  expect_failures = [var.view_table]
}
