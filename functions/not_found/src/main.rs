//! The Lambda function `not_found`.

fn main() -> Result<(), impl std::fmt::Debug> {
    nameservice_http::serve_lambda(not_found::route())
}
