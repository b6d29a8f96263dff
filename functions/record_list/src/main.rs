//! The Lambda function `record_list`.

fn main() -> Result<(), impl std::fmt::Debug> {
    nameservice_http::serve_lambda(record_list::route())
}
