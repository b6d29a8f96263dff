//! The Lambda function `record_purge`.

fn main() -> Result<(), impl std::fmt::Debug> {
    nameservice_http::serve_lambda(record_purge::route())
}
