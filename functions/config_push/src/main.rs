//! The Lambda function `config_push`.

fn main() -> Result<(), impl std::fmt::Debug> {
    nameservice_http::serve_lambda(config_push::route())
}
