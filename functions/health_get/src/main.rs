//! The Lambda function `health_get`.

fn main() -> Result<(), impl std::fmt::Debug> {
    nameservice_lambda::serve_lambda(health_get::deployed())
}
