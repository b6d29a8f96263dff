# A deployment whose state has the table of the read model and the topic at their former addresses keeps them.

mock_provider "aws" {
  mock_data "aws_region" {
    defaults = { id = "eu-central-1" }
  }
}

variables {
  authorization = "AWS_IAM"
  read_model    = true
}

run "before" {
  state_key = "moved"

  module {
    source = "./tests/before"
  }
}

# Newly created ones would get other computed values.
run "table_and_topic_are_kept" {
  state_key = "moved"

  assert {
    condition     = module.views[0].arn == run.before.table.arn && module.views[0].name == run.before.table.name
    error_message = "The table of the read model is replaced, and loses its rows."
  }

  assert {
    condition     = output.view_table_arn == run.before.table.arn
    error_message = "The output is another table."
  }

  assert {
    condition     = output.topic_arn == run.before.topic.arn
    error_message = "The topic is replaced, and loses its subscriptions."
  }
}

# Without a previous table, the computed values are new, so the comparison above can fail.
run "one_that_is_made" {
  state_key = "made"

  assert {
    condition     = module.views[0].name == run.before.table.name && module.views[0].arn != run.before.table.arn
    error_message = "Two tables have one ARN: the test above compares nothing."
  }

  assert {
    condition     = output.topic_arn != run.before.topic.arn
    error_message = "Two topics have one ARN: the test above compares nothing."
  }
}
