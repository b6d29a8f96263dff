# The table of a read model, from one declaration of its keys, indexes and expiry.
locals {
  indexes = {
    for name, index in var.declaration.indexes : name => {
      hash_key  = coalesce(index.partition_key, name)
      range_key = index.sort_key
      type      = index.projection
      includes  = index.projection == "INCLUDE" ? index.attributes : null
    }
  }

  # Every key of the table and of its indexes, once.
  keys = toset(compact(concat(
    [var.declaration.partition_key, var.declaration.sort_key],
    flatten([for index in values(local.indexes) : [index.hash_key, index.range_key]]),
  )))

  capacity = var.provisioned_capacity == null ? null : merge(var.provisioned_capacity, {
    index_write = coalesce(var.provisioned_capacity.index_write, var.provisioned_capacity.write_max)
  })
}

resource "aws_dynamodb_table" "this" {
  #checkov:skip=CKV_AWS_28:Point-in-time recovery is on unless recovery_period_in_days is null: a read model can be rebuilt.
  #checkov:skip=CKV_AWS_119:Encrypted with the key that AWS manages, unless kms_key_arn is set.
  #checkov:skip=CKV2_AWS_16:On demand, or scaled below.
  name                        = var.name
  billing_mode                = var.provisioned_capacity == null ? "PAY_PER_REQUEST" : "PROVISIONED"
  read_capacity               = try(local.capacity.read_min, null)
  write_capacity              = try(local.capacity.write_min, null)
  hash_key                    = var.declaration.partition_key
  range_key                   = var.declaration.sort_key
  deletion_protection_enabled = var.deletion_protection
  stream_enabled              = var.declaration.stream ? true : null
  stream_view_type            = var.declaration.stream ? "NEW_AND_OLD_IMAGES" : null

  dynamic "attribute" {
    for_each = local.keys

    content {
      name = attribute.value
      type = lookup(var.declaration.types, attribute.value, "S")
    }
  }

  dynamic "global_secondary_index" {
    for_each = local.indexes

    content {
      name               = global_secondary_index.key
      hash_key           = global_secondary_index.value.hash_key
      range_key          = global_secondary_index.value.range_key
      projection_type    = global_secondary_index.value.type
      non_key_attributes = global_secondary_index.value.includes
      read_capacity      = try(local.capacity.index_read, null)
      write_capacity     = try(local.capacity.index_write, null)
    }
  }

  dynamic "ttl" {
    for_each = var.declaration.ttl[*]

    content {
      attribute_name = ttl.value
      enabled        = true
    }
  }

  point_in_time_recovery {
    enabled                 = var.recovery_period_in_days != null
    recovery_period_in_days = var.recovery_period_in_days
  }

  server_side_encryption {
    enabled     = true
    kms_key_arn = var.kms_key_arn
  }

  tags = var.tags

  lifecycle {
    # Set by autoscaling. On demand there are none.
    ignore_changes = [read_capacity, write_capacity]
  }
}

locals {
  # One entry per direction. The indexes have a fixed capacity: Terraform cannot ignore what autoscaling changes in one index without
  # ignoring every change of it.
  scaled = var.provisioned_capacity == null ? {} : {
    Read  = { min = local.capacity.read_min, max = local.capacity.read_max }
    Write = { min = local.capacity.write_min, max = local.capacity.write_max }
  }
}

resource "aws_appautoscaling_target" "this" {
  for_each = local.scaled

  service_namespace  = "dynamodb"
  resource_id        = "table/${aws_dynamodb_table.this.name}"
  scalable_dimension = "dynamodb:table:${each.key}CapacityUnits"
  min_capacity       = each.value.min
  max_capacity       = each.value.max
}

resource "aws_appautoscaling_policy" "this" {
  for_each = local.scaled

  name               = "${var.name}-${lower(each.key)}"
  policy_type        = "TargetTrackingScaling"
  service_namespace  = aws_appautoscaling_target.this[each.key].service_namespace
  resource_id        = aws_appautoscaling_target.this[each.key].resource_id
  scalable_dimension = aws_appautoscaling_target.this[each.key].scalable_dimension

  target_tracking_scaling_policy_configuration {
    target_value = local.capacity.target_utilization

    predefined_metric_specification {
      predefined_metric_type = "DynamoDB${each.key}CapacityUtilization"
    }
  }
}
