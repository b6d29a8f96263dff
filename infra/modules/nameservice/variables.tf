variable "name" {
  description = "Prefix of the names of all resources except the tables. Deployments in the same account and region need different names; in two regions they may have the same."
  type        = string
  default     = "nameservice"
  nullable    = false

  validation {
    condition     = can(regex("^[a-z][a-z0-9-]{0,26}$", var.name))
    error_message = "At most 27 lower-case letters, digits and hyphens, starting with a letter: the names of roles consist of it, a function and the region, and have at most 64 characters."
  }
}

variable "tags" {
  description = "Tags of every resource that can have tags, in addition to `Application` and `Deployment`."
  type        = map(string)
  default     = {}
  nullable    = false
}

# --- tables ---

variable "table_name" {
  description = "Name of the nameservice table. Fluree servers that share it set it as `dynamodbTable`. The feed's table is `<table_name>-feed`."
  type        = string
  default     = "fluree-nameservice"
  nullable    = false

  validation {
    condition     = can(regex("^[A-Za-z0-9_.-]{3,250}$", var.table_name))
    error_message = "3 to 250 letters, digits, hyphens, underscores or dots: `-feed` is appended to it."
  }
}

variable "existing_table" {
  description = <<-EOT
    A nameservice table that others own, such as the Terraform configuration of Fluree's servers, instead of one of the module's own:
    - `name`, `arn`.
    - `stream_arn`: of its stream, which must be on, with new and old images.

    What the table lacks (indexes, TTL, recovery) is reported by `nameservice doctor --aws`. To have the module own a table that exists,
    import it instead.
  EOT
  type = object({
    name       = string
    arn        = string
    stream_arn = string
  })
  default = null

  validation {
    condition     = var.existing_table == null || try(strcontains(var.existing_table.stream_arn, "/stream/"), false)
    error_message = "The table has no stream: the change feed is filled from it. Turn it on with new and old images: aws dynamodb update-table --table-name … --stream-specification StreamEnabled=true,StreamViewType=NEW_AND_OLD_IMAGES"
  }
}

variable "provisioned_capacity" {
  description = <<-EOT
    Provisioned capacity of the tables, in units; on demand if it is null. Cheaper if the load uses more than about 30 % of it all the time.
    - `table`, `feed`: `read_min`, `read_max`, `write_min`, `write_max` are the limits between which autoscaling follows the load;
      `index_read`, `index_write` is the fixed capacity of each index of `table`. An index that is written faster than its capacity
      throttles the writes of its table, so `index_write` is `write_max` if it is not given. `feed` has no index.
    - `target_utilization`: percentage of the capacity that autoscaling aims at.
  EOT
  type = object({
    table = object({
      read_min    = number
      read_max    = number
      write_min   = number
      write_max   = number
      index_read  = optional(number, 5)
      index_write = optional(number)
    })
    feed = object({
      read_min  = number
      read_max  = number
      write_min = number
      write_max = number
    })
    target_utilization = optional(number, 70)
  })
  default = null

  validation {
    condition = var.provisioned_capacity == null || alltrue([
      for units in try([var.provisioned_capacity.table, var.provisioned_capacity.feed], []) :
      units.read_min >= 1 && units.read_min <= units.read_max && units.write_min >= 1 && units.write_min <= units.write_max
    ])
    error_message = "A minimum is at least 1, and at most its maximum."
  }

  validation {
    condition     = var.provisioned_capacity == null || try(var.provisioned_capacity.target_utilization >= 20 && var.provisioned_capacity.target_utilization <= 90, false)
    error_message = "DynamoDB allows a target of 20 to 90 percent."
  }
}

