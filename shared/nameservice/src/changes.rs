use std::{collections::VecDeque, time::Duration};

use nameservice_model::{AddressGlob, Change, ChangeEvent, ChangedPart, Limit, RecordKind, Run};

use crate::{Nameservice, Result};

/// How long one wait for changes lasts.
const WAIT: Duration = Duration::from_secs(20);

/// Selects changes of the feed.
#[derive(Clone, Debug)]
#[must_use]
pub struct Changes {
    names: Nameservice,
    after: Option<u64>,
    addresses: Vec<String>,
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
    pub fn part(mut self, part: ChangedPart) -> Self {
        self.parts.push(part);
        self
    }

    /// Follows the feed, without an end: over server-sent events if the backend is a service, otherwise by waiting on the
    /// feed.
    pub fn follow(self) -> Result<Following> {
        let Self { names, after, addresses, prefix, kind, source_type, parts } = self;
        let globs: Vec<AddressGlob> =
            addresses.iter().map(|text| AddressGlob::parse(text)).collect::<Result<_, _>>()?;
        #[cfg(feature = "client")]
        if let Some(client) = names.client() {
            let filter = nameservice_client::ChangeFilter { addresses: globs, prefix, kind, source_type, parts };
            return Ok(Following(Source::Events(Box::new(client.follow(filter, after)))));
        }
        let filter = Filter { globs, prefix: prefix.unwrap_or_default(), kind, source_type, parts };
        Ok(Following(Source::Feed(Feed { names, after, filter, found: VecDeque::new() })))
    }
}

/// The change feed as it grows.
#[derive(Debug)]
pub struct Following(Source);

#[derive(Debug)]
enum Source {
    #[cfg(feature = "client")]
    Events(Box<nameservice_client::Follow>),
    Feed(Feed),
}

#[derive(Debug)]
struct Filter {
    globs: Vec<AddressGlob>,
    prefix: String,
    kind: Option<RecordKind>,
    source_type: Option<String>,
    parts: Vec<ChangedPart>,
}

impl Filter {
    fn matches(&self, change: &Change) -> bool {
        (self.globs.is_empty() || self.globs.iter().any(|glob| glob.matches(&change.address)))
            && change.address.as_str().starts_with(&self.prefix)
            && self.kind.is_none_or(|kind| kind == change.identity.kind)
            && self.source_type.as_ref().is_none_or(|wanted| change.identity.source_type.as_ref() == Some(wanted))
            && (self.parts.is_empty() || self.parts.contains(&change.part))
    }
}

#[derive(Debug)]
struct Feed {
    names: Nameservice,
    after: Option<u64>,
    filter: Filter,
    found: VecDeque<Change>,
}

impl Following {
    /// Waits for the next event.
    pub async fn next(&mut self) -> Result<ChangeEvent> {
        match &mut self.0 {
            #[cfg(feature = "client")]
            Source::Events(events) => Ok(events.next().await?),
            Source::Feed(feed) => feed.next().await,
        }
    }

    /// Returns the position up to which everything was returned, to continue after it later; `None` before the first event
    /// of a reader without a given position.
    pub fn position(&self) -> Option<u64> {
        match &self.0 {
            #[cfg(feature = "client")]
            Source::Events(events) => events.position(),
            Source::Feed(feed) => feed.after,
        }
    }
}

impl Feed {
    async fn next(&mut self) -> Result<ChangeEvent> {
        let feed = self.names.feed();
        loop {
            while let Some(change) = self.found.pop_front() {
                self.after = Some(change.position);
                if self.filter.matches(&change) {
                    return Ok(ChangeEvent::Change(Box::new(change)));
                }
            }
            let after = match self.after {
                Some(after) => after,
                None => {
                    let now = feed.position().await?;
                    self.after = Some(now);
                    now
                }
            };
            match feed.changes(after, Limit::default()).await? {
                Run::Changes(changes) if changes.is_empty() => feed.wait(after, WAIT).await?,
                Run::Changes(changes) => self.found.extend(changes),
                Run::Gone { oldest } => {
                    self.after = Some(oldest.saturating_sub(1));
                    return Ok(ChangeEvent::Gone { oldest });
                }
            }
        }
    }
}
