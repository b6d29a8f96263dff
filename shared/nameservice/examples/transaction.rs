//! Moves the heads of two ledgers together, or neither.
//!
//! ```sh
//! cargo run -p nameservice --example transaction -- memory:
//! ```

use nameservice::{Error, Head};

const COMMIT: &str = "bafybeigdyrzt5sfp7udm7hu76uh7y26nf3efuylqabf3oclgtqy55fbzdi";

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Error> {
    let url = std::env::args().nth(1).unwrap_or_else(|| "memory:".into());
    let ns = nameservice::connect(&url).await?;
    let mut operations = Vec::new();
    for name in ["accounts", "orders"] {
        let ledger = ns.create_ledger(name).or_existing().await?;
        let head = ledger.head.clone().unwrap_or_else(Head::unborn);
        operations.push(ns.head(&ledger)?.push(COMMIT, head.t() + 1).expect(head).into_operation()?);
    }
    println!("{} heads were moved", ns.commit(operations).await?.len());
    Ok(())
}
