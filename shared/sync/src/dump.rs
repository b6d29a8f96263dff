//! Records as text: JSON Lines.
//!
//! ```text
//! {"nameservice_dump":1,"position":17,"created_at":"2026-11-21T20:00:00Z"}    the head
//! {"address":"mydb:main","kind":"ledger", …}                                  a record a line, as the service shows it
//! {"end":{"records":1,"sha256":"…"}}                                          the hash of all lines before it
//! ```
//!
//! A record comes after everything that it was branched from or depends on, so a dump can be read in one pass. One that
//! was cut off lacks its last line, and one that was edited has another hash.

use std::{
    collections::HashSet,
    fs::File,
    io::{self, BufRead, BufReader, BufWriter, Read as _, Write},
    path::{Path, PathBuf},
    sync::Mutex,
};

use async_trait::async_trait;
use futures_util::future::BoxFuture;
use jiff::Timestamp;
use nameservice_api as api;
use nameservice_model::{Address, Record};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use tokio::task::spawn_blocking;

use crate::{
    Found, Reading, Result, Source, SyncError,
    compare::fingerprint,
    copy::{Observer, Progress},
    report::Records,
};

/// The version of the format.
const FORMAT: u32 = 1;
/// The longest line that is read: a service takes bodies of 256 KiB, and its record shows several.
const MAX_LINE: usize = 16 * 1024 * 1024;
/// How many lines are read at once.
const PAGE: usize = 500;
const MAX_DEPTH: usize = 64;

#[derive(Debug, Serialize, Deserialize)]
struct Head {
    nameservice_dump: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    position: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    created_at: Option<String>,
}

#[derive(Debug, Serialize, Deserialize)]
struct Last {
    end: End,
}

#[derive(Debug, Serialize, Deserialize, PartialEq)]
struct End {
    records: u64,
    sha256: String,
}

/// Where a dump is: a file, or a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DumpPlace {
    /// A file.
    File(PathBuf),
    /// Standard input or output.
    Stream,
}

impl std::fmt::Display for DumpPlace {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::File(path) => write!(f, "{}", path.display()),
            Self::Stream => f.write_str("the stream"),
        }
    }
}

/// What an export has written.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Exported {
    /// The position of the source's feed before the first record was read, where it has a feed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub position: Option<u64>,
    /// How many records were written.
    pub records: u64,
    /// What could not be read as a record, and was left out.
    pub unreadable: Records,
}

/// Writes all records of a source to a file, whole or not at all, or to standard output. What a record needs is written
/// before it, also where the source's own order is another; each address that was written takes 16 bytes of memory.
pub async fn export(source: &dyn Source, to: &DumpPlace, observe: Observer<'_>) -> Result<Exported> {
    match to {
        DumpPlace::Stream => write_dump(source, io::stdout(), observe).await,
        DumpPlace::File(path) => {
            let partial = partial(path);
            let file_error = |source| SyncError::File { path: path.clone(), source };
            let file = File::create(&partial).map_err(file_error)?;
            let synced = file.try_clone().map_err(file_error)?;
            let written = write_dump(source, file, observe).await;
            let exported = match written {
                Ok(exported) => exported,
                Err(error) => {
                    // The next export begins again.
                    let _ = std::fs::remove_file(&partial);
                    return Err(error);
                }
            };
            synced.sync_all().and_then(|()| std::fs::rename(&partial, path)).map_err(file_error)?;
            Ok(exported)
        }
    }
}

fn partial(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{}.partial", std::process::id()));
    PathBuf::from(name)
}

async fn write_dump(source: &dyn Source, to: impl Write + Send, observe: Observer<'_>) -> Result<Exported> {
    let mut reading = source.read().await?;
    let position = reading.position();
    let mut dump = Dump {
        source,
        to: BufWriter::new(to),
        hash: Sha256::new(),
        written: HashSet::new(),
        exported: Exported { position, ..Exported::default() },
    };
    let created_at = Some(Timestamp::now().to_string());
    dump.line(&Head { nameservice_dump: FORMAT, position, created_at })?;
    let mut read = 0;
    loop {
        let found = reading.next().await?;
        if found.is_empty() {
            break;
        }
        read += found.len() as u64;
        for found in found {
            match found {
                Found::Record(record) => dump.record(*record, 0).await?,
                Found::Unreadable { place, reason } => dump.exported.unreadable.add_reason(&place, reason),
            }
        }
        observe(Progress { read, written: dump.exported.records, is_comparing: false });
    }
    let end =
        End { records: dump.exported.records, sha256: base16ct::lower::encode_string(&dump.hash.clone().finalize()) };
    dump.line(&Last { end })?;
    dump.to.flush().map_err(SyncError::Stream)?;
    Ok(dump.exported)
}

