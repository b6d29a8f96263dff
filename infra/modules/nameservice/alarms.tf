locals {
  tables = { table = local.table.name, feed = aws_dynamodb_table.feed.name }

  # The operations with DynamoDB metrics: the actions of all functions, and transactions, which have no action of their own. A
  # description is a request to the control plane.
  operations = sort(distinct(concat(
    ["TransactWriteItems"],
    [
      for action in flatten([for function in local.function : [for resource, actions in function.actions : actions if !endswith(resource, "stream")]]) :
      trimprefix(action, "dynamodb:") if startswith(action, "dynamodb:") && !contains(["dynamodb:ConditionCheckItem", "dynamodb:DescribeTable"], action)
    ],
  )))

  # Functions that answer immediately. The others wait for changes by design.
  prompt = { for name, function in local.function : name => function if length(function.routes) > 0 && function.concurrency == -1 && function.timeout <= 15 }

  # An alarm has at most ten metrics, and its expression is one of them. What does not fit in one alarm is in a second one.
  operations_by_alarm = { for index, operations in chunklist(local.operations, 9) : index == 0 ? "" : "-${index + 1}" => operations }

  # Metrics that DynamoDB reports per operation of a table; one alarm sums them.
  by_operation = merge(flatten([
    for table, table_name in local.tables : [
      for suffix, operations in local.operations_by_alarm : {
        "${table}-throttled${suffix}" = {
          description = "DynamoDB throttles ${table_name}: a partition is hot, or the account's quota is reached. Requests are retried for ten seconds, then answered with 503."
          metric      = "ThrottledRequests"
          table       = table_name
          operations  = operations
        }
        "${table}-system-errors${suffix}" = {
          description = "DynamoDB reports internal errors on ${table_name}. See the AWS Health Dashboard."
          metric      = "SystemErrors"
          table       = table_name
          operations  = operations
        }
      }
    ]
  ])...)

  latencies = merge([
    for table, table_name in local.tables : {
      for suffix, operations in local.operations_by_alarm : "${table}${suffix}" => { table = table_name, operations = operations }
    }
  ]...)

  # Alarms on a single metric.
  by_metric = merge(
    {
      for table, table_name in local.tables : "${table}-conflicts" => {
        description = "Many failed conditions on ${table_name}: writers contend for the same records. Normal in small numbers."
        namespace   = "AWS/DynamoDB"
        metric      = "ConditionalCheckFailedRequests"
        dimensions  = { TableName = table_name }
        statistic   = "Sum"
        threshold   = var.alarm_thresholds.conditional_check_failures
      }
    },
    {
      for name, function in local.prompt : "${name}-p99" => {
        description = "The p99 duration of ${name} was above its threshold for fifteen minutes."
        namespace   = "AWS/Lambda"
        metric      = "Duration"
        dimensions  = { FunctionName = aws_lambda_function.this[name].function_name }
        extended    = "p99"
        periods     = 3
        threshold   = var.alarm_thresholds.function_p99_ms
      }
    },
    # No caller waits for these functions, so their errors are only seen here.
    {
      # An invocation of the publisher may fail, and the next repeats it. Once the stream has nothing more, the hourly one fails three times.
      for name, errors in { feed_archive = 0, search_sink = 0, topic_publisher = 2, view_projector = 0 } : "${name}-errors" => {
        description                      = "${name} fails: its log has the reason. It continues where it was as soon as it can."
        namespace                        = "AWS/Lambda"
        metric                           = "Errors"
        dimensions                       = { FunctionName = aws_lambda_function.this[name].function_name }
        statistic                        = "Sum"
        period                           = errors > 0 ? 3600 : 300
        threshold                        = errors
      } if contains(keys(local.function), name)
    },
    {
      for name, queue in { for queue in aws_sqs_queue.search_dead_letters : "search-dead-letters" => queue.name } : name => {
        description = "Changes could not be indexed. `nameservice aws deadletters list` shows their messages and the reasons."
        namespace   = "AWS/SQS"
        metric      = "ApproximateNumberOfMessagesVisible"
        dimensions  = { QueueName = queue }
        statistic   = "Maximum"
        threshold   = 0
      }
    },
    {
      consumer-errors = {
        description = "stream_consumer ended without an answer in each of the last fifteen minutes' periods: its log has the reason. It repeats what failed for as long as the stream keeps it, 24 hours, and passes over a record that ends it three times."
        namespace   = "AWS/Lambda"
        metric      = "Errors"
        dimensions  = { FunctionName = aws_lambda_function.this["stream_consumer"].function_name }
        statistic   = "Sum"
        periods     = 3
        threshold   = 0
      }
      iterator-age = {
        description = "The change feed lags behind the table. The stream keeps records for 24 hours: read the consumer's log before they expire."
        namespace   = "AWS/Lambda"
        metric      = "IteratorAge"
        dimensions  = { FunctionName = aws_lambda_function.this["stream_consumer"].function_name }
        statistic   = "Maximum"
        threshold   = var.alarm_thresholds.iterator_age_ms
      }
      dead-letters = {
        description = "The consumer could not read a stream record, or a record ended it three times, the topic rejects a change, or changes left the feed before they were published. The message in the queue has the reason."
        namespace   = "AWS/SQS"
        metric      = "ApproximateNumberOfMessagesVisible"
        dimensions  = { QueueName = aws_sqs_queue.dead_letters.name }
        statistic   = "Maximum"
        threshold   = 0
      }
    },
    merge([
      for topic in aws_sns_topic.changes[*].name : {
        for name, alarm in {
          undelivered         = { metric = "NumberOfNotificationsFailed", description = "SNS could not deliver changes to a subscriber: a queue is gone, or its policy or its key does not admit the topic. SNS does not repeat that." }
          undelivered-filters = { metric = "NumberOfNotificationsFilteredOut-InvalidAttributes", description = "SNS did not deliver changes to a subscriber with a filter policy, since it could not read their attributes." }
          } : name => {
          description = alarm.description
          namespace   = "AWS/SNS"
          metric      = alarm.metric
          dimensions  = { TopicName = topic }
          statistic   = "Sum"
          threshold   = 0
        }
      }
    ]...),
    {
      for name in ["topic_publisher"] : "topic-iterator-age" => {
        description = "The topic lags behind the feed: the log of topic_publisher has the reason. Nothing is lost for as long as the feed keeps changes."
        namespace   = "AWS/Lambda"
        metric      = "IteratorAge"
        dimensions  = { FunctionName = aws_lambda_function.this[name].function_name }
        statistic   = "Maximum"
        threshold   = var.alarm_thresholds.iterator_age_ms
      } if contains(keys(local.function), name)
    },
    # From the functions' own metrics: docs/metrics.md.
    {
      for name, alarm in {
        outcomes-unknown = { outcome = "outcome_unknown", threshold = var.alarm_thresholds.outcomes_unknown, description = "Writes were answered with outcome-unknown: replies of DynamoDB were lost, and others have written since. Their callers read, or repeat with the same key." }
        lease-losses     = { outcome = "lease_lost", threshold = var.alarm_thresholds.lease_losses, description = "Holders lose their leases: they are slower than the durations that they ask for, or others take their names." }
        } : name => {
        description = alarm.description
        namespace   = "Nameservice"
        metric      = "nameservice_requests_total"
        dimensions  = { name = var.name, outcome = alarm.outcome }
        statistic   = "Sum"
        threshold   = alarm.threshold
      } if var.request_metrics
    },
    # `Errors` counts invocations without an answer. One that names the records to deliver again has an answer.
    {
      for name, alarm in {
        consumer-failures     = { metric = "nameservice_feed_failures_total", periods = 3, description = "Batches of stream_consumer failed in each of the last fifteen minutes' periods: its log has the reason. It repeats what failed for as long as the stream keeps it, 24 hours." }
        consumer-dead-letters = { metric = "nameservice_feed_dead_letters_total", periods = 1, description = "The consumer could not read a stream record, or a record ended it three times. The feed continues after it; the message in the queue ${aws_sqs_queue.dead_letters.name} has the record and the reason." }
        } : name => {
        description = alarm.description
        namespace   = "Nameservice"
        metric      = alarm.metric
        dimensions  = { name = var.name }
        statistic   = "Sum"
        periods     = alarm.periods
        threshold   = 0
      } if var.request_metrics
    },
    {
      for name in ["feed-lag"] : name => {
        description = "Changes come into the feed late. Beside the iterator's age, which counts until a record is read, this counts until it is in the feed."
        namespace   = "Nameservice"
        metric      = "nameservice_feed_lag_seconds"
        dimensions  = { name = var.name }
        statistic   = "Maximum"
        threshold   = var.alarm_thresholds.iterator_age_ms / 1000
      } if var.request_metrics
    },
    {
      for name in ["topic-lag"] : name => {
        description = "Changes are published late. If the mapping of the feed's stream is off, or cannot read it, an hourly schedule publishes them: `aws lambda list-event-source-mappings` shows its state and its last result."
        namespace   = "Nameservice"
        metric      = "nameservice_topic_lag_seconds"
        dimensions  = { name = var.name }
        statistic   = "Maximum"
        threshold   = var.alarm_thresholds.iterator_age_ms / 1000
      } if var.request_metrics && var.topic
    },
  )
}

