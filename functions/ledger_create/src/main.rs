//! The Lambda function `ledger_create`.

fn main() -> Result<(), impl std::fmt::Debug> {
    nameservice_lambda::serve_lambda(ledger_create::route())
}
