# The list of functions: each folder under functions/ has one entry. Everything else in this module is derived from it: roles
# and policies, log groups, routes, permissions, alarms. Tests in tests/infra compare it with the Rust code: with the folders,
# the routes of the OpenAPI document, and the requests that each function sends to DynamoDB.
#
#   routes           routes of the HTTP API
#   url              routes of a function URL of its own, if responses can be streamed
#   scope            the scope that callers need; `write` includes `read`, `admin` includes `write`. None: open to everyone
#   verifies_tokens  the function verifies tokens itself: Fluree's have claims instead of scopes, and a function URL has no
#                    authorizer
#   actions          all actions that its role allows, by key of local.resources. Every function with a store also uses `GetItem`
#                    on the table to open its connection during init. Resources of options that are off are left out
#   option           the entry of local.options with which the function is deployed. None: always
#   memory, timeout  in MB, in seconds. tests/memory.rs counts what functions hold. Requests to DynamoDB have a deadline of 13 seconds
#   concurrency      reserved concurrency, which is also its limit
locals {
  functions = {
    branch_create = {
      routes = ["POST /v1/branches"]
      scope  = "write"
      actions = {
        table = ["dynamodb:BatchWriteItem", "dynamodb:ConditionCheckItem", "dynamodb:GetItem", "dynamodb:PutItem", "dynamodb:Query", "dynamodb:UpdateItem"]
      }
    }

    branch_drop = {
      routes = ["DELETE /v1/branches/{address+}"]
      scope  = "admin"
      actions = {
        table       = ["dynamodb:BatchGetItem", "dynamodb:BatchWriteItem", "dynamodb:DeleteItem", "dynamodb:GetItem", "dynamodb:Query", "dynamodb:UpdateItem"]
        "gsi1-kind" = ["dynamodb:Query"]
      }
    }

    branch_list = {
      routes = ["GET /v1/branches/{address+}"]
      scope  = "read"
      actions = {
        table       = ["dynamodb:BatchGetItem", "dynamodb:GetItem"]
        "gsi1-kind" = ["dynamodb:Query"]
      }
    }

    change_compare = {
      routes = ["POST /v1/changes/compare"]
      scope  = "read"
      actions = {
        table = ["dynamodb:BatchGetItem", "dynamodb:GetItem"]
        feed  = ["dynamodb:GetItem"]
      }
    }

    change_list = {
      routes = ["GET /v1/changes"]
      scope  = "read"
      actions = {
        table           = ["dynamodb:GetItem"]
        feed            = ["dynamodb:BatchGetItem", "dynamodb:GetItem", "dynamodb:Query"]
        archive         = ["s3:ListBucket"]
        archive_objects = ["s3:GetObject"]
      }
      timeout     = 29
      concurrency = var.long_poll_concurrency
    }

    change_stream = {
      option          = "event_streams"
      url             = ["GET /v1/events", "GET /fluree/events", "GET /v1/fluree/events"]
      verifies_tokens = true
      actions = {
        table           = ["dynamodb:BatchGetItem", "dynamodb:DescribeTable", "dynamodb:GetItem", "dynamodb:Scan"]
        feed            = ["dynamodb:BatchGetItem", "dynamodb:GetItem", "dynamodb:Query"]
        archive         = ["s3:ListBucket"]
        archive_objects = ["s3:GetObject"]
      }
      # The longest that Lambda allows: Fluree's peers are sent all records again when their stream ends. The others end after 90 seconds,
      # since Lambda does not see that a reader has left, and resume with the last id.
      timeout     = 900
      concurrency = var.event_stream_concurrency
    }

    config_push = {
      routes = ["PUT /v1/configs/{address+}"]
      scope  = "write"
      actions = {
        table = ["dynamodb:ConditionCheckItem", "dynamodb:GetItem", "dynamodb:Query", "dynamodb:UpdateItem"]
      }
    }

    console_get = {
      routes = [
        "GET /console",
        "GET /console/{file+}",
      ]
    }

    feed_archive = {
      option = "archive"
      actions = {
        table           = ["dynamodb:GetItem"]
        feed            = ["dynamodb:BatchGetItem", "dynamodb:GetItem", "dynamodb:Query"]
        archive         = ["s3:ListBucket"]
        archive_objects = ["s3:GetObject", "s3:PutObject"]
      }
      timeout = 300
    }

    fluree = {
      routes = [
        "GET /fluree/storage/ns/{address+}",
        "GET /fluree/nameservice/snapshot",
        "POST /fluree/nameservice/refs/{address+}",
        "GET /v1/fluree/storage/ns/{address+}",
        "GET /v1/fluree/nameservice/snapshot",
        "POST /v1/fluree/nameservice/refs/{address+}",
      ]
      verifies_tokens = true
      actions = {
        table = ["dynamodb:BatchWriteItem", "dynamodb:ConditionCheckItem", "dynamodb:GetItem", "dynamodb:PutItem", "dynamodb:Query", "dynamodb:Scan", "dynamodb:UpdateItem"]
      }
    }

    graph_source_publish = {
      routes = ["PUT /v1/graph-sources/{address+}"]
      scope  = "write"
      actions = {
        table = ["dynamodb:BatchWriteItem", "dynamodb:ConditionCheckItem", "dynamodb:DeleteItem", "dynamodb:GetItem", "dynamodb:PutItem", "dynamodb:Query", "dynamodb:UpdateItem"]
      }
    }

    head_push = {
      routes = ["PUT /v1/heads/{address+}"]
      scope  = "write"
      actions = {
        table = ["dynamodb:BatchWriteItem", "dynamodb:ConditionCheckItem", "dynamodb:GetItem", "dynamodb:PutItem", "dynamodb:Query", "dynamodb:UpdateItem"]
      }
    }

    head_reset = {
      routes = ["POST /v1/resets/{address+}"]
      scope  = "admin"
      actions = {
        table = ["dynamodb:BatchWriteItem", "dynamodb:GetItem", "dynamodb:Query", "dynamodb:UpdateItem"]
      }
    }

    health_get = {
      routes = ["GET /v1/health"]
      actions = {
        table = ["dynamodb:GetItem"]
      }
    }

    history_list = {
      routes = ["GET /v1/history/{address+}"]
      scope  = "read"
      actions = {
        table           = ["dynamodb:GetItem", "dynamodb:Query"]
        feed            = ["dynamodb:BatchGetItem", "dynamodb:GetItem", "dynamodb:Query"]
        archive         = ["s3:ListBucket"]
        archive_objects = ["s3:GetObject"]
      }
      # It may scan 20 objects of the archive.
      timeout = 29
    }

    index_push = {
      routes = ["PUT /v1/indexes/{address+}"]
      scope  = "write"
      actions = {
        table = ["dynamodb:BatchWriteItem", "dynamodb:ConditionCheckItem", "dynamodb:GetItem", "dynamodb:PutItem", "dynamodb:Query", "dynamodb:UpdateItem"]
      }
    }

    lease_acquire = {
      routes = ["PUT /v1/leases/{address+}"]
      scope  = "write"
      actions = {
        table = ["dynamodb:ConditionCheckItem", "dynamodb:GetItem", "dynamodb:Query", "dynamodb:UpdateItem"]
      }
      timeout = 29
    }

    lease_release = {
      routes = ["DELETE /v1/leases/{address+}"]
      scope  = "write"
      actions = {
        table = ["dynamodb:GetItem", "dynamodb:Query", "dynamodb:UpdateItem"]
      }
    }

    ledger_create = {
      routes = ["POST /v1/ledgers"]
      scope  = "write"
      actions = {
        table = ["dynamodb:BatchWriteItem", "dynamodb:ConditionCheckItem", "dynamodb:GetItem", "dynamodb:PutItem", "dynamodb:Query"]
      }
    }

    not_found = {
      routes = ["$default"]
    }

    openapi_get = {
      routes = [
        "GET /v1/openapi.json",
        "GET /v1/docs",
        "GET /v1/docs/{file+}",
        "GET /.well-known/fluree.json",
      ]
    }

    protection_set = {
      routes = ["PUT /v1/protections/{address+}"]
      scope  = "admin"
      actions = {
        table = ["dynamodb:GetItem", "dynamodb:UpdateItem"]
      }
    }

    record_get = {
      routes = ["GET /v1/records/{address+}"]
      scope  = "read"
      actions = {
        feed  = ["dynamodb:GetItem"]
        table = ["dynamodb:GetItem", "dynamodb:Query"]
      }
      # It waits up to 20 seconds for what `min_t` and `min_position` ask for.
      timeout = 29
    }

    record_list = {
      routes = ["GET /v1/records"]
      scope  = "read"
      actions = {
        feed                = ["dynamodb:GetItem"]
        table               = ["dynamodb:BatchGetItem", "dynamodb:GetItem"]
        "gsi1-kind"         = ["dynamodb:Query"]
        "source-type-index" = ["dynamodb:Query"]
        "state-index"       = ["dynamodb:Query"]
      }
      timeout = 29
    }

    record_purge = {
      routes = ["DELETE /v1/records/{address+}"]
      scope  = "admin"
      actions = {
        table       = ["dynamodb:BatchGetItem", "dynamodb:BatchWriteItem", "dynamodb:DeleteItem", "dynamodb:GetItem", "dynamodb:Query", "dynamodb:UpdateItem"]
        "gsi1-kind" = ["dynamodb:Query"]
      }
    }

    record_restore = {
      routes = ["POST /v1/restorations/{address+}"]
      scope  = "write"
      actions = {
        table = ["dynamodb:GetItem", "dynamodb:Query", "dynamodb:UpdateItem"]
      }
    }

    record_retract = {
      routes = ["POST /v1/retractions/{address+}"]
      scope  = "write"
      actions = {
        table       = ["dynamodb:BatchGetItem", "dynamodb:GetItem", "dynamodb:Query", "dynamodb:UpdateItem"]
        "gsi1-kind" = ["dynamodb:Query"]
      }
    }

    search_get = {
      routes = ["GET /v1/search"]
      scope  = "read"
      actions = {
        search = ["es:ESHttpPost"]
      }
    }

    search_sink = {
      option = "search"
      actions = {
        table               = ["dynamodb:BatchGetItem", "dynamodb:GetItem"]
        search              = ["es:ESHttpPost"]
        search_queue        = ["sqs:DeleteMessage", "sqs:GetQueueAttributes", "sqs:ReceiveMessage"]
        search_dead_letters = ["sqs:SendMessage"]
      }
      timeout = 60
    }

    snapshot_get = {
      routes = ["GET /v1/snapshot"]
      scope  = "read"
      actions = {
        feed  = ["dynamodb:GetItem"]
        table = ["dynamodb:GetItem", "dynamodb:Scan"]
      }
      timeout = 29
    }

    status_push = {
      routes = ["PUT /v1/statuses/{address+}"]
      scope  = "write"
      actions = {
        table = ["dynamodb:ConditionCheckItem", "dynamodb:GetItem", "dynamodb:Query", "dynamodb:UpdateItem"]
      }
    }

    stream_consumer = {
      actions = {
        table        = ["dynamodb:BatchGetItem", "dynamodb:GetItem"]
        stream       = ["dynamodb:DescribeStream", "dynamodb:GetRecords", "dynamodb:GetShardIterator", "dynamodb:ListStreams"]
        feed         = ["dynamodb:BatchWriteItem", "dynamodb:GetItem", "dynamodb:PutItem", "dynamodb:Query", "dynamodb:UpdateItem"]
        dead_letters = ["sqs:SendMessage"]
        # For one release: the version before publishes itself. With `aliases` it serves until it is shifted away from.
        topic          = ["sns:Publish"]
        event_channels = ["appsync:EventPublish"]
        graphql_api    = ["appsync:GraphQL"]
      }
      timeout = 60
    }

    topic_publisher = {
      option = "topic"
      actions = {
        table        = ["dynamodb:GetItem"]
        feed         = ["dynamodb:BatchGetItem", "dynamodb:GetItem", "dynamodb:PutItem", "dynamodb:Query"]
        feed_stream  = ["dynamodb:DescribeStream", "dynamodb:GetRecords", "dynamodb:GetShardIterator", "dynamodb:ListStreams"]
        topic        = ["sns:Publish"]
        dead_letters = ["sqs:SendMessage"]
      }
      timeout = 60
    }

    transaction_commit = {
      routes = ["POST /v1/transactions"]
      scope  = "write"
      actions = {
        table = ["dynamodb:ConditionCheckItem", "dynamodb:GetItem", "dynamodb:Query", "dynamodb:UpdateItem"]
      }
    }

    view_projector = {
      option = "read_model"
      actions = {
        table    = ["dynamodb:BatchGetItem", "dynamodb:GetItem", "dynamodb:Scan"]
        feed     = ["dynamodb:BatchGetItem", "dynamodb:GetItem", "dynamodb:Query"]
        views    = ["dynamodb:BatchWriteItem", "dynamodb:DeleteItem", "dynamodb:GetItem", "dynamodb:PutItem", "dynamodb:Scan"]
        doorbell = ["sqs:DeleteMessage", "sqs:GetQueueAttributes", "sqs:ReceiveMessage"]
      }
      timeout = 300
    }
  }

  # The optional parts of a deployment, and whether this one has them.
  options = {
    read_model    = var.read_model
    archive       = var.archive != null
    search        = var.search != null
    topic         = var.topic
    event_streams = var.event_streams
  }

  # Defaults of an entry.
  defaults = {
    routes          = []
    url             = []
    scope           = null
    verifies_tokens = false
    actions         = {}
    memory          = 256
    timeout         = 15
    concurrency     = -1
    option          = null
  }

  function = { for name, function in local.functions : name => merge(local.defaults, function) if try(local.options[function.option], true) }

  # Functions that write anything: a table, the archive, or the index of the search, whose messages they delete. None runs while the
  # deployment is frozen.
  writers = toset([
    for name, function in local.function : name
    if anytrue([for action in flatten(values(function.actions)) : can(regex(":(BatchWriteItem|DeleteItem|DeleteMessage|PutItem|PutObject|UpdateItem)$", action))])
  ])

  # The resources that `actions` may name.
  resources = {
    table               = local.table.arn
    "gsi1-kind"         = "${local.table.arn}/index/gsi1-kind"
    "source-type-index" = "${local.table.arn}/index/source-type-index"
    "state-index"       = "${local.table.arn}/index/state-index"
    stream              = local.table.stream_arn
    feed                = aws_dynamodb_table.feed.arn
    feed_stream         = aws_dynamodb_table.feed.stream_arn
    topic               = one(aws_sns_topic.changes[*].arn)
    dead_letters        = aws_sqs_queue.dead_letters.arn
    event_channels      = one(aws_appsync_channel_namespace.records[*].channel_namespace_arn)
    graphql_api         = try("${var.graphql_api.arn}/types/Mutation/fields/publishChange", null)
    views               = one(module.views[*].arn)
    doorbell            = one(aws_sqs_queue.doorbell[*].arn)
    search              = try("${var.search.domain_arn}/${var.search.index}/*", null)
    search_queue        = one(aws_sqs_queue.search[*].arn)
    search_dead_letters = one(aws_sqs_queue.search_dead_letters[*].arn)
    archive             = try("arn:${data.aws_partition.this.partition}:s3:::${var.archive.bucket}", null)
    archive_objects     = try("arn:${data.aws_partition.this.partition}:s3:::${var.archive.bucket}/${local.archive_folder}*", null)
  }
}
