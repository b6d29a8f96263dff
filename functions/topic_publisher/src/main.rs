//! The Lambda function `topic_publisher`.

#![recursion_limit = "256"]

fn main() -> Result<(), impl std::fmt::Debug> {
    nameservice_lambda::serve_events(topic_publisher::run)
}
