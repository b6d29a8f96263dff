//! The Lambda function `search_get`.

fn main() -> Result<(), impl std::fmt::Debug> {
    nameservice_lambda::serve_lambda(search_get::deployed()?)
}
