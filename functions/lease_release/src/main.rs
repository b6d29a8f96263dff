//! The Lambda function `lease_release`.

fn main() -> Result<(), impl std::fmt::Debug> {
    nameservice_lambda::serve_lambda(lease_release::route())
}
