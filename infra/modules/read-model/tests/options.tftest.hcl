# Each option by itself, and from nothing (state_key).

mock_provider "aws" {
  mock_data "aws_region" {
    defaults = { id = "eu-central-1" }
  }

  mock_resource "aws_dynamodb_table" {
    defaults = { arn = "arn:aws:dynamodb:eu-central-1:123456789012:table/acme-commits", stream_arn = "arn:aws:dynamodb:eu-central-1:123456789012:table/acme-commits/stream/1" }
  }
}

variables {
  name        = "acme-commits"
  declaration = {}
}

run "defaults" {
  state_key = "defaults"

  assert {
    condition     = aws_dynamodb_table.this.name == "acme-commits" && aws_dynamodb_table.this.hash_key == "address" && aws_dynamodb_table.this.range_key == null
    error_message = "A row is found by its address alone."
  }

  assert {
    condition     = [for attribute in aws_dynamodb_table.this.attribute : "${attribute.name} ${attribute.type}"] == ["address S"] && length(aws_dynamodb_table.this.global_secondary_index) == 0
    error_message = "Without indexes there is one key."
  }

  assert {
    condition     = aws_dynamodb_table.this.billing_mode == "PAY_PER_REQUEST" && length(aws_appautoscaling_target.this) + length(aws_appautoscaling_policy.this) == 0
    error_message = "By default the table is on demand."
  }

  assert {
    condition     = aws_dynamodb_table.this.deletion_protection_enabled && aws_dynamodb_table.this.point_in_time_recovery[0].enabled && aws_dynamodb_table.this.point_in_time_recovery[0].recovery_period_in_days == 35
    error_message = "By default the table is protected, and can be restored."
  }

  assert {
    condition     = aws_dynamodb_table.this.server_side_encryption[0].enabled
    error_message = "The table is encrypted."
  }

  assert {
    condition     = length(aws_dynamodb_table.this.ttl) == 0 && output.stream_arn == null
    error_message = "What is not declared is not made."
  }

  assert {
    condition     = output.name == aws_dynamodb_table.this.name && output.arn == aws_dynamodb_table.this.arn && length(output.index_arns) == 0
    error_message = "The outputs are those of the table."
  }

  assert {
    condition = jsondecode(output.writer_policy).Statement == [{
      Effect   = "Allow"
      Action   = local.writer_actions
      Resource = output.arn
      }] && jsondecode(output.reader_policy).Statement == [{
      Effect   = "Allow"
      Action   = ["dynamodb:GetItem"]
      Resource = output.arn
    }]
    error_message = "A policy allows more than rows of this table, or less."
  }
}

run "keys_and_indexes" {
  state_key = "keys_and_indexes"

  variables {
    declaration = {
      partition_key = "tenant"
      sort_key      = "at"
      types         = { at = "N", size = "N" }
      indexes = {
        holder    = { sort_key = "tenant" }
        by-size   = { partition_key = "tenant", sort_key = "size", projection = "KEYS_ONLY" }
        by-origin = { partition_key = "origin", projection = "INCLUDE", attributes = ["holder", "state"] }
      }
    }
  }

  assert {
    condition     = aws_dynamodb_table.this.hash_key == "tenant" && aws_dynamodb_table.this.range_key == "at"
    error_message = "The keys are those of the declaration."
  }

  assert {
    condition     = toset([for attribute in aws_dynamodb_table.this.attribute : "${attribute.name} ${attribute.type}"]) == toset(["tenant S", "at N", "holder S", "size N", "origin S"])
    error_message = "Each key of the table and its indexes is declared once, with its type."
  }

  assert {
    condition = {
      for index in aws_dynamodb_table.this.global_secondary_index :
      index.name => join(" ", concat([index.hash_key, coalesce(index.range_key, "-"), index.projection_type], index.non_key_attributes == null ? [] : tolist(index.non_key_attributes)))
      } == {
      holder    = "holder tenant ALL"
      by-size   = "tenant size KEYS_ONLY"
      by-origin = "origin - INCLUDE holder state"
    }
    error_message = "The indexes are those of the declaration."
  }

  assert {
    condition     = output.index_arns["by-size"] == "${output.arn}/index/by-size" && length(output.index_arns) == 3
    error_message = "Each index has its ARN."
  }

  assert {
    condition = jsondecode(output.reader_policy).Statement == [
      { Effect = "Allow", Action = ["dynamodb:GetItem", "dynamodb:Query"], Resource = output.arn },
      { Effect = "Allow", Action = ["dynamodb:Query"], Resource = ["${output.arn}/index/by-origin", "${output.arn}/index/by-size", "${output.arn}/index/holder"] },
    ]
    error_message = "Readers query the partitions of the table, and the indexes that it has."
  }

  assert {
    condition     = jsondecode(output.writer_policy).Statement[*].Resource == [output.arn]
    error_message = "A writer has no use for indexes."
  }
}

