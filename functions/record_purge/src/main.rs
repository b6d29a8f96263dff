//! The Lambda function `record_purge`.

fn main() -> Result<(), impl std::fmt::Debug> {
    nameservice_lambda::serve_lambda(record_purge::route())
}
