//! Compares the log of a running service with what it holds in memory, a few rows at a time.
//!
//! Rows are read in short transactions, so that the write-ahead file can be emptied between two of them. Writers continue
//! meanwhile: a row is compared only if memory held the same value before and after the transaction that read it, and
//! anything else was just written. What cannot be read in the order of its keys, because a page is damaged, is read row
//! by row, so that each record that is lost is named.
//!
//! Every row and every page that leads to one is read. What no row depends on (free pages, the index of the changes by
//! address, the header of the file) is examined by [`examine`](super::examine), and most of it when a backup is made.

use std::{
    hash::{DefaultHasher, Hash as _, Hasher as _},
    path::Path,
    sync::Arc,
    time::{Duration, Instant},
};

use nameservice_model::{Error, Finding, Fix, Result, Severity};
use rusqlite::{Connection, ErrorCode, OpenFlags, OptionalExtension as _, Row, Transaction, ffi, params, types::Value};

use super::{
    ANSWERED_LOST, CHANGE_UNREADABLE, FILE_DAMAGED, LOG_GAP, OF_REPLICAS, STATE_DIFFERS,
    look::{Chain, Problem, look_at_memory, look_at_record},
};
use crate::{
    Embedded, OpenError,
    directory::{check_header, has_log},
    log::{Failure, Mark, connect, failed, identity_of, is_unavailable, position_of},
    state::{Memory, Now, Record, State, created_at_position},
    writer::Shared,
};

/// How many rows one transaction reads. Few in tests, so that there are several.
const ROWS: usize = if cfg!(test) { 16 } else { 512 };
/// After how many bytes a transaction reads no further rows.
const BYTES: usize = 4 * 1024 * 1024;
/// How many entries of memory are noted between two rests.
const NOTED: usize = 16 * 1024;
/// How many findings are kept.
const KEPT: usize = 20;
/// How long a scrub waits, beside its rest, before it begins again because a replica has begun again.
const AGAIN: Duration = Duration::from_millis(10);

const SAVE: &str =
    "the service holds what it has answered: save that with `nameservice export` before it stops, and restore a backup";
const WRITE: &str = "write the record before the service stops, in any way: that stores what the service holds";
const ANEW: &str = "remove the directory of the replica while it is stopped: it begins again with a snapshot";
const FORGOTTEN: &str =
    "nothing, unless a request from before the purge may be repeated after a restart: it is then a new one";
const FORGET: &str = "stop the service, and run `nameservice doctor --fix`, which forgets it";
const CUT: &str =
    "stop the service, and run `nameservice doctor --fix`, which removes the changes up to there, or restore a backup";

/// What a scrub has read and found.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Scrubbed {
    /// The rows of records that were read.
    pub records: u64,
    /// The changes that were read.
    pub changes: u64,
    /// How long it worked, without its rests.
    pub worked: Duration,
    /// What is damaged: the first findings.
    pub findings: Vec<Finding>,
    /// How many findings there are.
    pub found: u64,
    /// Whether everything was read. Otherwise it ended early.
    pub is_whole: bool,
}

