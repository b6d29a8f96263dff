//! Keeps a custom read model: how many commits each tenant has, by the first segment of the name.
//!
//! ```sh
//! cargo run -p nameservice --example projection -- memory:
//! ```

use std::{collections::BTreeMap, sync::Arc};

use nameservice::{
    Error, Record,
    projector::{MemoryRows, Projection, Row},
};
use serde::{Deserialize, Serialize};

const COMMIT: &str = "bafybeigdyrzt5sfp7udm7hu76uh7y26nf3efuylqabf3oclgtqy55fbzdi";

/// The row of a record.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Commits {
    tenant: String,
    commits: i64,
}

impl Row for Commits {
    /// Indexes the rows by tenant.
    fn keys(&self) -> Vec<(&'static str, String)> {
        vec![("by-tenant", self.tenant.clone())]
    }
}

struct CommitsOfTenants;

impl Projection for CommitsOfTenants {
    type Row = Commits;

    fn name(&self) -> &str {
        "commits-of-tenants"
    }

    /// Depends only on the record, so that a rebuild makes the same rows.
    fn row(&self, record: &Record) -> Option<Commits> {
        let (tenant, _) = record.address.name().split_once('/')?;
        Some(Commits { tenant: tenant.to_owned(), commits: record.t() })
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Error> {
    let url = std::env::args().nth(1).unwrap_or_else(|| "memory:".into());
    let ns = nameservice::connect(&url).await?;
    for (name, t) in [("acme/books", 3), ("acme/films", 4), ("other/db", 1)] {
        ns.create_ledger(name).head(COMMIT, t).or_existing().await?;
    }
    // In memory here; `projector::TableRows` keeps them in a table of DynamoDB, with the checkpoint.
    let rows = Arc::new(MemoryRows::new());
    // `run` would follow the feed from here on.
    let progress = ns.projector(CommitsOfTenants, rows.clone()).catch_up(None).await?;
    let mut tenants: BTreeMap<String, i64> = BTreeMap::new();
    for (_, _, row) in rows.all() {
        *tenants.entry(row.tenant.clone()).or_default() += row.commits;
    }
    println!("at position {}: {tenants:?}", progress.position);
    Ok(())
}
