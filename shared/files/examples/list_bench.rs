//! Prints how long it takes to list a directory, and to read and push one of its records.
//!
//! ```text
//! cargo files-bench          # 1,000 records
//! cargo files-bench 10000
//! ```

#![allow(clippy::print_stdout, reason = "it is a report")]

use std::{error::Error, time::Instant};

use nameservice_files::{Files, Options};
use nameservice_model::{
    Address, Call, ContentId, HeadPush, IndexPush, Limit, ListQuery, NameService as _, NewHead, NewIndex,
    Publisher as _, RefPublisher as _,
};

const ID: &str = "bafybeigdyrzt5sfp7udm7hu76uh7y26nf3efuylqabf3oclgtqy55fbzdi";
const ROUNDS: u32 = 20;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let count: usize = std::env::args().nth(1).map_or(Ok(1_000), |count| count.parse())?;
    let directory = tempfile::tempdir()?;
    let files = Files::directory(directory.path(), true, Options::default())?;
    let id = ContentId::parse(ID)?;
    let head = |t| NewHead::new(id.clone(), t);
    for n in 0..count {
        let address = Address::parse(&format!("db{n}"))?;
        let _ = files.create_ledger(&Call::fresh(), &address, Some(&head(1)?), None).await?;
        let _ =
            files.push_index(&Call::fresh(), &address, &IndexPush::monotonic(NewIndex::new(id.clone(), 1)?)).await?;
    }
    let query = ListQuery { limit: Limit::new(count.max(1))?, full: true, ..ListQuery::default() };
    let mut listed = Vec::new();
    for _ in 0..ROUNDS {
        let began = Instant::now();
        let page = files.list(&query, &|_| true).await?;
        listed.push(began.elapsed());
        assert_eq!(page.items.len(), count);
    }
    listed.sort();
    let middle = listed[listed.len() / 2];
    println!(
        "list of {count} whole records, two files each: median {middle:?}, slowest {:?}",
        listed[listed.len() - 1]
    );
    let db = Address::parse("db0")?;
    let began = Instant::now();
    for _ in 0..ROUNDS {
        files.lookup(&db).await?;
    }
    println!("read of a record: {:?}", began.elapsed() / ROUNDS);
    let began = Instant::now();
    for t in 0..ROUNDS {
        let _ = files.push_head(&Call::fresh(), &db, &HeadPush::monotonic(head(2 + i64::from(t))?)).await?;
    }
    println!("push of a head: {:?}", began.elapsed() / ROUNDS);
    Ok(())
}
