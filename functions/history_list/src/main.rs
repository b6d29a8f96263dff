//! The Lambda function `history_list`.

fn main() -> Result<(), impl std::fmt::Debug> {
    nameservice_lambda::serve_feed(history_list::route())
}
