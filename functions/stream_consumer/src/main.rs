//! The Lambda function `stream_consumer`.

// The nested futures of three AWS clients make types in a release build that exceed the default limit of 128.
#![recursion_limit = "256"]

fn main() -> Result<(), impl std::fmt::Debug> {
    nameservice_lambda::serve_events(stream_consumer::run)
}