variable "kms_key_arn" {
  description = "ARN of a customer-managed KMS key that encrypts tables, topic, queue and logs, instead of keys that AWS manages. Its policy must let CloudWatch Logs use it (`logs.<region>.amazonaws.com`), and the roles of Fluree's servers that share the table. With `read_model`, and for every queue under this key that subscribes to the topic, it must give `kms:GenerateDataKey*` and `kms:Decrypt` to `sns.amazonaws.com`: without them SNS delivers nothing, and only its metric `NumberOfNotificationsFailed` says so."
  type        = string
  default     = null

  validation {
    condition     = var.kms_key_arn == null || can(regex("^arn:aws[a-z-]*:kms:[a-z0-9-]+:[0-9]{12}:key/", var.kms_key_arn))
    error_message = "The ARN of a key is required, arn:aws:kms:<region>:<account>:key/<id>: policies cannot name aliases."
  }
}

variable "deletion_protection" {
  description = "Whether deleting the tables is blocked. Apply `false` before `terraform destroy`."
  type        = bool
  default     = true
  nullable    = false
}

variable "recovery_period_in_days" {
  description = "Days of point-in-time recovery of both tables."
  type        = number
  default     = 35
  nullable    = false

  validation {
    condition     = var.recovery_period_in_days >= 1 && var.recovery_period_in_days <= 35
    error_message = "DynamoDB allows 1 to 35 days."
  }
}

variable "feed_retention_in_days" {
  description = "Days for which changes can be read. A reader that is further behind starts again from a snapshot."
  type        = number
  default     = 7
  nullable    = false

  validation {
    condition     = var.feed_retention_in_days >= 2 && floor(var.feed_retention_in_days) == var.feed_retention_in_days
    error_message = "At least 2 whole days: the table's stream can be one day behind."
  }
}

variable "frozen" {
  description = "Whether every function that writes is throttled to nothing, which callers see as 503: for a [restore](../../../docs/aws.md#back-up-restore), in which no two tables may be written. Reads continue."
  type        = bool
  default     = false
  nullable    = false
}

variable "read_model" {
  description = "Whether to keep the read model of records: the table `<table_name>-views`, and the function that keeps it up to date with the feed."
  type        = bool
  default     = false
  nullable    = false
}

variable "topic" {
  description = "Whether changes are published to an SNS topic, by a function that follows the feed. The read model and the search need it."
  type        = bool
  default     = true
  nullable    = false

  validation {
    condition     = var.topic || !var.read_model && var.search == null
    error_message = "read_model and search need the topic."
  }
}

variable "event_channels" {
  description = "AppSync Events API that rings for readers: each change of a record is published to the record's channel, `/<namespace>/<name>/<branch>`, and readers read `/v1/changes`. Subscribers sign their requests; the output `event_subscriber_policy` is what they need. Functions in a VPC reach it through a NAT gateway alone."
  type = object({
    namespace = optional(string, "nameservice")
  })
  default = null

  validation {
    condition     = var.event_channels == null || can(regex("^[A-Za-z0-9]([A-Za-z0-9-]{0,48}[A-Za-z0-9])?$", var.event_channels.namespace))
    error_message = "A namespace has at most 50 letters, digits and hyphens, and begins and ends with none of the latter."
  }
}

variable "fluree" {
  description = "Whether Fluree's servers share the table: heads and indexes whose ids Fluree's engine cannot read are rejected (422 `not-fluree`) unless an administrator allows them."
  type        = bool
  default     = false
}

variable "graphql_api" {
  description = "AppSync API of the module `graphql` to which `stream_consumer` publishes each change, for its subscriptions: the outputs `url` and `api_arn` of that module, whose variable `subscriptions` names the role of this one. Functions in a VPC reach it through a NAT gateway alone."
  type = object({
    url = string
    arn = string
  })
  default = null

  validation {
    condition     = var.graphql_api == null || can(regex("^https://[^/?#]+/graphql$", var.graphql_api.url)) && can(regex("^arn:[^:]+:appsync:[^/]+:apis/[^/]+$", var.graphql_api.arn))
    error_message = "graphql_api.url is https://HOST/graphql, and graphql_api.arn the ARN of its API: arn:aws:appsync:REGION:ACCOUNT:apis/ID."
  }
}

