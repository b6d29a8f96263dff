//! The Lambda function `stream_consumer`.

fn main() -> Result<(), impl std::fmt::Debug> {
    nameservice_http::serve_events(stream_consumer::run)
}
