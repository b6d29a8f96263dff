//! The Lambda function `openapi_get`.

fn main() -> Result<(), impl std::fmt::Debug> {
    nameservice_lambda::serve_without_store(openapi_get::route())
}
