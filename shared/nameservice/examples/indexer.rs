//! Indexes a ledger under a lease: the lease is refreshed meanwhile, and every push carries its fencing token.
//!
//! ```sh
//! cargo run -p nameservice --example indexer -- memory:
//! ```

use std::time::Duration;

use nameservice::{Error, LeaseName, PushOutcome, Ran, Rejection};

const COMMIT: &str = "bafybeigdyrzt5sfp7udm7hu76uh7y26nf3efuylqabf3oclgtqy55fbzdi";
const INDEX: &str = "bafkreifzjut3te7nhyekklss27nh3k72ysco7y32koao5eei66wof36n5e";

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Error> {
    let url = std::env::args().nth(1).unwrap_or_else(|| "memory:".into());
    let ns = nameservice::connect(&url).await?;
    match ns.create_ledger("example").head(COMMIT, 1).await {
        Ok(_) | Err(Error::Rejected(Rejection::AlreadyExists)) => {}
        Err(error) => return Err(error),
    }
    let holder = format!("indexer-{}", std::process::id());
    let lease = ns.lease("example", LeaseName::INDEX, holder)?.ttl(Duration::from_secs(60))?;
    let ran = lease
        .hold(|claim| async {
            let head = ns.head("example")?.get().await?.ok_or(Rejection::Unknown)?;
            // Here the index of everything up to this `t` is built, for as long as it takes.
            ns.index("example")?.push(INDEX, head.v).under(claim).await
        })
        .await?;
    match ran {
        Ran::Done(outcome) => match outcome? {
            PushOutcome::Updated { value, .. } => println!("indexed t {}", value.v),
            PushOutcome::Stale { actual } => println!("t {} was indexed before", actual.v),
            other => return Err(other.into()),
        },
        Ran::NotHeld(outcome) => return Err(outcome.into()),
        Ran::Lost(lost) => println!("the lease was lost: {lost}"),
    }
    Ok(())
}
