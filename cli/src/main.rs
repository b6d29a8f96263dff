//! The `nameservice` command.
fn main() {}
