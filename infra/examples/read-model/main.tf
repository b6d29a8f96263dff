# A custom read model beside the nameservice: its table, and the roles of the programs that write and read it.

terraform {
  required_version = ">= 1.9"

  required_providers {
    aws = {
      source  = "hashicorp/aws"
      version = ">= 6.29, < 7.0"
    }
  }
}

# The region comes from AWS_REGION or the profile.
provider "aws" {}

# The number of commits of each ledger, by tenant: the rows of shared/nameservice/examples/projection.rs.
module "commits" {
  source = "../../modules/read-model"

  name = "acme-commits"
  declaration = {
    indexes = { by-tenant = { partition_key = "tenant", sort_key = "address" } }
    ttl     = "ttl"
  }
}

# The program that runs the projector.
resource "aws_iam_role" "projector" {
  name               = "acme-commits-projector"
  assume_role_policy = local.assumed_by_functions
}

resource "aws_iam_role_policy" "projector" {
  name   = "rows"
  role   = aws_iam_role.projector.id
  policy = module.commits.writer_policy
}

# The program that reads the rows.
resource "aws_iam_role" "reader" {
  name               = "acme-commits-reader"
  assume_role_policy = local.assumed_by_functions
}

resource "aws_iam_role_policy" "reader" {
  name   = "rows"
  role   = aws_iam_role.reader.id
  policy = module.commits.reader_policy
}

locals {
  assumed_by_functions = jsonencode({
    Version = "2012-10-17"
    Statement = [{
      Effect    = "Allow"
      Action    = "sts:AssumeRole"
      Principal = { Service = "lambda.amazonaws.com" }
    }]
  })
}
