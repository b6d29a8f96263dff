//! The Lambda function `protection_set`.

fn main() -> Result<(), impl std::fmt::Debug> {
    nameservice_lambda::serve_lambda(protection_set::route())
}
