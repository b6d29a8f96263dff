use std::{
    collections::VecDeque,
    fmt,
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use futures_util::{
    Stream, StreamExt as _,
    stream::{self, BoxStream},
};
use nameservice_model::{Address, AddressGlob, Change, ChangeEvent, ChangedPart, InvalidGlob, Limit, RecordKind, Run};

use crate::{Error, Nameservice, Result};

/// How long one wait for changes lasts.
const WAIT: Duration = Duration::from_secs(20);

/// Selects changes of the feed.
#[derive(Clone, Debug)]
#[must_use = "nothing is read before it is followed"]
pub struct Changes {
    pub(crate) names: Nameservice,
    after: Option<u64>,
    pub(crate) addresses: Vec<String>,
    prefix: Option<String>,
    kind: Option<RecordKind>,
    source_type: Option<String>,
    parts: Vec<ChangedPart>,
}

impl Changes {
    pub(crate) fn new(names: Nameservice) -> Self {
        Self {
            names,
            after: None,
            addresses: Vec::new(),
            prefix: None,
            kind: None,
            source_type: None,
            parts: Vec::new(),
        }
    }

    /// Begins after this position; by default, with changes from now on.
    pub fn after(mut self, position: u64) -> Self {
        self.after = Some(position);
        self
    }

    /// Only changes of addresses that match this pattern. If called several times, one of the patterns must match.
    pub fn address(mut self, pattern: impl Into<String>) -> Self {
        self.addresses.push(pattern.into());
        self
    }

    /// Only changes of addresses that begin with this.
    pub fn prefix(mut self, prefix: impl Into<String>) -> Self {
        self.prefix = Some(prefix.into());
        self
    }

    /// Only changes of graph sources of this type, such as `f:Bm25Index`.
    pub fn source_type(mut self, source_type: impl Into<String>) -> Self {
        self.source_type = Some(source_type.into());
        self
    }

    /// Only changes of records of this kind.
    pub fn kind(mut self, kind: RecordKind) -> Self {
        self.kind = Some(kind);
        self
    }

    /// Only changes of this part of a record. If called several times, changes of any of the parts.
    ///
    /// ```
    /// # use nameservice::{ChangedPart, ConcernKind};
    /// # fn example(ns: nameservice::Nameservice) {
    /// let changes = ns.changes().part(ConcernKind::Head).part(ChangedPart::Meta);
    /// # drop(changes) }
    /// ```
    pub fn part(mut self, part: impl Into<ChangedPart>) -> Self {
        self.parts.push(part.into());
        self
    }

    /// Follows the feed, without an end: over server-sent events if the backend is a service, otherwise by waiting on the
    /// feed. If a pattern is not one of addresses, the stream is one error.
    pub fn follow(self) -> Following {
        let position = self.after;
        let source = self.source().unwrap_or_else(|error| Source::Invalid(Some(error)));
        let steps = stream::unfold(source, |mut source| async {
            let step = source.step().await?;
            let position = source.position();
            Some(((step, position), source))
        });
        Following { steps: steps.fuse().boxed(), position }
    }

    fn source(self) -> Result<Source> {
        let Self { names, after, addresses, prefix, kind, source_type, parts } = self;
        let globs = parsed(&addresses)?;
        #[cfg(feature = "client")]
        if let Some(client) = names.client() {
            let filter = nameservice_client::ChangeFilter { addresses: globs, prefix, kind, source_type, parts };
            return Ok(Source::Events(Box::new(client.follow(filter, after))));
        }
        let filter = Filter { globs, prefix: prefix.unwrap_or_default(), kind, source_type, parts };
        Ok(Source::Feed(Box::new(Feed { names, after, filter, found: VecDeque::new() })))
    }
}

/// Returns the patterns of these texts.
pub(crate) fn parsed(patterns: &[String]) -> Result<Vec<AddressGlob>, InvalidGlob> {
    patterns.iter().map(|text| AddressGlob::parse(text)).collect()
}

/// Returns whether an address matches one of the patterns, or there are none.
pub(crate) fn matches_any(globs: &[AddressGlob], address: &Address) -> bool {
    globs.is_empty() || globs.iter().any(|glob| glob.matches(address))
}

/// The change feed as it grows: a stream of [`ChangeEvent`]s.
///
/// It has no end. After an error it continues with the same position: a caller who ignores errors should wait before the
/// next event. [`Following::next`] and [`Following::try_next`] need no other crate; with a crate of futures it is a
/// [`Stream`] like any other. Both can be cancelled: nothing is lost.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), nameservice::Error> {
/// # let ns = nameservice::connect("memory:").await?;
/// # ns.create_ledger("mydb").await?;
/// # ns.create_ledger("other").await?;
/// use futures_util::{StreamExt, TryStreamExt};
///
/// let changes = ns.changes().after(0).follow();
/// let two: Vec<nameservice::ChangeEvent> = changes.take(2).try_collect().await?;
/// # assert_eq!(two.len(), 2);
/// # Ok(()) }
/// ```
#[must_use = "nothing is read before it is polled"]
pub struct Following {
    /// What happens, and the position after it.
    steps: BoxStream<'static, (Result<Option<ChangeEvent>>, Option<u64>)>,
    position: Option<u64>,
}

impl fmt::Debug for Following {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Following").field("position", &self.position).finish_non_exhaustive()
    }
}

