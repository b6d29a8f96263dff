//! The Lambda function `change_stream`. Its function URL's invoke mode is `RESPONSE_STREAM`.

fn main() -> Result<(), impl std::fmt::Debug> {
    nameservice_lambda::serve_streaming_url(change_stream::route())
}