impl Embedded {
    /// Compares every row of the log with what this process holds in memory, while it is in use, and checks the changes, which are
    /// not in memory. Repairs nothing. In memory there is nothing to compare.
    ///
    /// It blocks, for a thread of its own. After each step it calls `rest` with the time that the step took, and with what was found
    /// until then; if that returns false, it ends early.
    pub fn scrub(&self, rest: &mut dyn FnMut(Duration, &Scrubbed) -> bool) -> Result<Scrubbed> {
        let Some(readers) = self.readers() else { return Ok(Scrubbed { is_whole: true, ..Scrubbed::default() }) };
        let mut worked = Duration::ZERO;
        loop {
            if let Some(what) = gone(readers.path())? {
                let mut finding = found(FILE_DAMAGED, what);
                finding.mend = if self.inner.is_replica { ANEW } else { SAVE }.to_owned();
                return Ok(Scrubbed {
                    worked,
                    found: 1,
                    findings: vec![finding],
                    is_whole: true,
                    ..Scrubbed::default()
                });
            }
            // A connection of its own: those of readers would show what they have cached, and not what the file has become.
            let connection = connect(readers.path(), OpenFlags::SQLITE_OPEN_READ_ONLY);
            let connection = connection.map_err(|error| failed(Failure::Sqlite(error)))?;
            // It reads every page once.
            let _ = connection.pragma_update(None, "cache_size", -256);
            let (shared, is_replica) = (&*self.inner.shared, self.inner.is_replica);
            let begun = shared.published.load_full();
            let (adopted, position) = (begun.adopted, begun.position());
            drop(begun);
            let done = Scrubbed { worked, ..Scrubbed::default() };
            let mut scrub = Scrub {
                shared,
                rest: &mut *rest,
                connection,
                is_replica,
                adopted,
                position,
                may_be_former: false,
                done,
            };
            let ended = scrub.run(readers.path());
            let done = scrub.done;
            match ended {
                Ok(()) => return Ok(Scrubbed { is_whole: true, ..done }),
                Err(Stop::Failed(error)) => return Err(error),
                Err(Stop::Replaced) if rest(AGAIN, &Scrubbed::default()) => worked = done.worked,
                Err(Stop::Replaced | Stop::Ended) => return Ok(done),
            }
        }
    }
}

/// The reason why a scrub does not continue.
enum Stop {
    /// It is to end, or the log is no longer written, and may hold more than is published.
    Ended,
    /// A snapshot of the upstream has replaced everything.
    Replaced,
    /// The log cannot be read for now.
    Failed(Error),
}

struct Scrub<'a> {
    shared: &'a Shared,
    rest: &'a mut dyn FnMut(Duration, &Scrubbed) -> bool,
    connection: Connection,
    is_replica: bool,
    /// Of the state when it began.
    adopted: u64,
    position: u64,
    /// Whether rows may have no checksum.
    may_be_former: bool,
    done: Scrubbed,
}

