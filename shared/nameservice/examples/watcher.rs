//! Keeps a copy of every head: a snapshot first, then the changes after its position.
//!
//! ```sh
//! cargo run -p nameservice --example watcher -- http://127.0.0.1:8080
//! ```

use std::collections::BTreeMap;

use nameservice::{ChangeEvent, ConcernKind, Error, Limit};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Error> {
    let url = std::env::args().nth(1).unwrap_or_else(|| "memory:".into());
    let how_many: usize = std::env::args().nth(2).and_then(|count| count.parse().ok()).unwrap_or(usize::MAX);
    let ns = nameservice::connect(&url).await?;
    let mut heads = BTreeMap::new();
    // Taken before the first page, so that changes made while the pages are read follow it.
    let mut position = ns.backend().position().await?;
    let mut cursor = None;
    loop {
        let page = ns.backend().snapshot(Limit::new(1000)?, cursor.as_ref(), &|_| true).await?;
        heads.extend(page.items.into_iter().map(|record| (record.address, record.head.map_or(0, |head| head.v))));
        cursor = page.cursor;
        if cursor.is_none() {
            break;
        }
    }
    println!("{} records at position {position}", heads.len());
    let mut changes = ns.changes().after(position).part(ConcernKind::Head).follow();
    for _ in 0..how_many {
        match changes.try_next().await? {
            Some(ChangeEvent::Change(change)) => {
                println!("{} is at t {}", change.address, change.watermark);
                heads.insert(change.address, change.watermark);
                // Stored with the copy, so that a restarted reader continues here.
                position = change.position;
            }
            _ => {
                println!("what follows position {position} has expired: read a snapshot again");
                break;
            }
        }
    }
    Ok(())
}
