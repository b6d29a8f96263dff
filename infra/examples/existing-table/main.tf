# The service over a table that is managed elsewhere, such as by the configuration of Fluree's servers: the module creates everything
# but the table.

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

variable "table_name" {
  description = "Name of the table that exists. Its stream must be on, with new and old images."
  type        = string
  default     = "fluree-nameservice"
}

data "aws_dynamodb_table" "fluree" {
  name = var.table_name

  lifecycle {
    postcondition {
      condition     = self.stream_enabled && self.stream_view_type == "NEW_AND_OLD_IMAGES"
      error_message = "The change feed needs the table's stream, with new and old images: aws dynamodb update-table --table-name ${var.table_name} --stream-specification StreamEnabled=true,StreamViewType=NEW_AND_OLD_IMAGES"
    }
  }
}

module "nameservice" {
  source = "../../modules/nameservice"

  artifacts     = var.artifacts
  authorization = "AWS_IAM"

  existing_table = {
    name       = data.aws_dynamodb_table.fluree.name
    arn        = data.aws_dynamodb_table.fluree.arn
    stream_arn = data.aws_dynamodb_table.fluree.stream_arn
  }
}

output "api_url" {
  description = "URL of the API."
  value       = module.nameservice.api_url
}

output "events_url" {
  description = "URL of the event streams."
  value       = module.nameservice.events_url
}
