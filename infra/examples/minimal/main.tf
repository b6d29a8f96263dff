# The whole service with its defaults, for callers who sign their requests with AWS credentials: no issuer of tokens is needed.

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

variable "artifacts" {
  description = "Folder with the functions' archives."
  type        = string
  default     = "../../../target/lambda"
}

module "nameservice" {
  source = "../../modules/nameservice"

  artifacts     = var.artifacts
  authorization = "AWS_IAM"
}

output "api_url" {
  description = "URL of the API."
  value       = module.nameservice.api_url
}

output "events_url" {
  description = "URL of the event streams."
  value       = module.nameservice.events_url
}
