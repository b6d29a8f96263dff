//! The Lambda function `head_reset`.

fn main() -> Result<(), impl std::fmt::Debug> {
    nameservice_lambda::serve_lambda(head_reset::route())
}
