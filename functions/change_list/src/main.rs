//! The Lambda function `change_list`.

fn main() -> Result<(), impl std::fmt::Debug> {
    nameservice_lambda::serve_feed(change_list::route())
}