impl Scrub<'_> {
    fn run(&mut self, path: &Path) -> Result<(), Stop> {
        let begun = Instant::now();
        // Read first: a log in use only gets ahead of it.
        let mark = Mark::beside(path);
        let read = self.look(|log| {
            let header =
                check_header(log, path)?.err().map(|error| found(FILE_DAMAGED, nameservice_model::chain(&error)));
            let identity = identity_of(log)?;
            let named = identity.as_ref().map_or("", |(identity, _)| identity);
            let last = "SELECT position FROM changes ORDER BY position DESC LIMIT 1";
            let last = log.query_row(last, [], |row| row.get(0)).optional()?.unwrap_or(0);
            let missing = mark.map(|mark| mark.missing_in(log, named, position_of(log, last)?)).transpose()?.flatten();
            let missing = missing.map(|missing| found(ANSWERED_LOST, missing));
            Ok((identity, header.into_iter().chain(missing)))
        })?;
        let identity = match read.rows {
            Ok((identity, findings)) => {
                findings.for_each(|finding| self.report(finding, SAVE));
                identity
            }
            Err(error) => {
                self.report(found(FILE_DAMAGED, format!("SQLite cannot read the file: {}", damage(error)?)), SAVE);
                None
            }
        };
        let has_memories = identity.is_some();
        let checked_after = identity.map_or(u64::MAX, |(_, checked_after)| checked_after);
        self.may_be_former = checked_after > 0;
        self.pause(begun)?;
        self.compare::<Record>()?;
        if has_memories {
            self.compare::<Memory>()?;
        }
        self.follow(checked_after)
    }

    /// Counts a finding, and keeps the first ones.
    fn report(&mut self, mut finding: Finding, mend: &str) {
        self.done.found += 1;
        if self.done.findings.len() < KEPT {
            finding.mend = if self.is_replica { ANEW } else { mend }.to_owned();
            finding.fix = Fix::ByHand;
            self.done.findings.push(finding);
        }
    }

    /// Rests after a step.
    fn pause(&mut self, begun: Instant) -> Result<(), Stop> {
        let worked = begun.elapsed();
        self.done.worked += worked;
        if (self.rest)(worked, &self.done) { Ok(()) } else { Err(Stop::Ended) }
    }

    /// Reads the log in one transaction, between two states of memory.
    fn look<T>(&mut self, read: impl FnOnce(&Transaction<'_>) -> rusqlite::Result<T>) -> Result<Read<T>, Stop> {
        let before = self.shared.published.load_full();
        let rows = self.connection.unchecked_transaction().and_then(|transaction| read(&transaction));
        if !self.shared.has_published() {
            return Err(Stop::Ended);
        }
        let after = self.shared.published.load_full();
        match before.adopted == self.adopted && after.adopted == self.adopted {
            true => Ok(Read { before, rows, after }),
            false => Err(Stop::Replaced),
        }
    }

    /// Compares a table with memory.
    fn compare<H: Held>(&mut self) -> Result<(), Stop> {
        let mut expected = self.expected::<H>()?;
        let mut last = H::FIRST;
        loop {
            let begun = Instant::now();
            let (mut readable, mut unreadable) = (Vec::new(), Vec::new());
            let (mut next, may_be_former) = (last.clone(), self.may_be_former);
            let (mut bytes, mut is_last) = (0, true);
            let read = self.look(|log| {
                let mut select = log.prepare_cached(H::SELECT)?;
                let mut rows = select.query(params![last, ROWS])?;
                while let Some(row) = rows.next()? {
                    let (key, mut problems): (Value, _) = (row.get(0)?, Vec::new());
                    if !follows(&next, &key) {
                        return Err(disordered());
                    }
                    bytes += size_of(row, 1);
                    match H::examine(&key, row, may_be_former, &mut problems) {
                        Some(held) => readable.push((key.clone(), held)),
                        None => unreadable.push((key.clone(), problems)),
                    }
                    next = key;
                    if readable.len() + unreadable.len() == ROWS || bytes >= BYTES {
                        is_last = false;
                        break;
                    }
                }
                Ok(())
            })?;
            let rows = readable.len() + unreadable.len();
            H::count(&mut self.done, rows);
            for (key, held) in readable {
                expected.note(mark_of(&key));
                self.compare_one(&read.before, &key, &held, &read.after);
            }
            // A row of what memory holds is read again by its key, and then it is named.
            for (_, problems) in unreadable.into_iter().filter(|(key, _)| !expected.has(mark_of(key))) {
                problems.into_iter().for_each(|problem| self.report(problem.finding, H::UNKNOWN_MEND));
            }
            if let Err(error) = read.rows {
                let what = format!("the table {} cannot be read to its end: {}", H::TABLE, damage(error)?);
                self.report(found(FILE_DAMAGED, what), SAVE);
                break;
            }
            self.pause(begun)?;
            // What was created meanwhile is left to the next scrub.
            let is_newer = matches!(next, Value::Integer(id) if self.created_at(id.unsigned_abs()) > self.position);
            if is_last || is_newer {
                break;
            }
            last = next;
        }
        self.compare_unseen::<H>(&expected)
    }

    /// Reads by its key each row that was not read so far, of what memory has held since the beginning.
    fn compare_unseen<H: Held>(&mut self, expected: &Expected) -> Result<(), Stop> {
        let begun = Instant::now();
        if expected.is_seen() {
            return Ok(());
        }
        let state = self.shared.published.load_full();
        let unseen = H::all(&state).map(|(address, held)| (H::key(address, held), address));
        let unseen = unseen.filter(|(key, _)| expected.is_unseen(mark_of(key)));
        let mut unseen: Vec<(Value, Arc<str>)> = unseen.map(|(key, address)| (key, address.clone())).collect();
        unseen.sort_by(|(_, a), (_, b)| a.cmp(b));
        drop(state);
        self.pause(begun)?;
        for unseen in unseen.chunks(ROWS) {
            let (begun, may_be_former) = (Instant::now(), self.may_be_former);
            let mut rows = Vec::new();
            let read = self.look(|log| {
                for (key, address) in unseen {
                    let mut problems = Vec::new();
                    let row = log.prepare_cached(H::SELECT_ONE).and_then(|mut select| {
                        let examine = |row: &Row<'_>| Ok(H::examine(key, row, may_be_former, &mut problems));
                        select.query_row([key], examine).optional()
                    });
                    rows.push((key, address, row, problems));
                }
                Ok(())
            })?;
            // Without a transaction nothing was read. A file that cannot be read at all was reported before.
            if let Err(error) = read.rows {
                return damage(error).map(drop);
            }
            for (key, address, row, problems) in rows {
                match row {
                    Ok(Some(Some(held))) => self.compare_one(&read.before, key, &held, &read.after),
                    Ok(Some(None)) => {
                        for problem in problems {
                            self.report(problem.finding.at(&**address), H::UNREADABLE_MEND);
                        }
                    }
                    Ok(None) => {
                        let known = H::held(&read.before, address).filter(|known| H::key(address, known) == *key);
                        let known = known.filter(|known| !known.is_over(self.shared.now()));
                        if known.is_some_and(|known| is_held::<H>(&read.after, address, known)) {
                            let what = format!("{} has no row", H::name(key));
                            self.report(found(STATE_DIFFERS, what).at(&**address), H::DIFFERENT_MEND);
                        }
                    }
                    Err(error) => {
                        let what = format!("{} cannot be read: {}", H::name(key), damage(error)?);
                        self.report(found(H::UNREADABLE, what).at(&**address), SAVE);
                    }
                }
            }
            self.pause(begun)?;
        }
        Ok(())
    }

    /// Notes what memory holds now, to find what has no row.
    fn expected<H: Held>(&mut self) -> Result<Expected, Stop> {
        let state = self.shared.published.load_full();
        let mut marks = Vec::new();
        let mut all = H::all(&state).map(|(address, held)| mark_of(&H::key(address, held)));
        loop {
            let (begun, before) = (Instant::now(), marks.len());
            marks.extend(all.by_ref().take(NOTED));
            let is_all = marks.len() - before < NOTED;
            if is_all {
                marks.sort_unstable();
            }
            self.pause(begun)?;
            if is_all {
                let seen = vec![0; marks.len().div_ceil(64)];
                return Ok(Expected { marks, seen });
            }
        }
    }

    /// Compares what was read from a row with what memory held before and after that.
    fn compare_one<H: Held>(&mut self, before: &State, key: &Value, held: &H, after: &State) {
        let address = held.address(key);
        let (what, mend) = match H::held(before, address).filter(|known| H::key(address, known) == *key) {
            Some(known) if !is_held::<H>(after, address, known) || **known == *held => return,
            Some(_) => {
                ("is not what the service holds: an older value, or one that was never written", H::DIFFERENT_MEND)
            }
            None if self.may_be_new(key, before, after) => return,
            None => ("is of nothing that the service holds", H::UNKNOWN_MEND),
        };
        let finding = found(STATE_DIFFERS, format!("the row of {} {what}", H::name(key)));
        self.report(finding.at(address), mend);
    }

    /// Returns whether a row may have been written since a state that does not explain it.
    fn may_be_new(&self, key: &Value, before: &State, after: &State) -> bool {
        match key {
            Value::Integer(id) => self.created_at(id.unsigned_abs()) > before.position(),
            _ => before.position() != after.position(),
        }
    }

    /// Returns the position of the change that created a record; 0 for one of a snapshot.
    const fn created_at(&self, id: u64) -> u64 {
        if self.is_replica { created_at_position(id) } else { id }
    }

    /// Checks the changes up to the last one: each by itself, and that each follows the one before.
    fn follow(&mut self, checked_after: u64) -> Result<(), Stop> {
        let until = self.shared.published.load().position();
        let mut changes = Changes::new(checked_after, until);
        let mut is_broken = false;
        loop {
            let begun = Instant::now();
            let one_by_one = std::mem::take(&mut is_broken);
            let read = self.look(|log| if one_by_one { changes.one_by_one(log) } else { changes.in_order(log) })?;
            self.done.changes += std::mem::take(&mut changes.rows);
            for finding in changes.problems.drain(..).map(|problem| problem.finding) {
                if !(self.is_replica && OF_REPLICAS.contains(&finding.code)) {
                    self.report(finding, CUT);
                }
            }
            for (position, error) in std::mem::take(&mut changes.unread) {
                let what = format!("change {position} cannot be read: {}", damage(error)?);
                self.report(found(CHANGE_UNREADABLE, what), CUT);
            }
            let is_all = match read.rows {
                Ok(is_all) => is_all,
                Err(error) => {
                    let error = damage(error)?;
                    if one_by_one {
                        self.report(found(FILE_DAMAGED, format!("the changes cannot be read: {error}")), SAVE);
                        return Ok(());
                    }
                    let after = changes.after;
                    self.report(
                        found(FILE_DAMAGED, format!("the changes after {after} cannot be read in order: {error}")),
                        SAVE,
                    );
                    is_broken = true;
                    false
                }
            };
            self.pause(begun)?;
            if is_all {
                break;
            }
        }
        if let Some(reached) = changes.lost {
            self.report(found(LOG_GAP, format!("the changes {} to {until} are missing", reached + 1)), SAVE);
        }
        Ok(())
    }
}

