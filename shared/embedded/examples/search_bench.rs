//! Prints how long searches take, and what their index costs.
//!
//! ```text
//! cargo search-bench          # 1,000,000 records
//! cargo search-bench 100000
//! ```

#![allow(clippy::print_stdout, reason = "it is a report")]

use std::{
    error::Error,
    time::{Duration, Instant},
};

use nameservice_embedded::{Embedded, Options};
use nameservice_model::{
    Address, Call, ConcernValue, Config, ContentId, Limit, NameService as _, Publisher as _, Record, RecordAttributes,
    RecordKind, SearchQuery, SearchWords, StatusPayload,
};

const ROUNDS: usize = 30;

fn record(n: usize) -> Result<Record, Box<dyn Error>> {
    let names = ["books", "films", "orders", "people", "events", "telemetry", "billing"];
    let name = names[n % names.len()];
    let address = Address::parse(&format!("tenant-{}/{name}-{n}", (n * 31) % 5_000))?;
    Ok(Record {
        head: Some(ConcernValue::stored(1, Some(ContentId::stored("bafy")))),
        status: ConcernValue::new(
            1,
            StatusPayload { state: StatusPayload::READY.to_owned(), meta: Default::default() },
        ),
        config: Config::stored(1, Some(serde_json::json!({ "region": "eu-central-1", "index_threshold": n % 1_000 }))),
        ..Record::base(address, RecordKind::Ledger, RecordAttributes::default())
    })
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let count: usize = std::env::args().nth(1).map_or(Ok(1_000_000), |count| count.parse())?;
    let names = Embedded::memory_replica(Options::default())?;
    let records = (0..count).map(record).collect::<Result<Vec<_>, _>>()?;
    let began = Instant::now();
    names.adopt(records, 1).await?;
    println!("{count} records with a configuration each, placed and indexed in {:?}", began.elapsed());
    println!("{:<28} {:>8} {:>12} {:>12}", "q", "hits", "median", "slowest");
    for words in ["books-777", "books-7", "tenant-42/ films", "tenant-42/", "ilm", "eu-central", "nowhere", "b", "main"]
    {
        let query = SearchQuery { limit: Limit::new(20)?, ..SearchQuery::new(SearchWords::parse(words)?) };
        let (mut times, mut hits) = (Vec::with_capacity(ROUNDS), 0);
        for _ in 0..ROUNDS {
            let began = Instant::now();
            let page = names.search(&query, &|_| true).await?;
            times.push(began.elapsed());
            hits = page.items.len();
        }
        times.sort();
        println!("{words:<28} {hits:>8} {:>12} {:>12}", shown(times[ROUNDS / 2]), shown(times[ROUNDS - 1]));
    }
    drop(names);
    creations(count.min(100_000)).await
}

/// Measures the cost of a creation, which also writes the index.
async fn creations(count: usize) -> Result<(), Box<dyn Error>> {
    let names = Embedded::memory(Options::default())?;
    let began = Instant::now();
    for n in 0..count {
        let address = Address::parse(&format!("tenant-{}/db-{n}", (n * 31) % 5_000))?;
        let _ = names.create_ledger(&Call::fresh(), &address, None, None).await?;
    }
    println!("a creation in memory, one after another: {}", shown(began.elapsed() / u32::try_from(count.max(1))?));
    Ok(())
}

fn shown(time: Duration) -> String {
    format!("{:.3} ms", time.as_secs_f64() * 1_000.0)
}
