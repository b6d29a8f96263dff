# The example, with mocked resources.

mock_provider "aws" {
  mock_data "aws_region" {
    defaults = { id = "eu-central-1" }
  }
}

run "read_model" {
  module {
    source = "../../examples/read-model"
  }

  assert {
    condition     = aws_iam_role_policy.projector.policy == module.commits.writer_policy && aws_iam_role_policy.reader.policy == module.commits.reader_policy && aws_iam_role_policy.projector.policy != aws_iam_role_policy.reader.policy
    error_message = "The writer and the reader have the permissions of their own."
  }

  assert {
    condition     = keys(module.commits.index_arns) == ["by-tenant"]
    error_message = "The rows of a tenant are found by an index."
  }
}
