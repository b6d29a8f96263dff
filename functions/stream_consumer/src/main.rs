//! The Lambda function `stream_consumer`.

// The futures of three AWS clients are nested: the types of a release build exceed the default limit of 128.
#![recursion_limit = "256"]

fn main() -> Result<(), impl std::fmt::Debug> {
    nameservice_lambda::serve_events(stream_consumer::run)
}
