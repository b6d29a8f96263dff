//! The Lambda function `feed_archive`.

#![recursion_limit = "256"]

fn main() -> Result<(), impl std::fmt::Debug> {
    nameservice_lambda::serve_events(feed_archive::run)
}
