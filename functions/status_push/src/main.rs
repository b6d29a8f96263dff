//! The Lambda function `status_push`.

fn main() -> Result<(), impl std::fmt::Debug> {
    nameservice_lambda::serve_lambda(status_push::route())
}
