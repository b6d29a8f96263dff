output "nameservice" {
  description = "Everything that the module returns: URLs, names, ARNs."
  value       = module.nameservice
}

output "api_url" {
  description = "URL of the API: export NAMESERVICE_URL=$(terraform output -raw api_url)"
  value       = module.nameservice.api_url
}
