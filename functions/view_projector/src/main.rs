//! The Lambda function `view_projector`.

#![recursion_limit = "256"]

fn main() -> Result<(), impl std::fmt::Debug> {
    nameservice_lambda::serve_events(view_projector::run)
}
