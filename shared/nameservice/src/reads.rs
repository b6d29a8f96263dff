//! Reads of many records: lists, snapshots, histories.

use std::{
    fmt,
    pin::Pin,
    task::{Context, Poll},
};

use futures_util::{
    Stream, StreamExt as _, TryStreamExt as _,
    stream::{self, BoxStream},
};
use nameservice_model::{
    Address, AddressGlob, ChangedPart, Cursor, History, HistoryQuery, InvalidAddress, InvalidGlob, Limit, ListQuery,
    Listed, Page, Record, RecordKind,
};

use crate::{
    Changes, Error, IntoAddress, Nameservice, Result,
    builder::awaited,
    changes::{matches_any, parsed},
};

/// How many records a page has by default: the most that a service returns.
const PAGE: Limit = match Limit::new(1000) {
    Ok(limit) => limit,
    Err(_) => Limit::MAX,
};

impl Nameservice {
    /// Begins to list the records whose addresses match a pattern, such as `tenant/*` or `mydb:*`.
    pub fn list(&self, pattern: &str) -> List {
        let glob = AddressGlob::parse(pattern);
        // What all matches begin with, so that no others are read.
        let fixed = glob.as_ref().map_or("", AddressGlob::as_str).split(['*', '?']).next().unwrap_or_default();
        let prefix = (!fixed.is_empty()).then(|| fixed.to_owned());
        List { names: self.clone(), glob, query: ListQuery { limit: PAGE, prefix, ..ListQuery::default() } }
    }

    /// Begins to read all records, with the position of the feed after which changes follow.
    pub fn snapshot(&self) -> ReadSnapshot {
        ReadSnapshot { changes: self.changes(), limit: PAGE }
    }

    /// Begins to read the changes of one record that the feed still holds.
    pub fn history(&self, address: impl IntoAddress) -> ReadHistory {
        ReadHistory { names: self.clone(), address: address.into_address(), query: HistoryQuery::default() }
    }
}

/// A stream of what is read page by page, when it is asked for. It ends after the first error.
///
/// [`ResultStream::next`], [`ResultStream::try_next`] and [`ResultStream::all`] need no other crate; with a crate of futures
/// it is a [`Stream`] like any other.
#[must_use = "nothing is read before it is polled"]
pub struct ResultStream<T>(BoxStream<'static, Result<T>>);

impl<T> ResultStream<T> {
    /// Returns the next item; `None` at the end.
    pub async fn next(&mut self) -> Option<Result<T>> {
        self.0.next().await
    }

    /// Returns the next item, for `while let Some(item) = stream.try_next().await?`.
    pub async fn try_next(&mut self) -> Result<Option<T>> {
        self.0.try_next().await
    }

    /// Returns all that is left.
    pub async fn all(self) -> Result<Vec<T>> {
        self.0.try_collect().await
    }
}

impl<T> Stream for ResultStream<T> {
    type Item = Result<T>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.0.poll_next_unpin(cx)
    }
}

impl<T> fmt::Debug for ResultStream<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResultStream").finish_non_exhaustive()
    }
}

/// Returns the items of pages.
fn items<T: Send + 'static>(pages: ResultStream<Page<T>>) -> BoxStream<'static, Result<T>> {
    pages.0.map_ok(|page| stream::iter(page.items.into_iter().map(Ok::<_, Error>))).try_flatten().boxed()
}

/// A list of records: awaited, it returns all of them; as a stream, one after the other, or page by page.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), nameservice::Error> {
/// # let ns = nameservice::connect("memory:").await?;
/// # for name in ["tenant/books", "tenant/films", "other"] { ns.create_ledger(name).await?; }
/// assert_eq!(ns.list("tenant/*").await?.len(), 2);
///
/// # use nameservice::ConcernKind;
/// let mut records = ns.list("tenant/*").retracted(false).stream(); // or pages(); awaited, a Vec
/// while let Some(record) = records.try_next().await? {
///     println!("{}", record.address());
/// }
/// let mut snapshot = ns.snapshot().address("mydb:*").await?;
/// while let Some(record) = snapshot.try_next().await? {
///     println!("{} is at t {}", record.address, record.t());
/// }
/// let mut changes = snapshot.changes().part(ConcernKind::Head).follow(); // what follows its position
/// # let _ = &mut changes;
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
#[must_use = "nothing is read before it is awaited, or its stream is polled"]
pub struct List {
    names: Nameservice,
    glob: Result<AddressGlob, InvalidGlob>,
    query: ListQuery,
}

impl List {
    /// Lists only records of this kind.
    pub fn kind(mut self, kind: RecordKind) -> Self {
        self.query.kind = Some(kind);
        self
    }

    /// Lists only graph sources of this type, such as `f:Bm25Index`.
    pub fn source_type(mut self, source_type: impl Into<String>) -> Self {
        self.query.source_type = Some(source_type.into());
        self
    }

    /// Lists only records in this state.
    pub fn state(mut self, state: impl Into<String>) -> Self {
        self.query.state = Some(state.into());
        self
    }

    /// Lists only retracted records, or only live ones.
    pub fn retracted(mut self, retracted: bool) -> Self {
        self.query.retracted = Some(retracted);
        self
    }

    /// Lists whole records instead of summaries.
    pub fn full(mut self) -> Self {
        self.query.full = true;
        self
    }

    /// Sets how many records a page has: 1000 by default.
    pub fn page_size(mut self, limit: Limit) -> Self {
        self.query.limit = limit;
        self
    }