struct Dump<'a, W: Write> {
    source: &'a dyn Source,
    to: BufWriter<W>,
    hash: Sha256,
    written: HashSet<[u8; 16]>,
    exported: Exported,
}

impl<W: Write + Send> Dump<'_, W> {
    fn line(&mut self, line: &impl Serialize) -> Result<()> {
        let mut text = serde_json::to_vec(line).map_err(|error| SyncError::Other(error.into()))?;
        text.push(b'\n');
        self.hash.update(&text);
        self.to.write_all(&text).map_err(SyncError::Stream)
    }

    fn record(&mut self, record: Record, depth: usize) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            if !self.written.insert(fingerprint(&record.address)) {
                return Ok(());
            }
            let branched = record.source_branch.as_deref().and_then(|branch| record.address.with_branch(branch).ok());
            let dependencies = record.dependencies.iter().filter_map(|text| Address::parse(text).ok());
            let missing: Vec<Address> = branched
                .into_iter()
                .chain(dependencies)
                .filter(|needed| !self.written.contains(&fingerprint(needed)))
                .collect();
            if !missing.is_empty() && depth < MAX_DEPTH {
                for needed in self.source.lookup_all(&missing).await?.unwrap_or_default() {
                    self.record(needed, depth + 1).await?;
                }
            }
            self.line(&api::Record::from(&record))?;
            self.exported.records += 1;
            Ok(())
        })
    }
}

/// A dump to read from.
#[derive(Debug)]
pub struct DumpSource {
    place: DumpPlace,
    prefix: Option<String>,
    /// Taken by the one who reads the stream.
    stream: Mutex<bool>,
}

impl DumpSource {
    /// Opens a dump. A file is read once to the end, so that nothing of one that is not whole is ever used; a stream is
    /// checked while it is read.
    pub async fn open(place: DumpPlace, prefix: Option<String>) -> Result<Self> {
        if let DumpPlace::File(path) = &place {
            let path = path.clone();
            let checked = spawn_blocking(move || -> Result<()> {
                let mut lines = Lines::open(&DumpPlace::File(path))?;
                while lines.next_line()?.is_some() {}
                Ok(())
            });
            checked.await.map_err(|error| SyncError::Other(error.into()))??;
        }
        Ok(Self { place, prefix, stream: Mutex::new(true) })
    }
}

#[async_trait]
impl Source for DumpSource {
    async fn read(&self) -> Result<Box<dyn Reading + '_>> {
        if self.place == DumpPlace::Stream {
            let mut is_unread = self.stream.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            if !std::mem::replace(&mut *is_unread, false) {
                return Err(SyncError::Unsupported("a stream can be read only once".into()));
            }
        }
        let place = self.place.clone();
        let lines =
            spawn_blocking(move || Lines::open(&place)).await.map_err(|error| SyncError::Other(error.into()))??;
        let position = lines.position;
        Ok(Box::new(Lined { lines: Some(lines), prefix: self.prefix.as_deref(), position }))
    }

    async fn lookup_all(&self, _: &[Address]) -> Result<Option<Vec<Record>>> {
        Ok(None)
    }

    fn finds(&self) -> bool {
        false
    }

    fn can_be_read_again(&self) -> bool {
        matches!(self.place, DumpPlace::File(_))
    }
}

struct Lined<'a> {
    lines: Option<Lines>,
    prefix: Option<&'a str>,
    position: Option<u64>,
}

#[async_trait]
impl Reading for Lined<'_> {
    async fn next(&mut self) -> Result<Vec<Found>> {
        loop {
            let Some(mut lines) = self.lines.take() else { return Ok(Vec::new()) };
            let read = move || -> Result<(Lines, Vec<Found>)> {
                let mut found = Vec::new();
                while found.len() < PAGE {
                    match lines.next_line()? {
                        Some(record) => found.push(record),
                        None => break,
                    }
                }
                Ok((lines, found))
            };
            let (lines, mut found) = spawn_blocking(read).await.map_err(|error| SyncError::Other(error.into()))??;
            if found.is_empty() {
                return Ok(found);
            }
            self.lines = Some(lines);
            if let Some(prefix) = self.prefix {
                found.retain(
                    |found| !matches!(found, Found::Record(record) if !record.address.as_str().starts_with(prefix)),
                );
            }
            if !found.is_empty() {
                return Ok(found);
            }
        }
    }

    fn position(&self) -> Option<u64> {
        self.position
    }
}

/// The lines of a dump, checked against its end.
struct Lines {
    place: String,
    from: Box<dyn BufRead + Send>,
    hash: Sha256,
    line: u64,
    records: u64,
    position: Option<u64>,
    is_over: bool,
}