# Alarms that compare metrics: each is an expression over others, by their ids.
locals {
  compared = merge(
    {
      server-errors = {
        description = "The API answers with 5xx, other than 503 not-yet, which is the answer to a reader that waited for a change in vain. The log group ${aws_cloudwatch_log_group.api.name} shows the routes, the functions' logs the causes."
        expression  = var.request_metrics ? "FILL(errors, 0) - FILL(waited, 0)" : "FILL(errors, 0)"
        threshold   = var.alarm_thresholds.server_errors
        periods     = 1
        metrics = merge(
          { errors = { namespace = "AWS/ApiGateway", metric = "5xx", dimensions = { ApiId = aws_apigatewayv2_api.this.id, Stage = aws_apigatewayv2_stage.this.name } } },
          var.request_metrics ? { waited = { namespace = "Nameservice", metric = "nameservice_requests_total", dimensions = { name = var.name, outcome = "not_yet" } } } : {},
        )
      }
    },
    # A mapping that is off, or may not read its stream, makes no error, and the iterator's age is missing then.
    {
      for name in ["consumer-idle"] : name => {
        description = "Records were written for fifteen minutes, and stream_consumer was not invoked: the mapping of the table's stream is off, or cannot read it. `aws lambda list-event-source-mappings` shows its state and its last result."
        expression  = "IF(FILL(updated, 0) > 0 AND FILL(invocations, 0) == 0, 1, 0)"
        threshold   = 0
        periods     = 3
        metrics = {
          updated     = { namespace = "Nameservice", metric = "nameservice_requests_total", dimensions = { name = var.name, outcome = "updated" } }
          invocations = { namespace = "AWS/Lambda", metric = "Invocations", dimensions = { FunctionName = aws_lambda_function.this["stream_consumer"].function_name } }
        }
      } if var.request_metrics
    },
  )
}

