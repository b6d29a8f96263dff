# The doorbell of the change feed, if `event_channels` is set: an AppSync Events API with a channel for each record, to which
# stream_consumer publishes. Channels need not be created. Publishers and subscribers sign their requests.
resource "aws_appsync_api" "events" {
  count = var.event_channels == null ? 0 : 1

  name = "${var.name}-events"
  tags = local.tags

  event_config {
    auth_provider {
      auth_type = "AWS_IAM"
    }

    connection_auth_mode {
      auth_type = "AWS_IAM"
    }

    default_publish_auth_mode {
      auth_type = "AWS_IAM"
    }

    default_subscribe_auth_mode {
      auth_type = "AWS_IAM"
    }
  }
}

resource "aws_appsync_channel_namespace" "records" {
  count = var.event_channels == null ? 0 : 1

  api_id = aws_appsync_api.events[0].api_id
  name   = var.event_channels.namespace
  tags   = local.tags
}

locals {
  # The hosts for publishers (`HTTP`) and for subscribers (`REALTIME`).
  event_hosts = one(aws_appsync_api.events[*].dns)
}
