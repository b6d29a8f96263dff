//! The Lambda function `index_push`.

fn main() -> Result<(), impl std::fmt::Debug> {
    nameservice_lambda::serve_lambda(index_push::route())
}
