# Two deployments in one account: the home, to which everything is written, and one in another region that a copy keeps ready. Both have
# the same name: what AWS names by account, roles and dashboards, has the region in its name.
#
#   nameservice copy HOME STANDBY --follow     keeps the records of the standby equal: docs/copies.md
#   nameservice serve --upstream HOME          serves reads in any region, from memory: docs/replicas.md
#
# Two regions never accept writes of the same records: docs/regions.md has the reasons.

terraform {
  required_version = ">= 1.9"

  required_providers {
    aws = {
      source  = "hashicorp/aws"
      version = ">= 6.29, < 7.0"
    }
  }
}

variable "home_region" {
  description = "Region of the home."
  type        = string
  default     = "eu-central-1"
}

variable "standby_region" {
  description = "Region of the standby."
  type        = string
  default     = "eu-west-1"
}

variable "artifacts" {
  description = "Folder with the functions' archives."
  type        = string
  default     = "../../../target/lambda"
}

provider "aws" {
  region = var.home_region
}

provider "aws" {
  alias  = "standby"
  region = var.standby_region
}

module "home" {
  source = "../../modules/nameservice"

  artifacts     = var.artifacts
  authorization = "AWS_IAM"
  tags          = { Place = "home" }
}

module "standby" {
  source = "../../modules/nameservice"

  providers = {
    aws = aws.standby
  }

  artifacts     = var.artifacts
  authorization = "AWS_IAM"
  tags          = { Place = "standby" }
}

output "api_urls" {
  description = "URLs of both APIs. Clients write to the home's."
  value       = { home = module.home.api_url, standby = module.standby.api_url }
}

output "tables" {
  description = "The tables, for `nameservice copy`."
  value       = { home = module.home.table_arn, standby = module.standby.table_arn }
}