/// What one transaction has read, and what memory held before and after it.
struct Read<T> {
    before: Arc<State>,
    rows: rusqlite::Result<T>,
    after: Arc<State>,
}

/// What a table and memory both hold.
trait Held: PartialEq + Sized + 'static {
    const TABLE: &'static str;
    /// Selects a number of rows after a key.
    const SELECT: &'static str;
    const SELECT_ONE: &'static str;
    /// Comes before all keys.
    const FIRST: Value;
    /// The code of the finding for a row that cannot be read.
    const UNREADABLE: &'static str;
    const UNREADABLE_MEND: &'static str;
    const DIFFERENT_MEND: &'static str;
    /// Of a row that memory knows nothing of.
    const UNKNOWN_MEND: &'static str;

    fn all(state: &State) -> impl Iterator<Item = (&Arc<str>, &Arc<Self>)>;
    fn held<'s>(state: &'s State, address: &str) -> Option<&'s Arc<Self>>;
    fn key(address: &str, held: &Self) -> Value;
    fn address<'a>(&'a self, key: &'a Value) -> &'a str;
    fn name(key: &Value) -> String;
    fn examine(key: &Value, row: &Row<'_>, may_be_former: bool, problems: &mut Vec<Problem>) -> Option<Self>;
    fn count(done: &mut Scrubbed, rows: usize);

    /// Returns whether it no longer counts, so that its row may be missing.
    fn is_over(&self, _: Now) -> bool {
        false
    }
}

