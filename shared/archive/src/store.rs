use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use async_trait::async_trait;
use nameservice_model::{Address, ChangeFeed, History, HistoryQuery, Limit, Result, Run, RunMemory};
use tokio::time::{Instant, sleep};

use crate::{
    ArchiveError, Content, Objects, Segment,
    objects::{READ, WRITE, failed},
};

/// How often a reader that waits for the archive itself looks for new objects.
const LOOK: Duration = Duration::from_secs(5);
/// Where the objects are, under the prefix.
const FOLDER: &str = "changes";
const ENDING: &str = ".jsonl";

/// The objects of an archive. Cheap to clone.
///
/// It is a [`ChangeFeed`] of what was archived; [`LongFeed`](crate::LongFeed) adds it to the feed that continues.
#[derive(Clone)]
pub struct Archive(Arc<Inner>);

struct Inner {
    objects: Box<dyn Objects>,
    /// Where the objects are.
    folder: String,
    shown: String,
    /// The first positions of the objects that were listed. Objects are never deleted, so it only grows.
    firsts: Mutex<BTreeSet<u64>>,
    /// The object that was read last: a reader asks for its changes page by page.
    last_read: Mutex<Option<Arc<Segment>>>,
}

impl std::fmt::Debug for Archive {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Archive").field(&self.0.shown).finish()
    }
}

/// The outcome of writing an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Put {
    /// It was written.
    Written,
    /// There is one that begins at the same position.
    Taken,
}

impl Archive {
    /// Returns the archive under a prefix of a bucket or a directory. `shown` names it in messages.
    pub fn new(objects: impl Objects + 'static, prefix: &str, shown: impl Into<String>) -> Self {
        let folder = match prefix.trim_matches('/') {
            "" => FOLDER.to_owned(),
            prefix => format!("{prefix}/{FOLDER}"),
        };
        let (firsts, last_read) = (Mutex::default(), Mutex::default());
        Self(Arc::new(Inner { objects: Box::new(objects), folder, shown: shown.into(), firsts, last_read }))
    }

    /// Returns where it is, for messages.
    pub fn shown(&self) -> &str {
        &self.0.shown
    }

    fn key(&self, first: u64) -> String {
        format!("{}/{}", self.0.folder, name(first))
    }

    fn firsts(&self) -> MutexGuard<'_, BTreeSet<u64>> {
        self.0.firsts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lists the objects that were written since the last look.
    async fn refresh(&self) -> Result<()> {
        let known = self.firsts().last().copied();
        let listed = self.0.objects.list(&self.0.folder, known.map(|first| self.key(first)).as_deref()).await?;
        // Files of other programs, and subfolders, have other names.
        let file = |key: &str| first_of(key.strip_prefix(&self.0.folder)?.strip_prefix('/')?);
        let new: Vec<u64> = listed.iter().filter_map(|key| file(key)).collect();
        self.firsts().extend(new);
        Ok(())
    }

    /// Reads the object that begins at this position; `None` if there is none.
    async fn read(&self, first: u64) -> Result<Option<Arc<Segment>>> {
        let cached = self.0.last_read.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some(segment) = cached.filter(|segment| segment.first == first) {
            return Ok(Some(segment));
        }
        let Some(bytes) = self.0.objects.get(&self.key(first)).await? else { return Ok(None) };
        let damaged = |reason: String| {
            failed(READ, ArchiveError::Damaged { object: format!("{}/{FOLDER}/{}", self.0.shown, name(first)), reason })
        };
        let text = std::str::from_utf8(&bytes).map_err(|error| damaged(error.to_string()))?;
        let segment = Arc::new(Segment::parse(first, text).map_err(damaged)?);
        self.firsts().insert(first);
        *self.0.last_read.lock().unwrap_or_else(PoisonError::into_inner) = Some(segment.clone());
        Ok(Some(segment))
    }

