//! The Lambda function `health_get`.

fn main() -> Result<(), impl std::fmt::Debug> {
    nameservice_http::serve_lambda(health_get::route())
}
