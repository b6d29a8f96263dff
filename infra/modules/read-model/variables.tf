variable "name" {
  description = "Name of the table."
  type        = string
  nullable    = false

  validation {
    condition     = can(regex("^[a-zA-Z0-9_.-]{3,255}$", var.name))
    error_message = "DynamoDB allows 3 to 255 letters, digits and `_`, `.`, `-`."
  }
}

variable "declaration" {
  description = <<-EOT
    The shape of the table, as `nameservice_views::Description` has it in Rust:
    - `partition_key`, `sort_key`: the keys of a row. `TableRows` takes `address` (the default) and no sort key.
    - `indexes`: secondary indexes by name. `partition_key` is the index's name if it is not given; rows without the keys are not
      in the index. `projection` is `ALL` (the default), `KEYS_ONLY`, or `INCLUDE` with the names in `attributes`.
    - `types`: types of keys that are not strings: `N` or `B`, by the key's name.
    - `ttl`: the attribute with the epoch second after which a row may be deleted. `TableRows` needs one: what remains of removed rows expires.
    - `stream`: whether the table has a stream, with new and old images.
  EOT
  type = object({
    partition_key = optional(string, "address")
    sort_key      = optional(string)
    indexes = optional(map(object({
      partition_key = optional(string)
      sort_key      = optional(string)
      projection    = optional(string, "ALL")
      attributes    = optional(list(string), [])
    })), {})
    types  = optional(map(string), {})
    ttl    = optional(string)
    stream = optional(bool, false)
  })
  nullable = false

  validation {
    condition     = var.declaration.sort_key != var.declaration.partition_key && alltrue([for name, index in var.declaration.indexes : index.sort_key != coalesce(index.partition_key, name)])
    error_message = "The sort key is another attribute than the partition key."
  }

  validation {
    condition     = alltrue([for name in keys(var.declaration.indexes) : can(regex("^[a-zA-Z0-9_.-]{3,255}$", name))])
    error_message = "The name of an index has 3 to 255 letters, digits and `_`, `.`, `-`."
  }

  validation {
    condition     = length(var.declaration.indexes) <= 20
    error_message = "DynamoDB allows 20 indexes."
  }

  validation {
    condition     = alltrue([for index in values(var.declaration.indexes) : contains(["ALL", "INCLUDE", "KEYS_ONLY"], index.projection)])
    error_message = "A projection is ALL, INCLUDE or KEYS_ONLY."
  }

  validation {
    condition     = alltrue([for index in values(var.declaration.indexes) : (index.projection == "INCLUDE") == (length(index.attributes) > 0)])
    error_message = "The projection INCLUDE has attributes, and the others have none."
  }

  validation {
    condition     = sum(concat([0], [for index in values(var.declaration.indexes) : length(index.attributes)])) <= 100
    error_message = "DynamoDB projects 100 attributes at most, over all indexes."
  }

  validation {
    condition     = alltrue([for type in values(var.declaration.types) : contains(["S", "N", "B"], type)])
    error_message = "The type of a key is S, N or B."
  }

  validation {
    condition = length(setsubtract(keys(var.declaration.types), compact(flatten([
      var.declaration.partition_key, var.declaration.sort_key,
      [for name, index in var.declaration.indexes : [coalesce(index.partition_key, name), index.sort_key]],
    ])))) == 0
    error_message = "Only keys have a type: an attribute that is no key of the table or an index must not be in `types`."
  }
}

variable "provisioned_capacity" {
  description = <<-EOT
    Provisioned capacity, in units; on demand if it is null. A rebuild writes all rows in one go, so on demand is cheaper for most.
    - `read_min`, `read_max`, `write_min`, `write_max` are the limits between which autoscaling follows the load.
    - `index_read`, `index_write` is the fixed capacity of each index. An index that is written faster than its capacity throttles the
      writes of its table, so `index_write` is `write_max` if it is not given.
    - `target_utilization`: percentage of the capacity that autoscaling aims at.
  EOT
  type = object({
    read_min           = number
    read_max           = number
    write_min          = number
    write_max          = number
    index_read         = optional(number, 5)
    index_write        = optional(number)
    target_utilization = optional(number, 70)
  })
  default = null

  validation {
    condition     = var.provisioned_capacity == null || try(var.provisioned_capacity.read_min >= 1 && var.provisioned_capacity.read_min <= var.provisioned_capacity.read_max && var.provisioned_capacity.write_min >= 1 && var.provisioned_capacity.write_min <= var.provisioned_capacity.write_max, false)
    error_message = "A minimum is at least 1, and at most its maximum."
  }

  validation {
    condition     = var.provisioned_capacity == null || try(var.provisioned_capacity.target_utilization >= 20 && var.provisioned_capacity.target_utilization <= 90, false)
    error_message = "Autoscaling aims at 20 to 90 %."
  }
}

variable "kms_key_arn" {
  description = "Customer-managed key of the table; the key that AWS manages if it is null. The policies of writers and readers let them use it through DynamoDB alone."
  type        = string
  default     = null
}

variable "recovery_period_in_days" {
  description = "Days of point-in-time recovery; none if it is null: a read model can be rebuilt."
  type        = number
  default     = 35

  validation {
    condition     = try(var.recovery_period_in_days >= 1 && var.recovery_period_in_days <= 35, var.recovery_period_in_days == null)
    error_message = "DynamoDB allows 1 to 35 days."
  }
}

variable "deletion_protection" {
  description = "Whether deleting the table is blocked. Apply `false` before `terraform destroy`."
  type        = bool
  default     = true
  nullable    = false
}

variable "tags" {
  description = "Tags of the table."
  type        = map(string)
  default     = {}
  nullable    = false
}
