//! The Lambda function `search_sink`.

#![recursion_limit = "256"]

fn main() -> Result<(), impl std::fmt::Debug> {
    nameservice_lambda::serve_events(search_sink::run)
}
