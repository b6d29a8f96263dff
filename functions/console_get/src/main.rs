//! The Lambda function `console_get`.

fn main() -> Result<(), impl std::fmt::Debug> {
    nameservice_lambda::serve_without_store(console_get::deployed()?)
}
