//! The Lambda function `record_retract`.

fn main() -> Result<(), impl std::fmt::Debug> {
    nameservice_http::serve_lambda(record_retract::route())
}