variable "search" {
  description = "Domain of Amazon OpenSearch Service that answers `GET /v1/search`, and the index in it, which `nameservice aws search-index init` creates. The domain exists already, and its access policy admits the roles of `search_get` and `search_sink`. `url` is its endpoint, https://…."
  type = object({
    url        = string
    domain_arn = string
    index      = optional(string, "nameservice")
  })
  default = null

  validation {
    condition     = var.search == null || can(regex("^https://[^/?#]+$", var.search.url)) && can(regex("^[a-z0-9][a-z0-9_.-]*$", var.search.index))
    error_message = "search.url is https://HOST without a path, and search.index is in small letters."
  }
}

variable "archive" {
  description = "Bucket in which every change of the feed is kept beyond the feed's retention, as objects of JSON Lines under `<prefix>/changes/`, and from which the API reads what the feed no longer holds. It exists already, and outlives this module; versioning, encryption, lifecycle and access to it are its owner's. `rate` is a schedule expression of EventBridge: far shorter than `feed_retention_in_days`."
  type = object({
    bucket = string
    prefix = optional(string, "")
    rate   = optional(string, "rate(1 hour)")
  })
  default = null

  validation {
    condition     = var.archive == null || can(regex("^([A-Za-z0-9!_.()-]+/?)*$", var.archive.prefix)) && !try(startswith(var.archive.prefix, "/") || endswith(var.archive.prefix, "/"), false)
    error_message = "archive.prefix is a path such as nameservice/production, without a slash at its beginning and its end."
  }
}

# --- functions ---

variable "artifacts" {
  description = "Folder with `<function>/bootstrap.zip`, as `cargo lambda build --output-format zip` writes it, or the prefix of these keys in `artifacts_bucket`, such as `nameservice/1.4.0`. To roll back, apply the module and the artifacts of an earlier release."
  type        = string
  nullable    = false

  validation {
    condition     = can(regex("[^/]$", var.artifacts))
    error_message = "A folder, or a prefix, without a slash at its end."
  }
}

variable "artifacts_bucket" {
  description = "S3 bucket in the deployment's region that holds the archives. Functions are replaced when the prefix in `artifacts` changes: give every release one of its own."
  type        = string
  default     = null
}

variable "architecture" {
  description = "Architecture of the artifacts: `arm64` (cheaper) or `x86_64`."
  type        = string
  default     = "arm64"
  nullable    = false

  validation {
    condition     = contains(["arm64", "x86_64"], var.architecture)
    error_message = "Lambda runs arm64 or x86_64."
  }
}

variable "log_level" {
  description = "Lowest level that the functions log: `TRACE`, `DEBUG`, `INFO`, `WARN` or `ERROR`."
  type        = string
  default     = "INFO"
  nullable    = false

  validation {
    condition     = contains(["TRACE", "DEBUG", "INFO", "WARN", "ERROR"], var.log_level)
    error_message = "TRACE, DEBUG, INFO, WARN or ERROR."
  }
}

variable "log_retention_in_days" {
  description = "Days for which the logs of functions and gateway are kept, one of the values that CloudWatch allows."
  type        = number
  default     = 90
  nullable    = false

  validation {
    condition     = contains([1, 3, 5, 7, 14, 30, 60, 90, 120, 150, 180, 365, 400, 545, 731, 1096, 1827, 2192, 2557, 2922, 3288, 3653], var.log_retention_in_days)
    error_message = "CloudWatch allows 1, 3, 5, 7, 14, 30, 60, 90, 120, 150, 180, 365, 400, 545, 731, 1096, 1827, 2192, 2557, 2922, 3288 or 3653."
  }
}

variable "aliases" {
  description = "Whether callers invoke the alias `live` of each function instead of its newest code: an apply then publishes versions, and `infra/release.py` shifts a part of the requests to them, all, or none. Turning this on or off later replaces the URL of the event streams."
  type        = bool
  default     = false
  nullable    = false
}

