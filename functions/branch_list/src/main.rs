//! The Lambda function `branch_list`.

fn main() -> Result<(), impl std::fmt::Debug> {
    nameservice_http::serve_lambda(branch_list::route())
}
