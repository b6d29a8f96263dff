//! Loading the state that a log holds.

use std::{
    collections::HashMap,
    panic::resume_unwind,
    path::Path,
    sync::{
        Arc,
        mpsc::{Receiver, SyncSender, sync_channel},
    },
    thread,
};

use nameservice_model::{ChangeKind, ChangedPart};
use rusqlite::Connection;

use super::{identity_of, rows, space::open_error, upstream_of};
use crate::{
    OpenError,
    state::{Record, State},
};

/// The number of records handed over at a time, and how many such chunks may be read ahead.
const CHUNK: usize = 1024;
const CHUNKS: usize = 8;
/// How many of the last changes are checked one by one when a log is opened.
const CHAINED: u64 = 10_000;

/// What a log holds.
pub(super) struct Loaded {
    pub(super) state: State,
    /// The checksum of all changes.
    pub(super) chain: u32,
    /// The identity of the log; `None` if it has the format before.
    pub(super) identity: Option<String>,
}

/// Loads the state. One thread reads the records while another puts them into their maps, which takes about as long.
pub(super) fn load(connection: &Connection, path: &Path) -> Result<Loaded, OpenError> {
    let failed = |source| open_error(path, source);
    let (mut state, mut chain) = (State::new(), 0);
    let (identity, checked_after) = identity_of(connection).map_err(failed)?.unzip();
    let checked_after = checked_after.unwrap_or(u64::MAX);
    let is_replica = upstream_of(connection).map_err(failed)?.is_some();
    if is_replica {
        let base = "SELECT base, base_at FROM replica";
        let base = connection.query_row(base, [], |row| Ok((row.get(0)?, row.get(1)?)));
        (state.position, state.recorded_at) = base.map_err(failed)?;
    }
    let last = "SELECT position, at, address, body FROM changes ORDER BY position DESC LIMIT 1";
    let mut last = connection.prepare(last).map_err(failed)?;
    let mut rows = last.query([]).map_err(failed)?;
    if let Some(row) = rows.next().map_err(failed)? {
        state.position = row.get(0).map_err(failed)?;
        state.recorded_at = row.get(1).map_err(failed)?;
        let sealed = || Ok::<_, rusqlite::Error>((row.get_ref(2)?.as_str()?, row.get_ref(3)?.as_blob()?));
        let (address, body) = sealed().map_err(failed)?;
        let checked = rows::checked_change(state.position, state.recorded_at, address, body);
        chain = match checked.map_err(|error| damaged(path, error.to_string()))? {
            (_, Some(chain)) => chain,
            (_, None) if state.position <= checked_after => 0,
            (_, None) => return Err(damaged(path, format!("change {} has no checksum", state.position))),
        };
    }
    drop(rows);
    if !is_replica {
        // A replica's changes have the times of its upstream, so that what is removed of them need not be the oldest.
        check_gaps(connection, path)?;
    }
    if identity.is_some() {
        load_memories(connection, path, &mut state)?;
    }
    // The records of a snapshot have no positions of their own.
    let position = if is_replica { u64::MAX } else { state.position };
    let state = thread::scope(|scope| {
        let (sender, records) = sync_channel(CHUNKS);
        let put = scope.spawn(move || put(state, &records));
        let read = read(connection, path, position, checked_after > 0, &sender);
        drop(sender);
        let put = put.join().unwrap_or_else(|panic| resume_unwind(panic));
        read.and(put.map_err(|twice| damaged(path, format!("there are two records {twice}"))))
    })?;
    let last = check_chain(connection, path, state.position, checked_after)?;
    if !is_replica {
        check_records(&state, &last, path)?;
    }
    Ok(Loaded { state, chain, identity })
}

/// Checks that no change is missing between the first and the last: an older file with a newer write-ahead file may
/// have lost some in between.
fn check_gaps(connection: &Connection, path: &Path) -> Result<(), OpenError> {
    let failed = |source| open_error(path, source);
    let mut next = None;
    for table in ["log", "tail"] {
        let range = format!("SELECT count(*), coalesce(min(position), 0), coalesce(max(position), 0) FROM {table}");
        let range = connection.query_row(&range, [], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)));
        let (count, first, last): (u64, u64, u64) = range.map_err(failed)?;
        if count == 0 {
            continue;
        }
        if let Some(next) = next.filter(|next| *next != first) {
            return Err(damaged(path, format!("change {first} does not follow change {}", next - 1)));
        }
        // Positions are SQLite's integers, which end long before those of Rust.
        let expected = last - first + 1;
        if count != expected {
            let reason = format!("{} changes are missing between {first} and {last}", expected.saturating_sub(count));
            return Err(damaged(path, reason));
        }
        next = Some(last + 1);
    }
    Ok(())
}

/// The last change of each part, as its position and the watermark that it left; `None` if it deleted the part.
type Last = HashMap<(Arc<str>, ChangedPart), (u64, Option<i64>)>;

