//! The older place of `--legacy`: whose records are taken over.

use std::sync::Arc;

use nameservice::Place;
use nameservice_files::{Files, Options as FilesOptions};
use nameservice_model::{Backend, Finding, Severity};
use nameservice_sync::{BackendSource, LazyBackend, Source, SyncError, lazy, report::Records};

use crate::{
    failure::Failure,
    output::{self, Output},
    progress::{Bar, Unit},
    shown_source::Shown,
};

/// How many addresses of one finding are printed.
const SHOWN: usize = 5;

/// An older place to read from.
pub(crate) struct Older {
    source: Arc<dyn Source>,
    place: String,
}

impl Older {
    /// Opens a table of an older layout, or the files or the table of a nameservice.
    pub(crate) async fn open(place: &Place) -> Result<Self, Failure> {
        let source: Arc<dyn Source> = match place {
            Place::Legacy { .. } => Arc::new(nameservice::legacy_table(place, None).await?),
            Place::Directory { .. } | Place::Bucket { .. } => {
                let files = nameservice::files(place, false, FilesOptions::default()).await?;
                let unreadable = unreadable(&files).await?;
                Arc::new(BackendSource::new(Arc::new(files)).with_unreadable(unreadable).without_feed())
            }
            Place::DynamoDb { .. } => {
                let names = nameservice::connect_with(place, nameservice::Options::default()).await?;
                let others = nameservice::virtual_graphs(place).await?;
                Arc::new(BackendSource::new(names.backend().clone()).with_others(others).without_feed())
            }
            _ => {
                return Err(Failure::Usage(format!(
                    "--legacy names a table of an older layout (v1:TABLE, item:TABLE), a table, a directory or a bucket, \
                     not `{place}`"
                )));
            }
        };
        // Read once, so that a place that cannot be read is reported now, and not when it is first needed.
        drop(source.read().await?);
        Ok(Self { source, place: place.to_string() })
    }

    /// Returns a nameservice that shows the records of both, and takes those of the older place over when they are first
    /// written.
    pub(crate) fn behind(self, names: Arc<dyn Backend>) -> LazyBackend {
        LazyBackend::new(names.clone(), names, self.source, self.place)
    }

    /// Finds what a nameservice lacks of the older place.
    pub(crate) async fn findings(
        &self,
        names: &Arc<dyn Backend>,
        output: Output,
    ) -> Result<(Vec<Finding>, u64), Failure> {
        let bar = Bar::begin(output, Unit::Records, format!("reading {}", self.place));
        let left = lazy::left(&Shown::new(&*self.source, &bar, None), names).await?;
        drop(bar);
        let of = |code, severity, records: &Records, what: &str, mend: &str| {
            (!records.is_empty()).then(|| {
                let (count, place, some) = (records.count, &self.place, addresses(records));
                Finding::new(code, severity, format!("{count} records of {place} {what}: {some}"), mend)
            })
        };
        let copy = "`nameservice copy` takes them over; `serve --legacy` does when they are first written";
        let findings = [
            of("legacy-left", Severity::Warning, &left.missing, "are not here yet", copy),
            of(
                "legacy-pending",
                Severity::Warning,
                &left.pending,
                "are only partly taken over: the process that was taking them over has stopped",
                "`serve --legacy` finishes them when they are next written, `nameservice copy` does now",
            ),
            of(
                "legacy-newer",
                Severity::Error,
                &left.newer_there,
                "were written there after they were taken over, which is shown nowhere",
                "find the writer that still uses the older place, and compare both values with `nameservice compare`",
            ),
            of(
                "legacy-unreadable",
                Severity::Warning,
                &left.unreadable,
                "cannot be read as records",
                "mend the rows, or leave them behind",
            ),
            of(
                "legacy-addresses",
                Severity::Note,
                &left.kept_addresses,
                "have storage addresses without a content id, which are kept in their config",
                "push their heads and indexes with content ids",
            ),
        ];
        Ok((findings.into_iter().flatten().collect(), left.records))
    }

    /// Names the place.
    pub(crate) fn place(&self) -> &str {
        &self.place
    }
}

/// Finds the files that hold no record: snapshots leave them out. Returns where each is, and why.
pub(crate) async fn unreadable(files: &Files) -> Result<Vec<(String, String)>, Failure> {
    let mut found = Vec::new();
    let mut find = |finding: Finding| {
        if matches!(finding.code, "file-malformed" | "file-misplaced") {
            found.push((finding.address.unwrap_or_else(|| "a file".to_owned()), finding.what));
        }
    };
    files.examine(false, &mut find).await.map_err(SyncError::Source)?;
    Ok(found)
}

/// The first addresses, with the reason if there is one.
fn addresses(records: &Records) -> String {
    let mut shown: Vec<String> = records
        .records
        .iter()
        .take(SHOWN)
        .map(|entry| match &entry.reason {
            Some(reason) => format!("{} ({})", output::clean(&entry.address), output::clean(reason)),
            None => output::clean(&entry.address),
        })
        .collect();
    if records.count > shown.len() as u64 {
        shown.push("…".to_owned());
    }
    shown.join(", ")
}
