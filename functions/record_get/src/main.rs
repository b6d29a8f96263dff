//! The Lambda function `record_get`.

fn main() -> Result<(), impl std::fmt::Debug> {
    nameservice_http::serve_lambda(record_get::route())
}
