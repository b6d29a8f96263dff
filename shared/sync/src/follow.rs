//! Continues with the changes of a source after a copy.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use nameservice_model::{Address, Backend, Change, ChangeKind, ChangedPart, Limit, Run};
use tokio::time::sleep;

use crate::{
    Found, Result, Source, SyncError,
    copy::{Copier, CopyObserver, CopyOptions, CopyProgress, copy},
    report::Report,
};

/// How many changes are read in one request.
const PAGE: Limit = match Limit::new(500) {
    Ok(limit) => limit,
    Err(_) => Limit::ONE,
};
/// How long one wait for changes lasts.
const WAIT: Duration = Duration::from_secs(20);
/// The first and the longest pause while a side cannot be used.
const PAUSES: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(10));

/// The result of a mirror for a run of changes, or for a copy of all records.
#[derive(Clone, Debug)]
pub struct Mirrored {
    /// Everything up to this position of the source's feed was processed.
    pub position: u64,
    /// The outcome.
    pub report: Report,
    /// Records that were purged at the source and still exist at the target.
    pub purged: Vec<Address>,
}

/// Copies, and then continues with the changes of the source until `report` returns false. If the feed no longer holds
/// what follows, everything is copied again. Records that are purged at the source stay at the target and are reported.
pub async fn mirror(
    source: &dyn Source,
    target: &Arc<dyn Backend>,
    options: &CopyOptions,
    prefix: Option<&str>,
    observe: CopyObserver<'_>,
    mut report: impl FnMut(Mirrored) -> bool + Send,
) -> Result<()> {
    let feed = source.feed().ok_or_else(|| SyncError::Unsupported("a dump has no changes to follow".into()))?;
    let mut position = None;
    let mut pause = PAUSES.0;
    loop {
        let step = match position {
            None => whole(source, target, options, observe).await,
            Some(after) => run(source, feed, target, options, prefix, after).await,
        };
        match step {
            Ok(Some(mirrored)) => {
                pause = PAUSES.0;
                let unchanged = position == Some(mirrored.position);
                position = Some(mirrored.position);
                if !unchanged && !report(mirrored) {
                    return Ok(());
                }
            }
            // What follows has expired.
            Ok(None) => position = None,
            Err(error @ (SyncError::Source(_) | SyncError::Target(_))) => {
                tracing::warn!(error = nameservice_model::chain(&error), "the mirror waits and tries again");
                sleep(pause).await;
                pause = PAUSES.1.min(pause * 2);
            }
            Err(error) => return Err(error),
        }
        observe(CopyProgress::default());
    }
}

async fn whole(
    source: &dyn Source,
    target: &Arc<dyn Backend>,
    options: &CopyOptions,
    observe: CopyObserver<'_>,
) -> Result<Option<Mirrored>> {
    let report = copy(source, target, options, observe).await?;
    let position =
        report.position.ok_or_else(|| SyncError::Unsupported("the source has no change feed to follow".into()))?;
    Ok(Some(Mirrored { position, report, purged: Vec::new() }))
}

/// Processes the changes after a position, or waits for them. Returns `None` if they have expired.
async fn run(
    source: &dyn Source,
    feed: &dyn nameservice_model::ChangeFeed,
    target: &Arc<dyn Backend>,
    options: &CopyOptions,
    prefix: Option<&str>,
    after: u64,
) -> Result<Option<Mirrored>> {
    let changes = match feed.changes(after, PAGE).await.map_err(SyncError::Source)? {
        Run::Gone { .. } => return Ok(None),
        Run::Changes(changes) => changes,
    };
    let Some(position) = changes.last().map(|change| change.position) else {
        feed.wait(after, WAIT).await.map_err(SyncError::Source)?;
        return Ok(Some(Mirrored { position: after, report: Report::default(), purged: Vec::new() }));
    };
    let is_wanted = |change: &&Change| prefix.is_none_or(|prefix| change.address.as_str().starts_with(prefix));
    let addresses: BTreeSet<Address> = changes.iter().filter(is_wanted).map(|change| change.address.clone()).collect();
    let addresses: Vec<Address> = addresses.into_iter().collect();
    let records = source.lookup_all(&addresses).await?.unwrap_or_default();
    let mut purged: Vec<Address> = changes
        .iter()
        .filter(is_wanted)
        .filter(|change| change.part == ChangedPart::Meta && change.kind == ChangeKind::Purged)
        .map(|change| change.address.clone())
        .filter(|address| records.iter().all(|record| record.address != *address))
        .collect();
    purged.sort();
    purged.dedup();
    let copier = Copier::new(source, target, options);
    copier.page(records.into_iter().map(|record| Found::Record(Box::new(record))).collect()).await?;
    Ok(Some(Mirrored { position, report: copier.into_report().0, purged }))
}