impl Held for Record {
    const TABLE: &'static str = "records";
    const SELECT: &'static str = "SELECT id, body FROM records WHERE id > ?1 ORDER BY id LIMIT ?2";
    const SELECT_ONE: &'static str = "SELECT id, body FROM records WHERE id = ?1";
    const FIRST: Value = Value::Integer(i64::MIN);
    const UNREADABLE: &'static str = "record-unreadable";
    const UNREADABLE_MEND: &'static str = WRITE;
    const DIFFERENT_MEND: &'static str = WRITE;
    // No write stores another row in its place, and the next start finds two of one address.
    const UNKNOWN_MEND: &'static str = SAVE;

    fn all(state: &State) -> impl Iterator<Item = (&Arc<str>, &Arc<Self>)> {
        state.records.iter()
    }

    fn held<'s>(state: &'s State, address: &str) -> Option<&'s Arc<Self>> {
        state.records.get(address)
    }

    fn key(_: &str, held: &Self) -> Value {
        Value::Integer(held.id.cast_signed())
    }

    fn address<'a>(&'a self, _: &'a Value) -> &'a str {
        &self.address
    }

    fn name(key: &Value) -> String {
        match key {
            Value::Integer(id) => format!("record {id}"),
            _ => "a record".to_owned(),
        }
    }

    fn examine(key: &Value, row: &Row<'_>, may_be_former: bool, problems: &mut Vec<Problem>) -> Option<Self> {
        let Value::Integer(id) = key else { return None };
        look_at_record(id.cast_unsigned(), row, may_be_former, problems)
    }

    fn count(done: &mut Scrubbed, rows: usize) {
        done.records += rows as u64;
    }
}

