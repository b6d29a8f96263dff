//! Writes a dump.

use std::{
    collections::HashSet,
    fs::File,
    io::{self, BufWriter, Write},
    path::{Path, PathBuf},
};

use futures_util::future::BoxFuture;
use jiff::Timestamp;
use nameservice_api as api;
use nameservice_model::{Address, Record};
use serde::Serialize;
use sha2::{Digest as _, Sha256};

use super::{DumpPlace, End, FORMAT, Head, Last};
use crate::{
    Found, Result, Source, SyncError,
    compare::fingerprint,
    copy::{CopyObserver, CopyProgress},
    report::Records,
};

/// The longest chain of dependencies between records.
const MAX_DEPTH: usize = 64;

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

/// Writes all records of a source to a file, completely or not at all, or to standard output. What a record needs is
/// written before it, even if the source has another order. Each address that was written takes 16 bytes of memory.
pub async fn export(source: &dyn Source, to: &DumpPlace, observe: CopyObserver<'_>) -> Result<Exported> {
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
                    // The next export starts over.
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
        for found in found {
            match found {
                Found::Record(record) => dump.record(*record, 0).await?,
                Found::Unreadable { place, reason } => dump.exported.unreadable.add_reason(&place, reason),
            }
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
