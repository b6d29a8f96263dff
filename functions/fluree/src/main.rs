//! The Lambda function `fluree`.

fn main() -> Result<(), impl std::fmt::Debug> {
    nameservice_lambda::serve_function_url(fluree::route())
}