variable "event_streams" {
  description = "Whether event streams (SSE) are served, at a URL of the function `change_stream`. With `authorization = \"JWT\"` everyone may connect to it, and the function verifies tokens: set `false` if the account forbids such URLs (`lambda:FunctionUrlAuthType`). Readers then use long polls, the topic, or a replica."
  type        = bool
  default     = true
  nullable    = false
}

variable "long_poll_concurrency" {
  description = "How many `GET /v1/changes?wait=…` may wait at the same time. Reserved from the account's concurrency, so that waiting readers never starve writers: set it once the account's quota allows, for example to 100 of 1,000. -1 sets neither a reservation nor a limit. New accounts may have a quota of 10, of which nothing can be reserved."
  type        = number
  default     = -1
  nullable    = false

  validation {
    condition     = var.long_poll_concurrency == -1 || var.long_poll_concurrency >= 1
    error_message = "At least 1, or -1 for no reservation."
  }
}

variable "event_stream_concurrency" {
  description = "How many event streams (SSE) may be open at the same time, reserved like `long_poll_concurrency`. A stream whose reader has left counts for up to 90 seconds, one of Fluree's route for up to 14 minutes."
  type        = number
  default     = -1
  nullable    = false

  validation {
    condition     = var.event_stream_concurrency == -1 || var.event_stream_concurrency >= 1
    error_message = "At least 1, or -1 for no reservation."
  }
}

variable "x_ray" {
  description = "Whether the functions send traces of their invocations to AWS X-Ray."
  type        = bool
  default     = false
  nullable    = false
}

variable "vpc" {
  description = <<-EOT
    Runs the functions in a VPC:
    - `subnet_ids`, `security_group_ids`: of the functions. They need to reach DynamoDB, SQS and, with `topic`, SNS, on port 443.
    - `endpoints`: creates endpoints for these: a gateway endpoint in `route_table_ids`, and interface endpoints in the subnets with
      `security_group_ids`, which must admit port 443 from the functions. Without it the subnets need endpoints or a NAT gateway already.
      An interface endpoint takes one subnet of each zone: if two subnets of the functions are in one zone, name one of each in
      `subnet_ids`. The gateway endpoint admits this deployment's tables only; set `shared` if others in the VPC use it too.
  EOT
  type = object({
    subnet_ids         = list(string)
    security_group_ids = list(string)
    endpoints = optional(object({
      vpc_id             = string
      route_table_ids    = list(string)
      security_group_ids = list(string)
      subnet_ids         = optional(list(string))
      shared             = optional(bool, false)
    }))
  })
  default = null

  validation {
    condition     = var.vpc == null || try(length(var.vpc.subnet_ids) > 0 && length(var.vpc.security_group_ids) > 0, false)
    error_message = "At least one subnet and one security group are required."
  }
}

variable "permissions_boundary_arn" {
  description = "ARN of a permissions boundary for the functions' roles, if the account requires one."
  type        = string
  default     = null
}

# --- API ---

variable "authorization" {
  description = "How callers authenticate: `JWT` (tokens of `jwt_issuer`) or `AWS_IAM` (signed requests; the callers' own policies allow routes)."
  type        = string
  default     = "JWT"
  nullable    = false

  validation {
    condition     = contains(["JWT", "AWS_IAM"], var.authorization)
    error_message = "JWT or AWS_IAM."
  }
}

variable "jwt_issuer" {
  description = "Required issuer of tokens (`iss`), an https URL. The gateway fetches its keys from `<issuer>/.well-known/openid-configuration`."
  type        = string
  default     = null

  validation {
    condition     = var.authorization != "JWT" || can(regex("^https://[^/]+", var.jwt_issuer))
    error_message = "With authorization = \"JWT\" an https URL is required: the gateway fetches the issuer's keys from it."
  }
}