    /// Begins after the page that ended with this cursor.
    pub fn after(mut self, cursor: Cursor) -> Self {
        self.query.cursor = Some(cursor);
        self
    }

    /// Returns the pages, each with the cursor of the next.
    pub fn pages(self) -> ResultStream<Page<Listed>> {
        let Self { names, glob, query } = self;
        let pages = stream::try_unfold(Some(query), move |query| {
            let (names, glob) = (names.clone(), glob.clone());
            async move {
                let Some(mut query) = query else { return Ok::<_, Error>(None) };
                let glob = glob?;
                let page = names.backend().list(&query, &|address| glob.matches(address)).await?;
                query.cursor.clone_from(&page.cursor);
                let rest = query.cursor.is_some().then_some(query);
                Ok(Some((page, rest)))
            }
        });
        ResultStream(pages.boxed())
    }

    /// Returns the records, read page by page.
    pub fn stream(self) -> ResultStream<Listed> {
        ResultStream(items(self.pages()))
    }
}

awaited!(List -> Vec<Listed>, self => self.stream().all().await);

/// A snapshot to be read: awaited, it returns the stream of records, and the position of the feed.
#[derive(Clone, Debug)]
#[must_use = "nothing is read before it is awaited"]
pub struct ReadSnapshot {
    changes: Changes,
    limit: Limit,
}

impl ReadSnapshot {
    /// Reads only records whose addresses match this pattern. If called several times, one of the patterns must match.
    pub fn address(mut self, pattern: impl Into<String>) -> Self {
        self.changes = self.changes.address(pattern);
        self
    }

    /// Sets how many records a page has: 1000 by default.
    pub fn page_size(mut self, limit: Limit) -> Self {
        self.limit = limit;
        self
    }
}

awaited!(ReadSnapshot -> Snapshot, self => {
    let Self { changes, limit } = self;
    let (names, globs) = (changes.names.clone(), parsed(&changes.addresses)?);
    // Taken before the first page, so that changes made while the pages are read follow it.
    let position = names.feed().position().await?;
    let pages = stream::try_unfold(Some(None::<Cursor>), move |after| {
        let (names, globs) = (names.clone(), globs.clone());
        async move {
            let Some(after) = after else { return Ok::<_, Error>(None) };
            let visible = |address: &Address| matches_any(&globs, address);
            let page = names.backend().snapshot(limit, after.as_ref(), &visible).await?;
            let rest = page.cursor.clone().map(Some);
            Ok(Some((page, rest)))
        }
    });
    let records = items(ResultStream(pages.boxed()));
    Ok(Snapshot { records, changes: changes.after(position), position })
});

/// All records, page by page: a stream that ends after the first error. Each record is at least as new as the position.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), nameservice::Error> {
/// # let ns = nameservice::connect("memory:").await?;
/// # ns.create_ledger("mydb").await?;
/// let mut snapshot = ns.snapshot().address("mydb:*").await?;
/// while let Some(record) = snapshot.try_next().await? {
///     println!("{} is at t {}", record.address, record.t());
/// }
/// let changes = snapshot.changes().follow(); // what has changed since
/// # drop(changes);
/// # Ok(()) }
/// ```
#[must_use = "nothing is read before it is polled"]
pub struct Snapshot {
    records: BoxStream<'static, Result<Record>>,
    changes: Changes,
    position: u64,
}

impl Snapshot {
    /// Returns the next record; `None` at the end.
    pub async fn next(&mut self) -> Option<Result<Record>> {
        self.records.next().await
    }

    /// Returns the next record, for `while let Some(record) = snapshot.try_next().await?`.
    pub async fn try_next(&mut self) -> Result<Option<Record>> {
        self.records.try_next().await
    }

    /// Returns the position of the feed after which the changes of these records follow.
    pub const fn position(&self) -> u64 {
        self.position
    }

    /// Begins to read the changes after the snapshot, of the same addresses.
    pub fn changes(&self) -> Changes {
        self.changes.clone()
    }
}

impl Stream for Snapshot {
    type Item = Result<Record>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.records.poll_next_unpin(cx)
    }
}

impl fmt::Debug for Snapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Snapshot").field("position", &self.position).finish_non_exhaustive()
    }
}

/// The history of a record: awaited, it returns the changes, the oldest first.
#[derive(Clone, Debug)]
#[must_use = "nothing is read before it is awaited"]
pub struct ReadHistory {
    names: Nameservice,
    address: Result<Address, InvalidAddress>,
    query: HistoryQuery,
}

impl ReadHistory {
    /// Returns the newest change first.
    pub fn newest_first(mut self) -> Self {
        self.query.newest_first = true;
        self
    }

    /// Returns only changes of this part of the record.
    pub fn part(mut self, part: impl Into<ChangedPart>) -> Self {
        self.query.part = Some(part.into());
        self
    }

    /// Returns at most this many changes: 100 by default.
    pub fn limit(mut self, limit: Limit) -> Self {
        self.query.limit = limit;
        self
    }

    /// Returns only changes after this position.
    pub fn after(mut self, position: u64) -> Self {
        self.query.after = position;
        self
    }

    /// Returns only changes before this position.
    pub fn before(mut self, position: u64) -> Self {
        self.query.before = Some(position);
        self
    }
}

awaited!(ReadHistory -> History, self => Ok(self.names.feed().history(&self.address?, &self.query).await?));