impl Stream for Following {
    type Item = Result<ChangeEvent>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        loop {
            let Some((step, position)) = ready!(self.steps.poll_next_unpin(cx)) else { return Poll::Ready(None) };
            self.position = position;
            if let Some(event) = step.transpose() {
                return Poll::Ready(Some(event));
            }
        }
    }
}

impl Following {
    /// Waits for the next event.
    pub async fn next(&mut self) -> Option<Result<ChangeEvent>> {
        stream::StreamExt::next(self).await
    }

    /// Waits for the next event, for `while let Some(event) = changes.try_next().await?`.
    pub async fn try_next(&mut self) -> Result<Option<ChangeEvent>> {
        self.next().await.transpose()
    }

    /// Returns the position up to which everything was returned, to continue after it later; `None` before the first event
    /// of a reader without a given position.
    pub const fn position(&self) -> Option<u64> {
        self.position
    }
}

enum Source {
    Invalid(Option<Error>),
    #[cfg(feature = "client")]
    Events(Box<nameservice_client::Follow>),
    Feed(Box<Feed>),
}

impl Source {
    /// Waits until something happens: an event, or the position has moved, or the wait is over. `None` at the end.
    async fn step(&mut self) -> Option<Result<Option<ChangeEvent>>> {
        match self {
            Self::Invalid(error) => error.take().map(Err),
            #[cfg(feature = "client")]
            Self::Events(events) => Some(events.step().await.map_err(Error::from)),
            Self::Feed(feed) => Some(feed.step().await),
        }
    }

    fn position(&self) -> Option<u64> {
        match self {
            Self::Invalid(_) => None,
            #[cfg(feature = "client")]
            Self::Events(events) => events.position(),
            Self::Feed(feed) => feed.after,
        }
    }
}

struct Filter {
    globs: Vec<AddressGlob>,
    prefix: String,
    kind: Option<RecordKind>,
    source_type: Option<String>,
    parts: Vec<ChangedPart>,
}

impl Filter {
    fn matches(&self, change: &Change) -> bool {
        matches_any(&self.globs, &change.address)
            && change.address.as_str().starts_with(&self.prefix)
            && self.kind.is_none_or(|kind| kind == change.identity.kind)
            && self.source_type.as_ref().is_none_or(|wanted| change.identity.source_type.as_ref() == Some(wanted))
            && (self.parts.is_empty() || self.parts.contains(&change.part))
    }
}

struct Feed {
    names: Nameservice,
    after: Option<u64>,
    filter: Filter,
    found: VecDeque<Change>,
}

impl Feed {
    async fn step(&mut self) -> Result<Option<ChangeEvent>> {
        if let Some(change) = self.found.pop_front() {
            self.after = Some(change.position);
            let matches = self.filter.matches(&change);
            return Ok(matches.then(|| ChangeEvent::Change(Box::new(change))));
        }
        let feed = self.names.feed();
        let after = match self.after {
            Some(after) => after,
            None => *self.after.insert(feed.position().await?),
        };
        match feed.changes(after, Limit::default()).await? {
            Run::Changes(changes) if changes.is_empty() => feed.wait(after, WAIT).await?,
            Run::Changes(changes) => self.found.extend(changes),
            Run::Gone { oldest } => {
                self.after = Some(oldest.saturating_sub(1));
                return Ok(Some(ChangeEvent::Gone { oldest }));
            }
        }
        Ok(None)
    }
}