/// Checks that each of the last changes follows the one before it, and returns what they leave. One that is damaged in
/// itself does not prevent the start: reading it returns the error.
fn check_chain(connection: &Connection, path: &Path, position: u64, checked_after: u64) -> Result<Last, OpenError> {
    let failed = |source| open_error(path, source);
    let mut last = Last::new();
    let after = position.saturating_sub(CHAINED).max(checked_after.min(position));
    let select = "SELECT position, at, address, body FROM changes WHERE position > ?1 ORDER BY position";
    let mut select = connection.prepare(select).map_err(failed)?;
    let mut rows = select.query([after]).map_err(failed)?;
    let mut before: Option<(u64, u32)> = None;
    while let Some(row) = rows.next().map_err(failed)? {
        let read = || {
            let (position, at): (u64, i64) = (row.get(0)?, row.get(1)?);
            Ok::<_, rusqlite::Error>((position, at, row.get_ref(2)?.as_str()?, row.get_ref(3)?.as_blob()?))
        };
        let (position, at, address, body) = read().map_err(failed)?;
        let (Ok((change, Some(chain))), Some((own, _))) =
            (rows::checked_change(position, at, address, body), rows::sums_of(body))
        else {
            // What it has changed is not known.
            last.clear();
            before = None;
            continue;
        };
        if let Some((last, chained)) = before
            && last + 1 == position
            && rows::chained(chained, own) != chain
        {
            return Err(damaged(path, format!("change {position} does not follow the one before it")));
        }
        before = Some((position, chain));
        let watermark = (change.kind != ChangeKind::Purged).then_some(change.watermark);
        last.insert((Arc::from(address), change.part), (position, watermark));
    }
    Ok(last)
}

/// Checks that the records have what the last changes have left: an older file with a newer write-ahead file may hold
/// older records.
fn check_records(state: &State, last: &Last, path: &Path) -> Result<(), OpenError> {
    for ((address, part), (position, watermark)) in last {
        let found = state.records.get(address).and_then(|record| rows::watermark_of(record, *part));
        if !rows::explains(*part, *watermark, found) {
            return Err(damaged(path, format!("the record `{address}` does not have what change {position} has left")));
        }
    }
    Ok(())
}

fn load_memories(connection: &Connection, path: &Path, state: &mut State) -> Result<(), OpenError> {
    let failed = |source| open_error(path, source);
    let mut select = connection.prepare("SELECT address, body FROM memories").map_err(failed)?;
    let mut rows = select.query([]).map_err(failed)?;
    while let Some(row) = rows.next().map_err(failed)? {
        let read = || Ok::<_, rusqlite::Error>((row.get_ref(0)?.as_str()?, row.get_ref(1)?.as_blob()?));
        let (address, body) = read().map_err(failed)?;
        let memory =
            rows::decode_memory(address, body).map_err(|error| damaged(path, format!("table memories: {error}")))?;
        state.memories.put(Arc::from(address), Arc::new(memory));
    }
    Ok(())
}

/// Puts records into a state. Returns the address of a record that occurs twice.
fn put(mut state: State, records: &Receiver<Vec<Record>>) -> Result<State, Arc<str>> {
    let twice = state.load(records.iter().flatten());
    twice.map_or(Ok(state), Err)
}

/// Reads the records of a log that ends at a position. `may_be_former`: whether records may have no checksum.
fn read(
    connection: &Connection,
    path: &Path,
    position: u64,
    may_be_former: bool,
    records: &SyncSender<Vec<Record>>,
) -> Result<(), OpenError> {
    let failed = |source| open_error(path, source);
    let mut select = connection.prepare("SELECT id, body FROM records ORDER BY id").map_err(failed)?;
    let mut rows = select.query([]).map_err(failed)?;
    let mut chunk = Vec::with_capacity(CHUNK);
    while let Some(row) = rows.next().map_err(failed)? {
        let id: u64 = row.get(0).map_err(failed)?;
        let body = row.get_ref(1).and_then(|body| Ok(body.as_blob()?)).map_err(failed)?;
        let (record, is_checked) = rows::checked_record(id, body).map_err(|error| damaged(path, error.to_string()))?;
        if !is_checked && !may_be_former {
            return Err(damaged(path, format!("record {id} has no checksum")));
        }
        if id > position {
            return Err(damaged(path, format!("record {id} is newer than the last change, {position}")));
        }
        chunk.push(record);
        // The receiver has stopped at a record that occurs twice.
        if chunk.len() == CHUNK && records.send(std::mem::replace(&mut chunk, Vec::with_capacity(CHUNK))).is_err() {
            return Ok(());
        }
    }
    let _ = records.send(chunk);
    Ok(())
}

fn damaged(path: &Path, reason: String) -> OpenError {
    OpenError::Damaged { path: path.to_owned(), reason }
}
