//! Moves the heads of two ledgers together, or neither.
//!
//! ```sh
//! cargo run -p nameservice --example transaction -- memory:
//! ```

use nameservice::{Address, Error, Operation, Rejection};

const COMMIT: &str = "bafybeigdyrzt5sfp7udm7hu76uh7y26nf3efuylqabf3oclgtqy55fbzdi";

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Error> {
    let url = std::env::args().nth(1).unwrap_or_else(|| "memory:".into());
    let ns = nameservice::connect(&url).await?;
    let mut operations = Vec::new();
    for name in ["accounts", "orders"] {
        match ns.create_ledger(name).await {
            Ok(_) | Err(Error::Rejected(Rejection::AlreadyExists)) => {}
            Err(error) => return Err(error),
        }
        let address: Address = name.parse()?;
        let head = ns.head(&address)?.get().await?.ok_or(Rejection::Unknown)?;
        let push = ns.head(&address)?.push(COMMIT, head.v + 1).expect(head).into_push()?;
        operations.push(Operation::new(address, push));
    }
    let outcomes = ns.commit(operations).await?;
    println!("{} heads were moved", outcomes.len());
    Ok(())
}
