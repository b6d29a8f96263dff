//! The Lambda function `head_push`.

fn main() -> Result<(), impl std::fmt::Debug> {
    nameservice_http::serve_lambda(head_push::route())
}
