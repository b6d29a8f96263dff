//! The Lambda function `branch_create`.

fn main() -> Result<(), impl std::fmt::Debug> {
    nameservice_lambda::serve_lambda(branch_create::route())
}
