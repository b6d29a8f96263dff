//! Publishes commits: reads the head, pushes the next by compare-and-set, and makes it anew if another was faster.
//!
//! ```sh
//! cargo run -p nameservice --example transactor -- memory:
//! ```

use nameservice::{Error, Head, PushOutcome};

/// Returns the id of a commit on this head: one of two samples. A transactor applies its transaction to what is stored
/// there, and has written the commit to its storage before it returns the id.
fn commit_on(head: &Head) -> &'static str {
    match head.t() % 2 {
        0 => "bafybeigdyrzt5sfp7udm7hu76uh7y26nf3efuylqabf3oclgtqy55fbzdi",
        _ => "bafkreifzjut3te7nhyekklss27nh3k72ysco7y32koao5eei66wof36n5e",
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Error> {
    let url = std::env::args().nth(1).unwrap_or_else(|| "memory:".into());
    let ns = nameservice::connect(&url).await?;
    let ledger = ns.create_ledger("example").or_existing().await?;
    let mut current = ledger.head.clone().unwrap_or_else(Head::unborn);
    for _ in 0..2 {
        current = loop {
            // Made anew after a conflict: the one before does not follow what the other has committed.
            let commit = commit_on(&current);
            match ns.head(&ledger)?.push(commit, current.t() + 1).expect(current).await? {
                PushOutcome::Updated { value, .. } => break value,
                // Another transactor was faster.
                PushOutcome::Conflict { actual: Some(actual) } => current = actual,
                other => return Err(other.into()),
            }
        };
        println!("published t {}", current.t());
    }
    Ok(())
}
