//! The Lambda function `graph_source_publish`.

fn main() -> Result<(), impl std::fmt::Debug> {
    nameservice_lambda::serve_lambda(graph_source_publish::route())
}
