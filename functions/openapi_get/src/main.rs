//! The Lambda function `openapi_get`.

fn main() -> Result<(), impl std::fmt::Debug> {
    nameservice_http::serve_lambda(openapi_get::route())
}
