//! The Lambda function `ledger_create`.

fn main() -> Result<(), impl std::fmt::Debug> {
    nameservice_http::serve_lambda(ledger_create::route())
}