impl Held for Memory {
    const TABLE: &'static str = "memories";
    const SELECT: &'static str = "SELECT address, body FROM memories WHERE address > ?1 ORDER BY address LIMIT ?2";
    const SELECT_ONE: &'static str = "SELECT address, body FROM memories WHERE address = ?1";
    const FIRST: Value = Value::Text(String::new());
    const UNREADABLE: &'static str = "memory-unreadable";
    const UNREADABLE_MEND: &'static str = FORGET;
    const DIFFERENT_MEND: &'static str = FORGOTTEN;
    // The doctor forgets one that cannot be read.
    const UNKNOWN_MEND: &'static str = FORGET;

    fn all(state: &State) -> impl Iterator<Item = (&Arc<str>, &Arc<Self>)> {
        state.memories.iter()
    }

    fn held<'s>(state: &'s State, address: &str) -> Option<&'s Arc<Self>> {
        state.memories.stored(address)
    }

    fn key(address: &str, _: &Self) -> Value {
        Value::Text(address.to_owned())
    }

    fn address<'a>(&'a self, key: &'a Value) -> &'a str {
        if let Value::Text(address) = key { address } else { "" }
    }

    fn name(_: &Value) -> String {
        "what is remembered of a purged address".to_owned()
    }

    fn examine(key: &Value, row: &Row<'_>, _: bool, problems: &mut Vec<Problem>) -> Option<Self> {
        let Value::Text(address) = key else { return None };
        look_at_memory(address, row, problems)
    }

    fn count(_: &mut Scrubbed, _: usize) {}

    fn is_over(&self, now: Now) -> bool {
        self.is_over(now)
    }
}

/// What memory held when a scrub began, as 64 bits each, and whether it was read.
struct Expected {
    /// Sorted.
    marks: Vec<u64>,
    /// A bit for each.
    seen: Vec<u64>,
}

impl Expected {
    fn has(&self, mark: u64) -> bool {
        self.marks.binary_search(&mark).is_ok()
    }

    fn note(&mut self, mark: u64) {
        if let Ok(at) = self.marks.binary_search(&mark) {
            self.seen[at / 64] |= 1 << (at % 64);
        }
    }

    fn is_unseen(&self, mark: u64) -> bool {
        self.marks.binary_search(&mark).is_ok_and(|at| self.seen[at / 64] & (1 << (at % 64)) == 0)
    }

    fn is_seen(&self) -> bool {
        self.seen.iter().map(|bits| bits.count_ones() as usize).sum::<usize>() == self.marks.len()
    }
}

/// The changes on their way through a scrub.
struct Changes {
    chain: Chain,
    checked_after: u64,
    /// The last position that was read or tried.
    after: u64,
    /// The last position to read.
    until: u64,
    rows: u64,
    problems: Vec<Problem>,
    unread: Vec<(u64, rusqlite::Error)>,
    /// The last position of the log, if that is before the last one to read.
    lost: Option<u64>,
}

impl Changes {
    const fn new(checked_after: u64, until: u64) -> Self {
        Self {
            chain: Chain::new(checked_after),
            checked_after,
            after: 0,
            until,
            rows: 0,
            problems: Vec::new(),
            unread: Vec::new(),
            lost: None,
        }
    }

    /// Reads the next ones. Returns whether they are the last.
    fn in_order(&mut self, log: &Connection) -> rusqlite::Result<bool> {
        let oldest = oldest(log).unwrap_or_default();
        let mut select = log.prepare_cached(
            "SELECT position, at, address, body FROM changes WHERE position > ?1 AND position <= ?2
             ORDER BY position LIMIT ?3",
        )?;
        let mut rows = select.query(params![self.after, self.until, ROWS])?;
        let (mut read, mut bytes, mut is_all) = (0, 0, true);
        while let Some(row) = rows.next()? {
            let position: u64 = row.get(0)?;
            if position <= self.after {
                return Err(disordered());
            }
            bytes += size_of(row, 3);
            self.take(position, row, oldest);
            read += 1;
            if read == ROWS || bytes >= BYTES {
                is_all = false;
                break;
            }
        }
        if is_all {
            self.end(log, oldest)?;
        }
        Ok(is_all)
    }