impl Lines {
    fn open(place: &DumpPlace) -> Result<Self> {
        let from: Box<dyn BufRead + Send> = match place {
            DumpPlace::Stream => Box::new(BufReader::new(io::stdin())),
            DumpPlace::File(path) => {
                let file = File::open(path).map_err(|source| SyncError::File { path: path.clone(), source })?;
                Box::new(BufReader::new(file))
            }
        };
        Self::over(place.to_string(), from)
    }

    fn over(place: String, from: Box<dyn BufRead + Send>) -> Result<Self> {
        let mut lines = Self { place, from, hash: Sha256::new(), line: 0, records: 0, position: None, is_over: false };
        let first = lines.text()?;
        let head: Head = match serde_json::from_slice(&first) {
            Ok(head) => head,
            Err(_) => return Err(lines.broken("it does not begin with the head of a dump")),
        };
        if head.nameservice_dump != FORMAT {
            let reason = format!("it has format {}, and this version reads {FORMAT}", head.nameservice_dump);
            return Err(lines.broken(&reason));
        }
        lines.hash.update(&first);
        lines.position = head.position;
        Ok(lines)
    }

    fn broken(&self, reason: &str) -> SyncError {
        SyncError::Dump { place: self.place.clone(), reason: reason.to_owned() }
    }

    /// The next line with its end; empty at the end of the file.
    fn text(&mut self) -> Result<Vec<u8>> {
        let mut text = Vec::new();
        let limit = MAX_LINE as u64;
        (&mut self.from).take(limit).read_until(b'\n', &mut text).map_err(SyncError::Stream)?;
        self.line += 1;
        if text.len() == MAX_LINE {
            return Err(self.broken(&format!("line {} has more than {MAX_LINE} bytes", self.line)));
        }
        Ok(text)
    }

    fn next_line(&mut self) -> Result<Option<Found>> {
        if self.is_over {
            return Ok(None);
        }
        let text = self.text()?;
        if text.is_empty() || text.last() != Some(&b'\n') && serde_json::from_slice::<Last>(&text).is_err() {
            return Err(self.broken(&format!("it was cut off after {} records", self.records)));
        }
        if let Ok(Last { end }) = serde_json::from_slice(&text) {
            let found =
                End { records: self.records, sha256: base16ct::lower::encode_string(&self.hash.clone().finalize()) };
            if end != found {
                return Err(self.broken("it was edited: its records do not match the count and the hash of its end"));
            }
            self.is_over = true;
            return Ok(None);
        }
        self.hash.update(&text);
        self.records += 1;
        let record = serde_json::from_slice::<api::Record>(&text).map_err(|error| error.to_string());
        Ok(Some(match record.and_then(|record| Record::try_from(record).map_err(|error| error.to_string())) {
            Ok(record) => Found::Record(Box::new(record)),
            Err(reason) => Found::Unreadable { place: format!("line {}", self.line), reason },
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<u64> {
        let mut lines = Lines::over("d".into(), Box::new(io::Cursor::new(text.as_bytes().to_vec())))?;
        while lines.next_line()?.is_some() {}
        Ok(lines.records)
    }

    fn dump(records: &[&str]) -> String {
        let mut text = String::from("{\"nameservice_dump\":1,\"position\":4}\n");
        for record in records {
            text.push_str(record);
            text.push('\n');
        }
        let sha256 = base16ct::lower::encode_string(&Sha256::digest(&text));
        let end = Last { end: End { records: records.len() as u64, sha256 } };
        text.push_str(&serde_json::to_string(&end).unwrap());
        text.push('\n');
        text
    }

    #[test]
    fn a_dump_that_is_not_whole_says_so() {
        let whole = dump(&["{\"a\":1}", "{\"a\":2}"]);
        assert_eq!(read(&whole).unwrap(), 2);
        let lines: Vec<&str> = whole.split_inclusive('\n').collect();
        for (text, reason) in [
            (String::new(), "does not begin"),
            ("{}\n".into(), "does not begin"),
            (whole.replace("dump\":1", "dump\":2"), "format 2"),
            (lines[..3].concat(), "cut off after 2 records"),
            (whole[..lines[0].len() + 3].to_owned(), "cut off after 0 records"),
            (whole.replace("{\"a\":2}", "{\"a\":3}"), "edited"),
            (whole.replace("position\":4", "position\":5"), "edited"),
            ([lines[0], lines[1], lines[3]].concat(), "edited"),
            ([lines[0], lines[2], lines[1], lines[3]].concat(), "edited"),
        ] {
            let error = read(&text).unwrap_err().to_string();
            assert!(error.contains(reason), "{text}: {error}");
        }
    }
}
