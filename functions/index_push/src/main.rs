//! The Lambda function `index_push`.

fn main() -> Result<(), impl std::fmt::Debug> {
    nameservice_http::serve_lambda(index_push::route())
}
