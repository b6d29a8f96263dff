//! The Lambda function `search_get`.

fn main() -> Result<(), impl std::fmt::Debug> {
    nameservice_lambda::serve_without_store(search_get::deployed()?)
}
