variable "name" {
  description = "Prefix of the names of all resources: that of the deployment."
  type        = string
  default     = "nameservice"
  nullable    = false

  validation {
    condition     = can(regex("^[a-z][a-z0-9-]{0,26}$", var.name))
    error_message = "At most 27 lower-case letters, digits and hyphens, starting with a letter."
  }
}

variable "view_table" {
  description = "The table of the read model: outputs `view_table_name` and `view_table_arn` of the module `nameservice`, if `read_model` is on."
  type = object({
    name = string
    arn  = string
  })
  nullable = false

  validation {
    condition     = var.view_table.name != null && var.view_table.arn != null
    error_message = "There is no read model: set `read_model = true` in the module nameservice."
  }
}

variable "subscriptions" {
  description = "Subscriptions to changes. `publisher_role_arn` is the role that publishes them: `role_arns[\"stream_consumer\"]` of the module `nameservice`, whose variable `graphql_api` has the outputs `url` and `api_arn` of this module."
  type = object({
    publisher_role_arn = string
  })
  default = null

  validation {
    condition     = var.subscriptions == null || can(regex("^arn:[^:]+:iam::[0-9]+:role/", var.subscriptions.publisher_role_arn))
    error_message = "publisher_role_arn is the ARN of a role: arn:aws:iam::ACCOUNT:role/NAME."
  }
}

variable "kms_key_arn" {
  description = "KMS key of the table of the read model, if it has one; logs are encrypted with it, too."
  type        = string
  default     = null
}

variable "log_retention_in_days" {
  description = "How long AppSync's log of errors is kept."
  type        = number
  default     = 90
  nullable    = false
}

variable "tracing" {
  description = "Whether requests are traced by X-Ray."
  type        = bool
  default     = false
  nullable    = false
}

variable "tags" {
  description = "Tags of every resource that can have tags, in addition to `Application` and `Deployment`."
  type        = map(string)
  default     = {}
  nullable    = false
}
