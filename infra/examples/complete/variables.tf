variable "region" {
  description = "AWS region of all resources."
  type        = string
}

variable "name" {
  description = "Prefix of the names of all resources except the tables."
  type        = string
  default     = "nameservice"
}

variable "table_name" {
  description = "Name of the table. infra/restore.sh sets it to that of a restored one."
  type        = string
  default     = "fluree-nameservice"
}

variable "frozen" {
  description = "Whether nothing may be written. infra/restore.sh sets it during a restore."
  type        = bool
  default     = false
}

variable "aliases" {
  description = "Whether releases are shifted to gradually, by infra/release.py."
  type        = bool
  default     = true
}

variable "waiting_readers" {
  description = "How many long polls, and how many event streams, may wait at the same time. Reserved from the account's concurrency: set it if the quota allows, for example 100 of 1,000."
  type        = number
  default     = -1
}

variable "artifacts" {
  description = "Folder with the functions' archives."
  type        = string
  default     = "../../../target/lambda"
}

variable "jwt_issuer" {
  description = "Issuer of the callers' tokens."
  type        = string
}

variable "jwt_audience" {
  description = "Audience of the callers' tokens."
  type        = string
}

variable "jwks" {
  description = "The issuer's key set, its text: export TF_VAR_jwks=$(curl -s …/jwks.json)"
  type        = string
  default     = null
}

variable "jwks_url" {
  description = "URL of the issuer's key set, which functions fetch again every five minutes."
  type        = string
  default     = null
}

variable "domain" {
  description = "Domain name of the API, see the module."
  type = object({
    name            = string
    certificate_arn = string
    zone_id         = optional(string)
    base_path       = optional(string)
    only            = optional(bool, false)
  })
  default = null
}

variable "deletion_protection" {
  description = "Whether deleting the tables is blocked."
  type        = bool
  default     = true
}

variable "operators_email" {
  description = "Address that gets the alarms."
  type        = string
  default     = null
}

variable "cors_allow_origins" {
  description = "Origins of web pages that may call the API."
  type        = list(string)
  default     = []
}

variable "tags" {
  description = "Tags of all resources."
  type        = map(string)
  default     = {}
}