resource "aws_cloudwatch_metric_alarm" "metric" {
  for_each = { for name, alarm in local.by_metric : name => alarm if var.alarms }

  alarm_name          = "${var.name}-${each.key}"
  alarm_description   = each.value.description
  namespace           = each.value.namespace
  metric_name         = each.value.metric
  dimensions          = each.value.dimensions
  statistic           = try(each.value.statistic, null)
  extended_statistic  = try(each.value.extended, null)
  comparison_operator = "GreaterThanThreshold"
  threshold           = each.value.threshold
  period              = try(each.value.period, 300)
  evaluation_periods  = try(each.value.periods, 1)
  # The 99th percentile of less than 1,000 samples is about their maximum: a single cold start would raise the alarm.
  # https://docs.aws.amazon.com/AmazonCloudWatch/latest/monitoring/percentiles-with-low-samples.html
  evaluate_low_sample_count_percentiles = can(each.value.extended) ? "ignore" : null
  treat_missing_data                    = "notBreaching"
  alarm_actions                         = var.alarm_actions
  ok_actions                            = var.alarm_actions
  tags                                  = local.tags
}

resource "aws_cloudwatch_metric_alarm" "compared" {
  for_each = { for name, alarm in local.compared : name => alarm if var.alarms }

  alarm_name          = "${var.name}-${each.key}"
  alarm_description   = each.value.description
  comparison_operator = "GreaterThanThreshold"
  threshold           = each.value.threshold
  evaluation_periods  = each.value.periods
  treat_missing_data  = "notBreaching"
  alarm_actions       = var.alarm_actions
  ok_actions          = var.alarm_actions
  tags                = local.tags

  metric_query {
    id          = "compared"
    expression  = each.value.expression
    label       = each.key
    return_data = true
  }

  dynamic "metric_query" {
    for_each = each.value.metrics

    content {
      id = metric_query.key

      metric {
        namespace   = metric_query.value.namespace
        metric_name = metric_query.value.metric
        dimensions  = metric_query.value.dimensions
        period      = 300
        stat        = "Sum"
      }
    }
  }
}

