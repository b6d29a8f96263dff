//! The Lambda function `transaction_commit`.

fn main() -> Result<(), impl std::fmt::Debug> {
    nameservice_lambda::serve_lambda(transaction_commit::route())
}
