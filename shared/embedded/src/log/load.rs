//! Loading the state that a log holds.

use std::{
    panic::resume_unwind,
    path::Path,
    sync::{
        Arc,
        mpsc::{Receiver, SyncSender, sync_channel},
    },
    thread,
};

use rusqlite::Connection;

use super::{open_error, rows, upstream_of};
use crate::{
    OpenError,
    state::{Record, State},
};

/// The number of records handed over at a time, and how many such chunks may be read ahead.
const CHUNK: usize = 1024;
const CHUNKS: usize = 8;

/// Loads the state. One thread reads the records while another puts them into their maps, which takes about as long.
pub(super) fn load(connection: &Connection, path: &Path) -> Result<State, OpenError> {
    let failed = |source| open_error(path, source);
    let mut state = State::new();
    let is_replica = upstream_of(connection).map_err(failed)?.is_some();
    if is_replica {
        let base = "SELECT base, base_at FROM replica";
        let base = connection.query_row(base, [], |row| Ok((row.get(0)?, row.get(1)?)));
        (state.position, state.recorded_at) = base.map_err(failed)?;
    }
    let last = "SELECT position, at FROM changes ORDER BY position DESC LIMIT 1";
    let mut last = connection.prepare(last).map_err(failed)?;
    let mut rows = last.query([]).map_err(failed)?;
    if let Some(row) = rows.next().map_err(failed)? {
        state.position = row.get(0).map_err(failed)?;
        state.recorded_at = row.get(1).map_err(failed)?;
    }
    // The records of a snapshot have no positions of their own.
    let position = if is_replica { u64::MAX } else { state.position };
    thread::scope(|scope| {
        let (sender, records) = sync_channel(CHUNKS);
        let put = scope.spawn(move || put(state, &records));
        let read = read(connection, path, position, &sender);
        drop(sender);
        let put = put.join().unwrap_or_else(|panic| resume_unwind(panic));
        read.and(put.map_err(|twice| damaged(path, format!("there are two records {twice}"))))
    })
}

/// Puts records into a state. Returns the address of a record that occurs twice.
fn put(mut state: State, records: &Receiver<Vec<Record>>) -> Result<State, Arc<str>> {
    let twice = state.load(records.iter().flatten());
    twice.map_or(Ok(state), Err)
}

/// Reads the records of a log that ends at a position.
fn read(
    connection: &Connection,
    path: &Path,
    position: u64,
    records: &SyncSender<Vec<Record>>,
) -> Result<(), OpenError> {
    let failed = |source| open_error(path, source);
    let mut select = connection.prepare("SELECT id, body FROM records ORDER BY id").map_err(failed)?;
    let mut rows = select.query([]).map_err(failed)?;
    let mut chunk = Vec::with_capacity(CHUNK);
    while let Some(row) = rows.next().map_err(failed)? {
        let id: u64 = row.get(0).map_err(failed)?;
        let body = row.get_ref(1).and_then(|body| Ok(body.as_blob()?)).map_err(failed)?;
        let record = rows::decode_record(id, body).map_err(|error| damaged(path, error.to_string()))?;
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