    /// Reads the next ones by their positions. Returns whether they are the last.
    fn one_by_one(&mut self, log: &Connection) -> rusqlite::Result<bool> {
        let oldest = match oldest(log) {
            // What is left, if the first of them cannot be read.
            Err(_) if self.after == 0 => Some(log.query_row("SELECT min(position) FROM tail", [], |row| row.get(0))?),
            oldest => oldest.unwrap_or_default(),
        };
        let first = (self.after + 1).max(oldest.unwrap_or(0));
        let last = self.until.min(first.saturating_add(ROWS as u64));
        let mut select = log.prepare_cached("SELECT position, at, address, body FROM changes WHERE position = ?1")?;
        for position in first..=last {
            let mut rows = select.query([position])?;
            match rows.next() {
                Ok(Some(row)) => self.take(position, row, oldest),
                Ok(None) => {}
                Err(error) => {
                    self.chain.skip(position);
                    self.unread.push((position, error));
                }
            }
            self.after = position;
        }
        let is_all = last >= self.until;
        if is_all {
            self.end(log, oldest)?;
        }
        Ok(is_all)
    }

    fn take(&mut self, position: u64, row: &Row<'_>, oldest: Option<u64>) {
        if Some(position) == oldest {
            // What was before it was removed.
            self.chain = Chain::new(self.checked_after);
        }
        let _ = self.chain.follow(position, row, &mut self.problems);
        self.after = position;
        self.rows += 1;
    }

    /// Notes whether the last ones are missing.
    fn end(&mut self, log: &Connection, oldest: Option<u64>) -> rusqlite::Result<()> {
        let reached = position_of(log, self.chain.position)?;
        self.lost = (reached < self.until && oldest.is_none_or(|oldest| oldest <= self.until)).then_some(reached);
        Ok(())
    }
}

/// Returns the position of the oldest change.
fn oldest(log: &Connection) -> rusqlite::Result<Option<u64>> {
    log.query_row("SELECT position FROM changes ORDER BY position LIMIT 1", [], |row| row.get(0)).optional()
}

/// Returns what is wrong with a file that no longer holds the log. It is not opened: of one that was cut to nothing, SQLite removes the
/// write-ahead file, which is in use.
fn gone(path: &Path) -> Result<Option<String>> {
    match has_log(path) {
        Ok(true) => Ok(None),
        Ok(false) => Ok(Some(format!("{} is gone", path.display()))),
        Err(error @ OpenError::Io { .. }) => Err(failed(Failure::File(error))),
        Err(error) => Ok(Some(nameservice_model::chain(&error))),
    }
}

/// Returns the bytes of a column.
fn size_of(row: &Row<'_>, column: usize) -> usize {
    row.get_ref(column).ok().and_then(|value| value.as_blob().ok()).map_or(0, <[u8]>::len)
}

fn found(code: &'static str, what: String) -> Finding {
    Finding::new(code, Severity::Error, what, "")
}

/// Returns whether a state still holds the same value of an address.
fn is_held<H: Held>(state: &State, address: &str, known: &Arc<H>) -> bool {
    H::held(state, address).is_some_and(|now| Arc::ptr_eq(known, now))
}

/// Returns whether a key comes after another one.
fn follows(last: &Value, key: &Value) -> bool {
    match (last, key) {
        (Value::Integer(last), Value::Integer(key)) => key > last,
        (Value::Text(last), Value::Text(key)) => key > last,
        _ => false,
    }
}

fn disordered() -> rusqlite::Error {
    let what = "rows are not in the order of their keys".to_owned();
    rusqlite::Error::SqliteFailure(ffi::Error::new(ffi::SQLITE_CORRUPT), Some(what))
}

/// Returns the 64 bits that stand for a key.
fn mark_of(key: &Value) -> u64 {
    match key {
        Value::Integer(id) => id.cast_unsigned(),
        Value::Text(address) => {
            let mut hasher = DefaultHasher::new();
            address.hash(&mut hasher);
            hasher.finish()
        }
        _ => 0,
    }
}

/// Returns an error as damage, unless it passes. A disk that cannot be read has damaged what is there.
fn damage(error: rusqlite::Error) -> Result<String, Stop> {
    match error.sqlite_error_code() {
        Some(ErrorCode::SystemIoFailure) => Ok(error.to_string()),
        _ if is_unavailable(&error) => Err(Stop::Failed(failed(Failure::Sqlite(error)))),
        _ => Ok(error.to_string()),
    }
}
