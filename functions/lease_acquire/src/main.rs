//! The Lambda function `lease_acquire`.

fn main() -> Result<(), impl std::fmt::Debug> {
    nameservice_http::serve_lambda(lease_acquire::route())
}
