//! Publishes a graph source over a ledger, and sets its state.
//!
//! ```sh
//! cargo run -p nameservice --example graph_source -- memory:
//! ```

use nameservice::{Error, Object, PushOutcome, Rejection};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Error> {
    let url = std::env::args().nth(1).unwrap_or_else(|| "memory:".into());
    let ns = nameservice::connect(&url).await?;
    match ns.create_ledger("example").await {
        Ok(_) | Err(Error::Rejected(Rejection::AlreadyExists)) => {}
        Err(error) => return Err(error),
    }
    let config = Object::from_iter([("field".to_owned(), "title".into())]);
    let search = ns.publish_graph_source("search", "f:Bm25Index", config).depends_on(vec!["example".parse()?]).await?;
    println!("{} depends on {}", search.address, search.dependencies.join(", "));

    let status = ns.status("search")?;
    let progress = Object::from_iter([("progress".to_owned(), 0.5.into())]);
    match status.set("building", progress).await? {
        PushOutcome::Updated { value, .. } => println!("status v {}", value.v),
        other => return Err(other.into()),
    }
    Ok(())
}
