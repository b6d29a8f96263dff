//! Publishes a graph source over a ledger, and sets its state.
//!
//! ```sh
//! cargo run -p nameservice --example graph_source -- memory:
//! ```

use nameservice::{Error, Object};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Error> {
    let url = std::env::args().nth(1).unwrap_or_else(|| "memory:".into());
    let ns = nameservice::connect(&url).await?;
    let books = ns.create_ledger("example").or_existing().await?;
    let config = Object::from_iter([("field".to_owned(), "title".into())]);
    let search = ns.publish_graph_source("search", "f:Bm25Index", config).depends_on([books.address]).await?;
    println!("{} depends on {}", search.address, search.dependencies.join(", "));
    let progress = Object::from_iter([("progress".to_owned(), 0.5.into())]);
    let status = ns.status(&search)?.set("building", progress).await?.updated()?;
    println!("status v {}", status.v);
    Ok(())
}
