# Subscriptions to changes, if `subscriptions` is set: the consumer of the table's stream publishes each change by a mutation, which
# AppSync passes on to subscribers. The two fields have no data source.
locals {
  published = var.subscriptions == null ? {} : {
    # Whatever an IAM policy allows, changes are only accepted from sessions of the consumer's role.
    "Mutation.publishChange" = templatefile("${path.module}/resolvers/publish.js", {
      publisher = replace(var.subscriptions.publisher_role_arn, "/^arn:([^:]+):iam::([0-9]+):role/(.*/)?([^/]+)$/", "arn:$1:sts::$2:assumed-role/$4/")
    })
    "Subscription.changes" = file("${path.module}/resolvers/changes.js")
  }
}

resource "aws_appsync_datasource" "nothing" {
  count = var.subscriptions == null ? 0 : 1

  api_id = aws_appsync_graphql_api.this.id
  name   = "nothing"
  type   = "NONE"
}

resource "aws_appsync_resolver" "change" {
  for_each = local.published

  api_id      = aws_appsync_graphql_api.this.id
  type        = split(".", each.key)[0]
  field       = split(".", each.key)[1]
  data_source = aws_appsync_datasource.nothing[0].name
  kind        = "UNIT"
  code        = each.value

  runtime {
    name            = "APPSYNC_JS"
    runtime_version = "1.0.0"
  }
}