    /// Reads the object at a position like [`read`](Self::read); it is an error if it does not exist, since it was listed.
    async fn listed(&self, first: u64) -> Result<Arc<Segment>> {
        let gone = || ArchiveError::Damaged {
            object: format!("{}/{FOLDER}/{}", self.0.shown, name(first)),
            reason: "it was there, and was deleted".to_owned(),
        };
        self.read(first).await?.ok_or_else(|| failed(READ, gone()))
    }

    /// Writes an object, if none begins at the same position.
    pub(crate) async fn put(&self, segment: &Segment) -> Result<Put> {
        let lines = segment.to_lines().map_err(|error| failed(WRITE, error))?;
        if !self.0.objects.create(&self.key(segment.first), lines.into_bytes()).await? {
            return Ok(Put::Taken);
        }
        self.firsts().insert(segment.first);
        *self.0.last_read.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::new(segment.clone()));
        Ok(Put::Written)
    }

    /// Returns the last object, as of now; `None` if nothing was archived yet.
    pub async fn last(&self) -> Result<Option<Arc<Segment>>> {
        self.refresh().await?;
        let last = self.firsts().last().copied();
        match last {
            Some(first) => Ok(Some(self.listed(first).await?)),
            None => Ok(None),
        }
    }

    /// Returns the object that holds a position, as of now; `None` if nothing does yet. What was listed before is not listed
    /// again.
    pub async fn segment_at(&self, position: u64) -> Result<Option<Arc<Segment>>> {
        for look in 0..2 {
            let (first, is_last) = {
                let firsts = self.firsts();
                let first = firsts.range(..=position).next_back().copied();
                (first, first == firsts.last().copied())
            };
            if let Some(first) = first {
                let segment = self.listed(first).await?;
                if position <= segment.last {
                    return Ok(Some(segment));
                }
                // Between two objects there is nothing: an archiver records what is lost as a gap.
                if !is_last {
                    let object = format!("{}/{FOLDER}/{}", self.0.shown, name(segment.last + 1));
                    let reason = "there is none, but one after it".to_owned();
                    return Err(failed(READ, ArchiveError::Damaged { object, reason }));
                }
            }
            if look == 0 {
                self.refresh().await?;
            }
        }
        Ok(None)
    }
}

#[async_trait]
impl ChangeFeed for Archive {
    async fn position(&self) -> Result<u64> {
        Ok(self.last().await?.map_or(0, |segment| segment.last))
    }

    async fn changes(&self, after: u64, limit: Limit) -> Result<Run> {
        let Some(segment) = self.segment_at(after.saturating_add(1)).await? else {
            let end = self.position().await?;
            return Ok(match after <= end {
                true => Run::Changes(Vec::new()),
                // A position that was never archived, or is of another feed.
                false => Run::Gone { oldest: end + 1 },
            });
        };
        Ok(match &segment.content {
            Content::Gap => Run::Gone { oldest: segment.last + 1 },
            Content::Changes(changes) => {
                let skipped = usize::try_from(after + 1 - segment.first).unwrap_or(usize::MAX);
                let (mut run, mut memory) = (Vec::new(), RunMemory::default());
                for change in changes.iter().skip(skipped).take(limit.get()) {
                    if memory.is_full() {
                        break;
                    }
                    memory.add(&change.payload);
                    run.push(change.clone());
                }
                Run::Changes(run)
            }
        })
    }

    async fn wait(&self, after: u64, at_most: Duration) -> Result<()> {
        let until = Instant::now() + at_most;
        while self.position().await? <= after {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            sleep(LOOK.min(left)).await;
        }
        Ok(())
    }

    async fn history(&self, address: &Address, query: &HistoryQuery) -> Result<History> {
        crate::history::of(self, address, query).await
    }
}

fn name(first: u64) -> String {
    format!("{first:020}{ENDING}")
}

/// Returns the first position of the object of this name; `None` for files of other programs.
fn first_of(name: &str) -> Option<u64> {
    let digits = name.strip_suffix(ENDING)?;
    (digits.len() == 20).then(|| digits.parse().ok())?
}
