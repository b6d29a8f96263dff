//! The Lambda function `lease_acquire`.

fn main() -> Result<(), impl std::fmt::Debug> {
    nameservice_lambda::serve_lambda(lease_acquire::route())
}
