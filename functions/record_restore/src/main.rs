//! The Lambda function `record_restore`.

fn main() -> Result<(), impl std::fmt::Debug> {
    nameservice_http::serve_lambda(record_restore::route())
}
