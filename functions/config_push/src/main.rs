//! The Lambda function `config_push`.

fn main() -> Result<(), impl std::fmt::Debug> {
    nameservice_lambda::serve_lambda(config_push::route())
}
