//! Rebuilds all documents while records change.

use std::collections::BTreeSet;

use nameservice_model::{Address, ChangeFeed, Cursor, Error, Limit, NameService, Observer, Progress, Record, Result};

use crate::{Action, Applied, Document, OpenSearch, RequestError};

const OPERATION: &str = "write the search index";
/// How many records are read and written together. Their documents are far below the maximum size of a request.
const PAGE: Limit = match Limit::new(200) {
    Ok(limit) => limit,
    Err(_) => Limit::ONE,
};

/// The result of a rebuild.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rebuilt {
    /// Every document includes the change at this position.
    pub position: u64,
    /// How many records there are.
    pub records: u64,
    /// How many documents of records that are gone were removed.
    pub removed: u64,
    /// The records whose documents the index rejected, with its reasons.
    pub rejected: Vec<(Address, String)>,
}

/// Writes the document of every record, from a snapshot, and removes those of records that are gone. Documents of changes that
/// come meanwhile are newer, and stay. Reports how many records are done.
pub async fn rebuild(
    index: &OpenSearch,
    names: &dyn NameService,
    feed: &dyn ChangeFeed,
    observe: Observer<'_>,
) -> Result<Rebuilt> {
    // Taken before the first page, so that changes made while the pages are read follow it. No document has the version 0.
    let position = feed.position().await?.max(1);
    let mut done = Rebuilt { position, ..Rebuilt::default() };
    let mut cursor: Option<Cursor> = None;
    loop {
        let page = names.snapshot(PAGE, cursor.as_ref(), &|_| true).await?;
        let actions = page.items.iter().map(|record| indexed(record, position)).collect();
        write(index, actions, &mut done).await?;
        done.records += page.items.len() as u64;
        observe(Progress { done: done.records, total: None });
        cursor = page.cursor;
        if cursor.is_none() {
            break;
        }
    }
    // All documents that are older now are of records that the snapshot lacks, or that the index rejected.
    loop {
        index.refresh().await.map_err(of)?;
        let rejected: BTreeSet<&Address> = done.rejected.iter().map(|(address, _)| address).collect();
        let older = index.older_than(position).await.map_err(of)?;
        let older: Vec<Address> = older.into_iter().filter(|address| !rejected.contains(address)).collect();
        if older.is_empty() {
            return Ok(done);
        }
        let found = names.lookup_all(&older).await?;
        let existing: BTreeSet<&Address> = found.iter().map(|record| &record.address).collect();
        let mut actions: Vec<Action> = found.iter().map(|record| indexed(record, position)).collect();
        let gone = older.iter().filter(|address| !existing.contains(address));
        actions.extend(gone.map(|address| Action::Delete { address: address.clone(), position }));
        done.removed += (older.len() - existing.len()) as u64;
        write(index, actions, &mut done).await?;
    }
}

fn indexed(record: &Record, position: u64) -> Action {
    Action::Index(Box::new(Document::of(record, position)))
}

async fn write(index: &OpenSearch, actions: Vec<Action>, done: &mut Rebuilt) -> Result<()> {
    let outcomes = index.bulk_again(&actions).await.map_err(of)?;
    for (action, outcome) in actions.into_iter().zip(outcomes) {
        match outcome {
            Applied::Done => {}
            Applied::Later(reason) => {
                return Err(Error::Unavailable { operation: OPERATION, source: Some(reason.into()) });
            }
            Applied::Rejected(reason) => done.rejected.push((action.address(), reason)),
        }
    }
    Ok(())
}

fn of(error: RequestError) -> Error {
    error.into_model(OPERATION)
}
