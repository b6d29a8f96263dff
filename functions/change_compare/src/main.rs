//! The Lambda function `change_compare`.

fn main() -> Result<(), impl std::fmt::Debug> {
    nameservice_lambda::serve_lambda(change_compare::route())
}
