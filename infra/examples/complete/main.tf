# Every option of the module except provisioned capacity and a VPC, from which most deployments gain nothing: a customer-managed key, a
# domain name, traces, alarms with a recipient, tokens of an issuer.

terraform {
  required_version = ">= 1.9"

  required_providers {
    aws = {
      source  = "hashicorp/aws"
      version = ">= 6.29, < 7.0"
    }
  }
}

provider "aws" {
  region = var.region
}

data "aws_caller_identity" "current" {}

data "aws_partition" "current" {}

locals {
  account   = data.aws_caller_identity.current.account_id
  partition = data.aws_partition.current.partition
}

module "nameservice" {
  source = "../../modules/nameservice"

  name       = var.name
  table_name = var.table_name
  frozen     = var.frozen
  artifacts  = var.artifacts
  aliases    = var.aliases
  tags       = var.tags

  jwt_issuer   = var.jwt_issuer
  jwt_audience = var.jwt_audience
  jwks         = var.jwks
  jwks_url     = var.jwks_url

  domain              = var.domain
  kms_key_arn         = aws_kms_key.nameservice.arn
  read_model          = true
  x_ray               = true
  deletion_protection = var.deletion_protection
  alarm_actions       = [aws_sns_topic.operators.arn]

  long_poll_concurrency    = var.waiting_readers
  event_stream_concurrency = var.waiting_readers
  cors_allow_origins       = var.cors_allow_origins
}

# Tables, topic, queue and logs are encrypted with this key, and cannot be read without it: its deletion takes thirty days.
resource "aws_kms_key" "nameservice" {
  description             = "Tables, topic, queue and logs of ${var.name}."
  enable_key_rotation     = true
  deletion_window_in_days = 30

  policy = jsonencode({
    Version = "2012-10-17"
    Statement = [
      {
        Sid       = "PoliciesOfTheAccount"
        Effect    = "Allow"
        Principal = { AWS = "arn:${local.partition}:iam::${local.account}:root" }
        Action    = "kms:*"
        Resource  = "*"
      },
      {
        Sid       = "Logs"
        Effect    = "Allow"
        Principal = { Service = "logs.${var.region}.amazonaws.com" }
        Action    = ["kms:Decrypt", "kms:DescribeKey", "kms:Encrypt", "kms:GenerateDataKey*", "kms:ReEncrypt*"]
        Resource  = "*"
        Condition = {
          ArnLike = { "kms:EncryptionContext:aws:logs:arn" = "arn:${local.partition}:logs:${var.region}:${local.account}:log-group:*" }
        }
      },
      {
        # SNS delivers the messages of the topic to queues under this key: the read model's, and those of subscribers in this account.
        Sid       = "Topic"
        Effect    = "Allow"
        Principal = { Service = "sns.amazonaws.com" }
        Action    = ["kms:Decrypt", "kms:GenerateDataKey*"]
        Resource  = "*"
        Condition = {
          StringEquals = { "aws:SourceAccount" = local.account }
          ArnLike      = { "aws:SourceArn" = "arn:${local.partition}:sns:${var.region}:${local.account}:${var.name}-*" }
        }
      },
      {
        # CloudWatch alarms publish to the operators' topic.
        Sid       = "Alarms"
        Effect    = "Allow"
        Principal = { Service = "cloudwatch.amazonaws.com" }
        Action    = ["kms:Decrypt", "kms:GenerateDataKey*"]
        Resource  = "*"
        # https://docs.aws.amazon.com/sns/latest/dg/sns-key-management.html#compatibility-with-aws-services
        Condition = {
          StringEquals = { "aws:SourceAccount" = local.account }
        }
      },
    ]
  })
}

resource "aws_sns_topic" "operators" {
  name              = "${var.name}-operators"
  kms_master_key_id = aws_kms_key.nameservice.arn
}

resource "aws_sns_topic_subscription" "operators" {
  count = var.operators_email == null ? 0 : 1

  topic_arn = aws_sns_topic.operators.arn
  protocol  = "email"
  endpoint  = var.operators_email
}