variable "jwt_audience" {
  description = "Required audience of tokens: `aud`, or `client_id` in a token without one."
  type        = string
  default     = null

  validation {
    condition     = var.authorization != "JWT" || try(length(var.jwt_audience) > 0, false)
    error_message = "With authorization = \"JWT\" an audience is required."
  }
}

variable "jwks" {
  description = "The issuer's JSON Web Key Set (its text), for the functions that verify tokens themselves: Fluree's routes and the event streams. Without `jwks_url`, apply again when the issuer's keys change; with it, these keys are used until the first answer. Only RSA keys with a `kid`: the gateway knows no others."
  type        = string
  default     = null

  validation {
    condition     = var.authorization != "JWT" || var.jwks_url != null && var.jwks == null || try(length(jsondecode(var.jwks).keys) > 0, false)
    error_message = "With authorization = \"JWT\" a key set with at least one key, or jwks_url, is required, for example: export TF_VAR_jwks=$(cat jwks.json)"
  }

  validation {
    condition = try(alltrue([
      for key in jsondecode(var.jwks).keys : key.kty == "RSA" && try(length(key.kid) > 0, false) && try(key.alg, "RS256") == "RS256" if try(key.use, "sig") == "sig"
    ]), true)
    error_message = "The authorizer of an HTTP API verifies RSA signatures alone, and finds a key by its `kid`: tokens of other keys (ES256, EdDSA, RS384, or without a kid) would get 401 on every /v1 route. Have the issuer sign with RS256, and leave other keys out."
  }

  validation {
    condition     = try(length(var.jwks) <= 3072, true)
    error_message = "At most 3 KB, because a function's environment has 4 KB: keep only the keys that are in use."
  }
}

variable "console_sign_in" {
  description = <<-EOT
    Lets users of the console sign in at `jwt_issuer`, by OpenID Connect. Without it they paste a token.
    - `client_id`: of a public client (authorization code with PKCE, no secret) whose redirect URI is the URL of the console, `<api_url>/console`.
    - `scope`: what the console asks for, separated by spaces.
    - `resource`: what the tokens are for, if the provider issues tokens for several; sent as `resource` and as `audience`.
    - `token_origin`: the origin of the token endpoint, if it is not that of `jwt_issuer`, as with Amazon Cognito.
  EOT
  type = object({
    client_id    = string
    scope        = optional(string, "openid nameservice:read nameservice:write")
    resource     = optional(string)
    token_origin = optional(string)
  })
  default = null

  validation {
    condition     = var.console_sign_in == null || var.authorization == "JWT" && try(length(var.console_sign_in.client_id) > 0, false)
    error_message = "A client_id is required, and authorization = \"JWT\": the console does not sign requests for IAM."
  }

  validation {
    condition     = try(var.console_sign_in.token_origin, null) == null || can(regex("^https://[A-Za-z0-9.-]+(:[0-9]+)?$", var.console_sign_in.token_origin))
    error_message = "console_sign_in.token_origin is an origin without a path, such as https://names.auth.eu-central-1.amazoncognito.com."
  }
}

variable "jwks_url" {
  description = "URL of the issuer's key set, such as `https://issuer.example.com/.well-known/jwks.json`: the functions that verify tokens themselves fetch it when they start, and again every five minutes, so that a key that was withdrawn is no longer accepted. Functions in a VPC reach it through a NAT gateway alone."
  type        = string
  default     = null

  validation {
    condition     = var.jwks_url == null || can(regex("^https://[^/]+/", var.jwks_url))
    error_message = "An https URL with a path, such as https://issuer.example.com/.well-known/jwks.json"
  }
}

variable "cors_allow_origins" {
  description = "Origins of web pages that may call the API. None by default."
  type        = list(string)
  default     = []
  nullable    = false

  validation {
    condition     = alltrue([for origin in var.cors_allow_origins : origin == "*" || can(regex("^https?://[^/]+$", origin))])
    error_message = "An origin is a scheme and a host without a path, such as https://console.example.com, or *."
  }
}

