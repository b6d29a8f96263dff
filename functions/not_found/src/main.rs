//! The Lambda function `not_found`.

fn main() -> Result<(), impl std::fmt::Debug> {
    nameservice_lambda::serve_without_store(not_found::route())
}
