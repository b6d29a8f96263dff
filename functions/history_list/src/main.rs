//! The Lambda function `history_list`.

fn main() -> Result<(), impl std::fmt::Debug> {
    nameservice_http::serve_lambda(history_list::route())
}
