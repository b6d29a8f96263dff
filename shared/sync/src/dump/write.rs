//! Writes a dump.

use std::{
    collections::HashSet,
    fs::OpenOptions,
    io::{self, BufWriter, Write},
};

use jiff::Timestamp;
use nameservice_api as api;
use nameservice_model::{Address, Record};
use serde::Serialize;
use sha2::{Digest as _, Sha256};

use super::{DumpPlace, End, FORMAT, Head, Last, partial};
use crate::{
    Found, Result, Source, SyncError,
    bring::REDACTED_CONFIG,
    compare::fingerprint,
    copy::{CopyObserver, CopyProgress},
    judge::has_redacted_config,
    order::needed,
    report::Records,
};

/// What an export has written.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Exported {
    /// The position of the source's feed before the first record was read, if it has a feed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub position: Option<u64>,
    /// How many records were written.
    pub records: u64,
    /// What could not be read as a record, and was left out.
    pub unreadable: Records,
    /// Records that were written without the secrets of their configs, which no place takes from this dump.
    pub redacted: Records,
}

/// Writes all records of a source. A plain file is written completely or not at all, and is readable by its owner alone
/// (beside it is a file `FILE.export-….partial` meanwhile); a
/// device, a pipe or a symbolic link is written through. What a record needs is written before it, even if the source has
/// another order. Each address that was written takes 16 bytes of memory.
pub async fn export(source: &dyn Source, to: &DumpPlace, observe: CopyObserver<'_>) -> Result<Exported> {
    let DumpPlace::File(path) = to else { return write_dump(source, io::stdout(), observe).await };
    let file_error = |source| SyncError::File { path: path.clone(), source };
    // A link is not followed here: what it names is written, and the link stays.
    if std::fs::symlink_metadata(path).is_ok_and(|there| !there.is_file()) {
        let file = options().truncate(true).create(true).open(path).map_err(file_error)?;
        let synced = file.try_clone().map_err(file_error)?;
        let exported = write_dump(source, file, observe).await?;
        // Devices and pipes have nothing to sync.
        if synced.metadata().is_ok_and(|written| written.is_file()) {
            synced.sync_all().map_err(file_error)?;
        }
        return Ok(exported);
    }
    let partial = partial::create(path).map_err(file_error)?;
    let file = partial.as_file().try_clone().map_err(file_error)?;
    let exported = write_dump(source, file, observe).await?;
    partial.as_file().sync_all().map_err(file_error)?;
    partial.persist(path).map_err(|error| file_error(error.error))?;
    Ok(exported)
}

/// How a dump is opened: its configurations may contain secrets.
fn options() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.write(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options
}

async fn write_dump(source: &dyn Source, to: impl Write + Send, observe: CopyObserver<'_>) -> Result<Exported> {
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
        for record in Found::records(found, &mut dump.exported.unreadable) {
            dump.record(record).await?;
        }
        observe(CopyProgress { read, written: dump.exported.records, is_comparing: false });
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

    /// Writes a record after everything that it needs, as far as that can be: the records of a cycle need each other.
    async fn record(&mut self, record: Record) -> Result<()> {
        let mut steps = vec![Step::Enter(record)];
        while let Some(step) = steps.pop() {
            match step {
                Step::Enter(record) => {
                    if !self.written.insert(fingerprint(&record.address)) {
                        continue;
                    }
                    let is_left = |needed: &Address| !self.written.contains(&fingerprint(needed));
                    let missing: Vec<Address> = needed(&record).filter(is_left).collect();
                    steps.push(Step::Write(record));
                    if !missing.is_empty() {
                        let found = self.source.lookup_all(&missing).await?.unwrap_or_default();
                        steps.extend(found.into_iter().map(Step::Enter));
                    }
                }
                Step::Write(record) => {
                    self.line(&api::Record::from(&record))?;
                    self.exported.records += 1;
                    if has_redacted_config(&record) {
                        self.exported.redacted.add_reason(&record.address, REDACTED_CONFIG);
                    }
                }
            }
        }
        Ok(())
    }
}

/// A step of writing a record and what it needs.
enum Step {
    Enter(Record),
    Write(Record),
}
