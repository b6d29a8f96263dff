//! Branches, retraction and purge: what an administrator does.
//!
//! ```sh
//! cargo run -p nameservice --example admin -- memory:
//! ```

use nameservice::{Error, Rejection};

const COMMIT: &str = "bafybeigdyrzt5sfp7udm7hu76uh7y26nf3efuylqabf3oclgtqy55fbzdi";

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Error> {
    let url = std::env::args().nth(1).unwrap_or_else(|| "memory:".into());
    let ns = nameservice::connect(&url).await?;
    let main = ns.create_ledger("admin-example").head(COMMIT, 1).or_existing().await?;
    let dev = ns.create_branch("admin-example:dev", &main).await?;
    println!("{} starts at t {}", dev.address, dev.t());
    // A record that others depend on stays.
    match ns.retract(&main).await {
        Err(Error::Rejected(Rejection::HasDependents)) => println!("dependents: {:?}", ns.dependents(&main).await?),
        other => println!("{other:?}"),
    }
    println!("the branch is gone; {} are left", ns.drop_branch(&dev).await?);
    println!("retracted: {}", ns.retract(&main).reason("an example").await?.retracted);
    println!("retracted: {}", ns.restore(&main).await?.retracted);
    ns.purge(&main).await
}
