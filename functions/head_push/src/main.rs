//! The Lambda function `head_push`.

fn main() -> Result<(), impl std::fmt::Debug> {
    nameservice_lambda::serve_lambda(head_push::route())
}
