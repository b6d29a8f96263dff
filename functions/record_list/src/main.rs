//! The Lambda function `record_list`.

fn main() -> Result<(), impl std::fmt::Debug> {
    nameservice_lambda::serve_lambda(record_list::route())
}
