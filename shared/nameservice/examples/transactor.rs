//! Publishes commits: reads the head, pushes the next by compare-and-set, and decides again if another was faster.
//!
//! ```sh
//! cargo run -p nameservice --example transactor -- memory:
//! ```

use nameservice::{Error, Head, PushOutcome};

/// Sample commits; a transactor has written them to its storage before.
const COMMITS: [&str; 2] = [
    "bafybeigdyrzt5sfp7udm7hu76uh7y26nf3efuylqabf3oclgtqy55fbzdi",
    "bafkreifzjut3te7nhyekklss27nh3k72ysco7y32koao5eei66wof36n5e",
];

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Error> {
    let url = std::env::args().nth(1).unwrap_or_else(|| "memory:".into());
    let ns = nameservice::connect(&url).await?;
    let ledger = ns.create_ledger("example").or_existing().await?;
    let mut current = ledger.head.clone().unwrap_or_else(Head::unborn);
    for commit in COMMITS {
        current = loop {
            match ns.head(&ledger)?.push(commit, current.t() + 1).expect(current).await? {
                PushOutcome::Updated { value, .. } => break value,
                // Another transactor was faster: a real one would apply its transaction to the new head first.
                PushOutcome::Conflict { actual: Some(actual) } => current = actual,
                other => return Err(other.into()),
            }
        };
        println!("published t {}", current.t());
    }
    Ok(())
}
