//! The Lambda function `branch_drop`.

fn main() -> Result<(), impl std::fmt::Debug> {
    nameservice_http::serve_lambda(branch_drop::route())
}