run "expiry_and_stream" {
  state_key = "expiry_and_stream"

  variables {
    declaration = { ttl = "until", stream = true }
  }

  assert {
    condition     = aws_dynamodb_table.this.ttl[0].attribute_name == "until" && aws_dynamodb_table.this.ttl[0].enabled
    error_message = "Rows expire by the declared attribute."
  }

  assert {
    condition     = aws_dynamodb_table.this.stream_enabled && aws_dynamodb_table.this.stream_view_type == "NEW_AND_OLD_IMAGES" && output.stream_arn == aws_dynamodb_table.this.stream_arn
    error_message = "The stream has both images."
  }
}

run "provisioned" {
  state_key = "provisioned"

  variables {
    declaration          = { indexes = { by-holder = { partition_key = "holder" } } }
    provisioned_capacity = { read_min = 2, read_max = 20, write_min = 3, write_max = 30, target_utilization = 60 }
  }

  assert {
    condition     = aws_dynamodb_table.this.billing_mode == "PROVISIONED" && aws_dynamodb_table.this.read_capacity == 2 && aws_dynamodb_table.this.write_capacity == 3
    error_message = "The table starts with the minimum."
  }

  assert {
    condition     = alltrue([for index in aws_dynamodb_table.this.global_secondary_index : index.read_capacity == 5 && index.write_capacity == 30])
    error_message = "An index keeps up with the most that the table takes."
  }

  assert {
    condition = { for target in aws_appautoscaling_target.this : target.scalable_dimension => [target.resource_id, target.min_capacity, target.max_capacity] } == {
      "dynamodb:table:ReadCapacityUnits"  = ["table/acme-commits", 2, 20]
      "dynamodb:table:WriteCapacityUnits" = ["table/acme-commits", 3, 30]
    }
    error_message = "The table follows its load between the limits."
  }

  assert {
    condition     = alltrue([for direction, policy in aws_appautoscaling_policy.this : policy.target_tracking_scaling_policy_configuration[0].target_value == 60 && policy.target_tracking_scaling_policy_configuration[0].predefined_metric_specification[0].predefined_metric_type == "DynamoDB${direction}CapacityUtilization"])
    error_message = "Autoscaling aims at the utilization that was asked for."
  }
}

run "a_key_of_the_customer" {
  state_key = "a_key_of_the_customer"

  variables {
    kms_key_arn = "arn:aws:kms:eu-central-1:123456789012:key/00000000-0000-0000-0000-000000000000"
  }

  assert {
    condition     = aws_dynamodb_table.this.server_side_encryption[0].kms_key_arn == var.kms_key_arn
    error_message = "The table is encrypted with the key."
  }

  assert {
    condition = alltrue([
      for policy in [output.writer_policy, output.reader_policy] :
      [for statement in jsondecode(policy).Statement : statement.Condition.StringEquals["kms:ViaService"] if statement.Resource == var.kms_key_arn] == [["dynamodb.eu-central-1.amazonaws.com"]]
    ])
    error_message = "Writers and readers use the key through DynamoDB alone."
  }

  assert {
    condition     = jsondecode(output.reader_policy).Statement[1].Action == ["kms:Decrypt"] && !strcontains(output.writer_policy, "*")
    error_message = "Readers decrypt, and no policy has a wildcard."
  }
}

run "no_recovery_and_no_protection" {
  state_key = "no_recovery_and_no_protection"

  variables {
    recovery_period_in_days = null
    deletion_protection     = false
  }

  assert {
    condition     = !aws_dynamodb_table.this.point_in_time_recovery[0].enabled && !aws_dynamodb_table.this.deletion_protection_enabled
    error_message = "What can be rebuilt need not be protected."
  }
}

run "fewer_days_of_recovery" {
  state_key = "fewer_days_of_recovery"

  variables {
    recovery_period_in_days = 7
  }

  assert {
    condition     = aws_dynamodb_table.this.point_in_time_recovery[0].enabled && aws_dynamodb_table.this.point_in_time_recovery[0].recovery_period_in_days == 7
    error_message = "The table can be restored for the days that were asked for."
  }
}

run "tags" {
  state_key = "tags"

  variables {
    tags = { Owner = "platform" }
  }

  assert {
    condition     = aws_dynamodb_table.this.tags == tomap({ Owner = "platform" })
    error_message = "The table has its tags."
  }
}
