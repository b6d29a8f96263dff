# The service with a read model, and an AppSync API over it: lists by GraphQL, and subscriptions to changes. The two modules name each
# other, and Terraform finds the order of their resources: the consumer's role, the API with its resolvers, the consumer.

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
  read_model    = true
  graphql_api   = { url = module.graphql.url, arn = module.graphql.api_arn }
}

module "graphql" {
  source = "../../modules/graphql"

  view_table    = { name = module.nameservice.view_table_name, arn = module.nameservice.view_table_arn }
  subscriptions = { publisher_role_arn = module.nameservice.role_arns["stream_consumer"] }
}

output "graphql_url" {
  description = "URL of the GraphQL API."
  value       = module.graphql.url
}

output "realtime_url" {
  description = "URL for subscribers."
  value       = module.graphql.realtime_url
}

output "subscriber_policy" {
  description = "IAM policy of a subscriber's role."
  value       = module.graphql.subscriber_policy
}
