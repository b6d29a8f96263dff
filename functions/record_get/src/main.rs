//! The Lambda function `record_get`.

fn main() -> Result<(), impl std::fmt::Debug> {
    nameservice_lambda::serve_lambda(record_get::route())
}