variable "domain" {
  description = <<-EOT
    A domain name of the API's own:
    - `name`, `certificate_arn`: the name, and the ARN of a certificate for it in the deployment's region.
    - `zone_id`: the Route 53 zone in which to create its record. Without it, create one for the output `domain_target`.
    - `base_path`: path below which the API is served, such as `names`; none by default.
    - `only`: whether the address that the gateway assigns stops working.

    The event streams stay at `events_url`: a function URL has no domain name of its own.
  EOT
  type = object({
    name            = string
    certificate_arn = string
    zone_id         = optional(string)
    base_path       = optional(string)
    only            = optional(bool, false)
  })
  default = null

  validation {
    condition     = var.domain == null || can(regex("^[a-z0-9-]+(\\.[a-z0-9-]+)+$", var.domain.name))
    error_message = "A host name in lower case, such as names.example.com."
  }

  validation {
    condition     = try(var.domain.base_path, null) == null || can(regex("^[A-Za-z0-9$_.+!*'()/-]+$", var.domain.base_path)) && !can(regex("^/|/$|^v1$|^v1/|^fluree", var.domain.base_path))
    error_message = "A path without slashes around it, such as names; it must not begin like the service's own routes, v1 and fluree."
  }
}

variable "throttling_rate_limit" {
  description = "Sustained requests per second over all routes and callers. More are answered with 429."
  type        = number
  default     = 1000
  nullable    = false
}

variable "throttling_burst_limit" {
  description = "Burst of requests above the sustained rate."
  type        = number
  default     = 2000
  nullable    = false
}

# --- alarms ---

variable "alarms" {
  description = "Whether there are alarms. They are most of what an idle deployment costs: docs/costs.md."
  type        = bool
  default     = true
  nullable    = false
}

variable "dashboard" {
  description = "Whether there is a dashboard."
  type        = bool
  default     = true
  nullable    = false
}

variable "detailed_metrics" {
  description = "Whether the gateway reports its metrics for each route, too: four metrics for each of about forty routes, up to $0.30 a month for each. The functions' own metrics, and those of Lambda, show the same by operation."
  type        = bool
  default     = false
  nullable    = false
}

variable "alarm_actions" {
  description = "ARNs to notify when an alarm starts or ends, such as an SNS topic. Without any, alarms show only in the console."
  type        = list(string)
  default     = []
  nullable    = false
}

variable "request_metrics" {
  description = "Whether functions write a line of metrics for each request or batch to their logs, from which CloudWatch makes metrics in the namespace `Nameservice`: requests by outcome and their duration, leases, requests to DynamoDB, the lag of the change feed and the topic. Eight alarms use them."
  type        = bool
  default     = true
  nullable    = false
}

variable "alarm_thresholds" {
  description = <<-EOT
    Thresholds of the alarms:
    - `conditional_check_failures`: failed conditions in five minutes. Every conflict is one: normal in small numbers.
    - `store_latency_ms`: average latency of DynamoDB over five minutes.
    - `function_p99_ms`: 99th percentile of a function's duration, over three times five minutes with 1,000 requests or more each.
    - `iterator_age_ms`: lag of the change feed behind the table, for stream records that are read and for changes that are appended, and of the topic behind the feed. A stream keeps records for 24 hours.
    - `server_errors`: 5xx responses in five minutes, other than 503 `not-yet`.
    - `lease_losses`: requests in five minutes whose lease another holder had taken over.
    - `outcomes_unknown`: writes in five minutes that may or may not have been applied.
  EOT
  type = object({
    conditional_check_failures = optional(number, 1000)
    store_latency_ms           = optional(number, 50)
    function_p99_ms            = optional(number, 1000)
    iterator_age_ms            = optional(number, 60000)
    server_errors              = optional(number, 5)
    lease_losses               = optional(number, 10)
    outcomes_unknown           = optional(number, 0)
  })
  default  = {}
  nullable = false
}
