terraform {
  # 1.9: the validation of a variable may refer to other variables
  required_version = ">= 1.9"

  required_providers {
    aws = {
      source = "hashicorp/aws"
      # 6.29: a function URL creates both permissions that AWS requires
      version = "~> 6.29"
    }
  }
}

provider "aws" {
  region = var.region

  default_tags {
    tags = merge({ Application = "nameservice", Deployment = var.name }, var.tags)
  }
}
