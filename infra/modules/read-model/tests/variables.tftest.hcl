# Values that are rejected before anything is created.

mock_provider "aws" {
  mock_data "aws_region" {
    defaults = { id = "eu-central-1" }
  }
}

variables {
  name        = "acme-commits"
  declaration = {}
}

run "a_name_with_a_slash" {
  command = plan

  variables {
    name = "acme/commits"
  }
  expect_failures = [var.name]
}

run "a_sort_key_that_is_the_partition_key" {
  command = plan

  variables {
    declaration = { sort_key = "address" }
  }
  expect_failures = [var.declaration]
}

run "an_index_sorted_by_its_partition_key" {
  command = plan

  variables {
    declaration = { indexes = { holder = { sort_key = "holder" } } }
  }
  expect_failures = [var.declaration]
}

run "an_index_whose_name_is_too_short" {
  command = plan

  variables {
    declaration = { indexes = { at = {} } }
  }
  expect_failures = [var.declaration]
}

run "too_many_indexes" {
  command = plan

  variables {
    declaration = { indexes = { for n in range(21) : "by-${n}-th" => {} } }
  }
  expect_failures = [var.declaration]
}

run "an_unknown_projection" {
  command = plan

  variables {
    declaration = { indexes = { holder = { projection = "SOME" } } }
  }
  expect_failures = [var.declaration]
}

run "an_include_of_nothing" {
  command = plan

  variables {
    declaration = { indexes = { holder = { projection = "INCLUDE" } } }
  }
  expect_failures = [var.declaration]
}

run "attributes_beside_all" {
  command = plan

  variables {
    declaration = { indexes = { holder = { attributes = ["state"] } } }
  }
  expect_failures = [var.declaration]
}

run "too_many_projected_attributes" {
  command = plan

  variables {
    declaration = { indexes = { for n in range(3) : "by-${n}-th" => { projection = "INCLUDE", attributes = [for a in range(34) : "a${a}"] } } }
  }
  expect_failures = [var.declaration]
}

run "an_unknown_type" {
  command = plan

  variables {
    declaration = { types = { address = "BOOL" } }
  }
  expect_failures = [var.declaration]
}

run "a_type_of_an_attribute_that_is_no_key" {
  command = plan

  variables {
    declaration = { types = { state = "N" } }
  }
  expect_failures = [var.declaration]
}

run "a_minimum_above_its_maximum" {
  command = plan

  variables {
    provisioned_capacity = { read_min = 2, read_max = 1, write_min = 1, write_max = 1 }
  }
  expect_failures = [var.provisioned_capacity]
}

run "an_utilization_that_autoscaling_does_not_take" {
  command = plan

  variables {
    provisioned_capacity = { read_min = 1, read_max = 1, write_min = 1, write_max = 1, target_utilization = 95 }
  }
  expect_failures = [var.provisioned_capacity]
}

run "too_many_days_of_recovery" {
  command = plan

  variables {
    recovery_period_in_days = 36
  }
  expect_failures = [var.recovery_period_in_days]
}
