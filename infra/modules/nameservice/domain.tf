# A custom domain name for the API, in front of the address that the gateway assigns.

resource "aws_apigatewayv2_domain_name" "this" {
  count = var.domain == null ? 0 : 1

  domain_name = var.domain.name
  tags        = local.tags

  domain_name_configuration {
    certificate_arn = var.domain.certificate_arn
    endpoint_type   = "REGIONAL"
    security_policy = "TLS_1_2"
  }
}

resource "aws_apigatewayv2_api_mapping" "this" {
  count = var.domain == null ? 0 : 1

  api_id          = aws_apigatewayv2_api.this.id
  domain_name     = aws_apigatewayv2_domain_name.this[0].id
  stage           = aws_apigatewayv2_stage.this.id
  api_mapping_key = var.domain.base_path
}

resource "aws_route53_record" "this" {
  count = try(var.domain.zone_id, null) == null ? 0 : 1

  zone_id = var.domain.zone_id
  name    = var.domain.name
  type    = "A"

  alias {
    name                   = aws_apigatewayv2_domain_name.this[0].domain_name_configuration[0].target_domain_name
    zone_id                = aws_apigatewayv2_domain_name.this[0].domain_name_configuration[0].hosted_zone_id
    evaluate_target_health = false
  }
}
