mock_provider "aws" {
  mock_data "aws_caller_identity" {
    defaults = { account_id = "123456789012" }
  }

  mock_resource "aws_appsync_graphql_api" {
    defaults = { uris = { GRAPHQL = "https://api.example/graphql" } }
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

run "no_read_model" {
  command = plan

  variables {
    view_table = { name = null, arn = null }
  }

  expect_failures = [var.view_table]
}
