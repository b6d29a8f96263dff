//! The Lambda function `not_found`.

fn main() -> Result<(), impl std::fmt::Debug> {
    nameservice_http::serve_without_store(not_found::route())
}
