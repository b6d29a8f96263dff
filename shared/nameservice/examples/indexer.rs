//! Indexes a ledger under a lease: the lease is refreshed meanwhile, and every push carries its fencing token.
//!
//! ```sh
//! cargo run -p nameservice --example indexer -- memory:
//! ```

use nameservice::{Error, LeaseName, PushOutcome, Rejection};

const COMMIT: &str = "bafybeigdyrzt5sfp7udm7hu76uh7y26nf3efuylqabf3oclgtqy55fbzdi";
const INDEX: &str = "bafkreifzjut3te7nhyekklss27nh3k72ysco7y32koao5eei66wof36n5e";

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Error> {
    let url = std::env::args().nth(1).unwrap_or_else(|| "memory:".into());
    let ns = nameservice::connect(&url).await?;
    ns.create_ledger("example").head(COMMIT, 1).or_existing().await?;
    let lease = ns.lease("example", LeaseName::INDEX, format!("indexer-{}", std::process::id()))?;
    let ran = lease.hold(|claim| async {
        let head = ns.head("example")?.get().await?.ok_or(Rejection::Unknown)?;
        // Here the index of everything up to this `t` is built, for as long as it takes.
        ns.index("example")?.push(INDEX, head.t()).under(claim).await
    });
    match ran.await?.done()?? {
        PushOutcome::Updated { value: index, .. } => println!("indexed t {}", index.t()),
        PushOutcome::Stale { actual } => println!("t {} was indexed before", actual.t()),
        other => return Err(other.into()),
    }
    Ok(())
}
