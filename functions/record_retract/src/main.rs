//! The Lambda function `record_retract`.

fn main() -> Result<(), impl std::fmt::Debug> {
    nameservice_lambda::serve_lambda(record_retract::route())
}
