# Every change as a CloudEvents 1.0 envelope, at least once. Subscribers filter by the message attributes address, name,
# branch, kind, concern and source_type.
resource "aws_sns_topic" "changes" {
  name              = "${var.name}-changes"
  kms_master_key_id = coalesce(var.kms_key_arn, "alias/aws/sns")
  tags              = local.tags
}
