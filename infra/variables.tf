variable "region" {
  description = "AWS region of all resources, for example `eu-central-1`."
  type        = string
  nullable    = false

  validation {
    condition     = can(regex("^[a-z]{2,4}(-[a-z]+)+-[0-9]$", var.region))
    error_message = "This is not the name of a region, such as eu-central-1."
  }
}

variable "name" {
  description = "Prefix of the names of all resources except the tables. Deployments in the same account and region need different names."
  type        = string
  default     = "nameservice"
  nullable    = false

  validation {
    condition     = can(regex("^[a-z][a-z0-9-]{0,30}$", var.name))
    error_message = "At most 31 lower-case letters, digits and hyphens, starting with a letter: the names of functions and roles begin with it."
  }
}

variable "tags" {
  description = "Tags of every resource, in addition to `Application` and `Deployment`."
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

# --- functions ---

variable "artifacts" {
  description = "Folder with `<function>/bootstrap.zip`, as `cargo lambda build --output-format zip` writes it. Set another release's folder to roll back."
  type        = string
  default     = "../target/lambda"
  nullable    = false
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

variable "long_poll_concurrency" {
  description = "How many `GET /v1/changes?wait=…` may wait at the same time. Reserved from the account's concurrency, so that waiting readers never starve writers; -1 sets neither a reservation nor a limit."
  type        = number
  default     = 100
  nullable    = false

  validation {
    condition     = var.long_poll_concurrency == -1 || var.long_poll_concurrency >= 1
    error_message = "At least 1, or -1 for no reservation."
  }
}

variable "event_stream_concurrency" {
  description = "How many event streams (SSE) may be open at the same time, reserved like `long_poll_concurrency`."
  type        = number
  default     = 100
  nullable    = false

  validation {
    condition     = var.event_stream_concurrency == -1 || var.event_stream_concurrency >= 1
    error_message = "At least 1, or -1 for no reservation."
  }
}

variable "permissions_boundary_arn" {
  description = "ARN of a permissions boundary for the functions' roles, where the account requires one."
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
  description = "The issuer's JSON Web Key Set (its text), for the functions that verify tokens themselves: Fluree's routes and the event streams. Apply again when the issuer's keys change."
  type        = string
  default     = null

  validation {
    condition     = var.authorization != "JWT" || try(length(jsondecode(var.jwks).keys) > 0, false)
    error_message = "With authorization = \"JWT\" a key set with at least one key is required, for example: export TF_VAR_jwks=$(cat jwks.json)"
  }

  validation {
    condition     = try(length(var.jwks) <= 3072, true)
    error_message = "At most 3 KB, because a function's environment has 4 KB: keep only the keys that are in use."
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

variable "alarm_actions" {
  description = "ARNs to notify when an alarm starts or ends, such as an SNS topic. Without any, alarms show only in the console."
  type        = list(string)
  default     = []
  nullable    = false
}

variable "alarm_thresholds" {
  description = <<-EOT
    Thresholds of the alarms:
    - `conditional_check_failures`: failed conditions in five minutes. Every conflict is one: normal in small numbers.
    - `store_latency_ms`: average latency of DynamoDB over five minutes.
    - `function_p99_ms`: 99th percentile of a function's duration over five minutes.
    - `iterator_age_ms`: lag of the change feed behind the table. The stream keeps records for 24 hours.
    - `server_errors`: 5xx responses in five minutes.
  EOT
  type = object({
    conditional_check_failures = optional(number, 1000)
    store_latency_ms           = optional(number, 50)
    function_p99_ms            = optional(number, 1000)
    iterator_age_ms            = optional(number, 60000)
    server_errors              = optional(number, 5)
  })
  default  = {}
  nullable = false
}
