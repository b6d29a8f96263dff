//! The Lambda function `branch_list`.

fn main() -> Result<(), impl std::fmt::Debug> {
    nameservice_lambda::serve_lambda(branch_list::route())
}
