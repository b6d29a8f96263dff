# Provisioned capacity: the tables follow their load between a minimum and a maximum, the indexes have a fixed capacity. Terraform
# cannot ignore what autoscaling changes in one index without ignoring every change of it, new indexes included.

locals {
  billing_mode = var.provisioned_capacity == null ? "PAY_PER_REQUEST" : "PROVISIONED"

  # The initial capacity of a table, and the capacity of its indexes. Null on demand.
  capacity = {
    table = {
      read        = try(var.provisioned_capacity.table.read_min, null)
      write       = try(var.provisioned_capacity.table.write_min, null)
      index_read  = try(var.provisioned_capacity.table.index_read, null)
      index_write = try(coalesce(var.provisioned_capacity.table.index_write, var.provisioned_capacity.table.write_max), null)
    }
    feed = {
      read  = try(var.provisioned_capacity.feed.read_min, null)
      write = try(var.provisioned_capacity.feed.write_min, null)
    }
  }

  # One entry per table and direction.
  scaled = var.provisioned_capacity == null ? {} : merge(
    var.existing_table != null ? {} : {
      table-read  = { table = local.table.name, dimension = "Read", min = var.provisioned_capacity.table.read_min, max = var.provisioned_capacity.table.read_max }
      table-write = { table = local.table.name, dimension = "Write", min = var.provisioned_capacity.table.write_min, max = var.provisioned_capacity.table.write_max }
    },
    {
      feed-read  = { table = aws_dynamodb_table.feed.name, dimension = "Read", min = var.provisioned_capacity.feed.read_min, max = var.provisioned_capacity.feed.read_max }
      feed-write = { table = aws_dynamodb_table.feed.name, dimension = "Write", min = var.provisioned_capacity.feed.write_min, max = var.provisioned_capacity.feed.write_max }
    },
  )
}

resource "aws_appautoscaling_target" "this" {
  for_each = local.scaled

  service_namespace  = "dynamodb"
  resource_id        = "table/${each.value.table}"
  scalable_dimension = "dynamodb:table:${each.value.dimension}CapacityUnits"
  min_capacity       = each.value.min
  max_capacity       = each.value.max
  tags               = local.tags
}

resource "aws_appautoscaling_policy" "this" {
  for_each = local.scaled

  name               = "${var.name}-${each.key}"
  policy_type        = "TargetTrackingScaling"
  service_namespace  = aws_appautoscaling_target.this[each.key].service_namespace
  resource_id        = aws_appautoscaling_target.this[each.key].resource_id
  scalable_dimension = aws_appautoscaling_target.this[each.key].scalable_dimension

  target_tracking_scaling_policy_configuration {
    target_value = var.provisioned_capacity.target_utilization

    predefined_metric_specification {
      predefined_metric_type = "DynamoDB${each.value.dimension}CapacityUtilization"
    }
  }
}
