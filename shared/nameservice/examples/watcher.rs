//! Keeps a copy of every head: a snapshot first, then the changes after its position.
//!
//! ```sh
//! cargo run -p nameservice --example watcher -- http://127.0.0.1:8080
//! ```

use std::collections::BTreeMap;

use nameservice::{ChangeEvent, ConcernKind, Error};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Error> {
    let url = std::env::args().nth(1).unwrap_or_else(|| "memory:".into());
    let ns = nameservice::connect(&url).await?;
    let how_many = std::env::args().nth(2).and_then(|count| count.parse().ok()).unwrap_or(usize::MAX);
    let mut snapshot = ns.snapshot().await?;
    let mut heads = BTreeMap::new();
    while let Some(record) = snapshot.try_next().await? {
        heads.insert(record.address.clone(), record.t());
    }
    println!("{} records at position {}", heads.len(), snapshot.position());
    // Its position is stored with the copy, so that a restarted reader continues there.
    let mut changes = snapshot.changes().part(ConcernKind::Head).follow();
    for _ in 0..how_many {
        let Some(ChangeEvent::Change(change)) = changes.try_next().await? else {
            println!("changes have expired: read a snapshot again");
            break;
        };
        println!("{} is at t {}", change.address, change.watermark);
        heads.insert(change.address, change.watermark);
    }
    Ok(())
}
