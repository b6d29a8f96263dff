//! The Lambda function `stream_consumer`.

// The futures of three clients of AWS are nested in one another: a release build follows their types further than 128.
#![recursion_limit = "256"]

fn main() -> Result<(), impl std::fmt::Debug> {
    nameservice_lambda::serve_events(stream_consumer::run)
}
