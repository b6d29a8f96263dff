//! The Lambda function `snapshot_get`.

fn main() -> Result<(), impl std::fmt::Debug> {
    nameservice_lambda::serve_lambda(snapshot_get::route())
}
