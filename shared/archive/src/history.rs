//! The history of one record, found by scanning the objects of its time.

use nameservice_model::{Address, Change, ChangeFeed as _, History, HistoryQuery, Result, RunMemory};

use crate::Archive;

/// How many objects are scanned for one answer.
const LOOKS: usize = 20;

pub(crate) async fn of(archive: &Archive, address: &Address, query: &HistoryQuery) -> Result<History> {
    match query.newest_first {
        true => newest_first(archive, address, query).await,
        false => oldest_first(archive, address, query).await,
    }
}

fn is_wanted(change: &Change, address: &Address, query: &HistoryQuery) -> bool {
    change.address == *address && query.part.is_none_or(|part| part == change.part)
}

async fn oldest_first(archive: &Archive, address: &Address, query: &HistoryQuery) -> Result<History> {
    let (mut changes, mut looked_at, mut memory) = (Vec::new(), query.after, RunMemory::default());
    let before = query.before.unwrap_or(u64::MAX);
    for _ in 0..LOOKS {
        let Some(segment) = archive.segment_at(looked_at + 1).await? else {
            return Ok(History { changes, more_after: None });
        };
        for change in segment.changes().iter().filter(|change| change.position > looked_at) {
            if change.position >= before {
                return Ok(History { changes, more_after: None });
            }
            if is_wanted(change, address, query) {
                memory.add(&change.payload);
                changes.push(change.clone());
                if changes.len() == query.limit.get() || memory.is_full() {
                    return Ok(History { changes, more_after: Some(change.position) });
                }
            }
        }
        looked_at = segment.last;
        if looked_at >= before.saturating_sub(1) {
            return Ok(History { changes, more_after: None });
        }
    }
    Ok(History { changes, more_after: Some(looked_at) })
}

async fn newest_first(archive: &Archive, address: &Address, query: &HistoryQuery) -> Result<History> {
    let end = archive.position().await?;
    let mut before = query.before.unwrap_or(u64::MAX).min(end.saturating_add(1));
    let (mut changes, mut memory) = (Vec::new(), RunMemory::default());
    for _ in 0..LOOKS {
        if before <= query.after.saturating_add(1) {
            return Ok(History { changes, more_after: None });
        }
        let Some(segment) = archive.segment_at(before - 1).await? else {
            return Ok(History { changes, more_after: None });
        };
        for change in segment.changes().iter().rev().filter(|change| change.position < before) {
            if change.position <= query.after {
                return Ok(History { changes, more_after: None });
            }
            if is_wanted(change, address, query) {
                memory.add(&change.payload);
                changes.push(change.clone());
                if changes.len() == query.limit.get() || memory.is_full() {
                    return Ok(History { changes, more_after: Some(change.position) });
                }
            }
        }
        before = segment.first;
    }
    Ok(History { changes, more_after: Some(before) })
}
