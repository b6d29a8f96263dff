//! The Lambda function `record_restore`.

fn main() -> Result<(), impl std::fmt::Debug> {
    nameservice_lambda::serve_lambda(record_restore::route())
}
