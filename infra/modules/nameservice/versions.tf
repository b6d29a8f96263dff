terraform {
  # 1.9: the validation of a variable may refer to other variables
  required_version = ">= 1.9"

  required_providers {
    aws = {
      source = "hashicorp/aws"
      # 6.29: the permission to invoke a function through its URL alone
      version = ">= 6.29, < 7.0"
    }
  }
}

# The provider is the caller's: its region is the deployment's.
data "aws_region" "current" {}

data "aws_partition" "this" {}

locals {
  region = data.aws_region.current.id
  tags   = merge({ Application = "nameservice", Deployment = var.name }, var.tags)
}