resource "aws_cloudwatch_metric_alarm" "operations" {
  for_each = { for name, alarm in local.by_operation : name => alarm if var.alarms }

  alarm_name          = "${var.name}-${each.key}"
  alarm_description   = each.value.description
  comparison_operator = "GreaterThanThreshold"
  threshold           = 0
  evaluation_periods  = 1
  treat_missing_data  = "notBreaching"
  alarm_actions       = var.alarm_actions
  ok_actions          = var.alarm_actions
  tags                = local.tags

  metric_query {
    id          = "sum"
    expression  = "SUM(METRICS())"
    label       = each.value.metric
    return_data = true
  }

  dynamic "metric_query" {
    for_each = each.value.operations

    content {
      id = "m${metric_query.key}"

      metric {
        namespace   = "AWS/DynamoDB"
        metric_name = each.value.metric
        dimensions  = { TableName = each.value.table, Operation = metric_query.value }
        period      = 300
        stat        = "Sum"
      }
    }
  }
}

resource "aws_cloudwatch_metric_alarm" "latency" {
  for_each = { for name, alarm in local.latencies : name => alarm if var.alarms }

  alarm_name          = "${var.name}-${each.key}-latency"
  alarm_description   = "The average latency of the slowest DynamoDB operation on ${each.value.table} is above its threshold."
  comparison_operator = "GreaterThanThreshold"
  threshold           = var.alarm_thresholds.store_latency_ms
  evaluation_periods  = 3
  treat_missing_data  = "notBreaching"
  alarm_actions       = var.alarm_actions
  ok_actions          = var.alarm_actions
  tags                = local.tags

  metric_query {
    id          = "slowest"
    expression  = "MAX(METRICS())"
    label       = "SuccessfulRequestLatency"
    return_data = true
  }

  dynamic "metric_query" {
    # A scan of the whole table is expected to be slow.
    for_each = setsubtract(each.value.operations, ["Scan"])

    content {
      id = lower(metric_query.value)

      metric {
        namespace   = "AWS/DynamoDB"
        metric_name = "SuccessfulRequestLatency"
        dimensions  = { TableName = each.value.table, Operation = metric_query.value }
        period      = 300
        stat        = "Average"
      }
    }
  }
}
