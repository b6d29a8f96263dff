//! The Lambda function `branch_drop`.

fn main() -> Result<(), impl std::fmt::Debug> {
    nameservice_lambda::serve_lambda(branch_drop::route())
}
