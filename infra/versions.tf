terraform {
  # 1.9: a variable's validation may look at another variable
  required_version = ">= 1.9"

  required_providers {
    aws = {
      source = "hashicorp/aws"
      # 6.29: a function URL brings both permissions that AWS asks for
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
