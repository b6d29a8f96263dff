//! Subscriptions: the change feed, as it grows.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use async_graphql::{Context, Result, Subscription};
use futures_util::{Stream, stream};
use nameservice_api::{self as api, changes::ChangedPart};
use nameservice_http::{
    Problem,
    filter::{Filter, Interest},
    hub::{End, Entry, Hub, Joined, Subscription as Joining},
};
use nameservice_model::{ChangeFeed, Limit, Run, RunMemory};

use crate::{
    context::{Caller, Reserved, caller, failed, patterns, service},
    errors::problem,
    objects::Change,
    scalars::{Concern, Kind, Long},
};

/// How many changes are read in one request.
const PAGE: Limit = match Limit::new(100) {
    Ok(limit) => limit,
    Err(_) => Limit::ONE,
};
/// How long a failing feed is retried.
const RETRY_FOR: Duration = Duration::from_secs(30);

/// What can be followed.
pub(crate) struct Changes;

#[Subscription(name = "Subscription")]
impl Changes {
    /// Changes as they are made, each once and in the order of the feed; with a position, first those that follow it. The
    /// subscription ends with the token, or with an error if the feed no longer holds what follows.
    #[graphql(complexity = "5000 + child_complexity")]
    #[allow(clippy::too_many_arguments, reason = "they are the field's")]
    async fn changes(
        &self,
        context: &Context<'_>,
        #[graphql(desc = "Only changes of these addresses; they may hold `*` and `?`.")] address: Option<Vec<String>>,
        #[graphql(desc = "Only changes of addresses that begin with this.")] prefix: Option<String>,
        #[graphql(desc = "Only changes of records of this kind.")] kind: Option<Kind>,
        #[graphql(desc = "Only changes of graph sources of this type.")] source_type: Option<String>,
        #[graphql(desc = "Only changes of these parts of a record.")] concern: Option<Vec<Concern>>,
        #[graphql(desc = "Begin after this position of the feed; by default, with what changes from now on.")]
        after: Option<Long>,
    ) -> Result<impl Stream<Item = Result<Change>>> {
        let (service, caller) = (service(context), caller(context));
        Problem::unless_followed(service.feed.as_ref()).map_err(problem)?;
        let parts = concern.into_iter().flatten().map(|part| ChangedPart::from(part).into()).collect();
        let address = address.unwrap_or_default();
        let reserved = patterns(context).reserve(address.len())?;
        let filter = Filter::new(&address, kind.map(Into::into), parts);
        let filter = filter.and_then(|filter| filter.with_prefix(prefix)).map_err(problem)?.of_type(source_type);
        let after = match after {
            Some(after) => after.position(),
            None => service.feed.position().await.map_err(|error| failed(context, error))?,
        };
        let reader = Reader {
            feed: service.feed.clone(),
            hub: service.hub.clone(),
            caller: caller.clone(),
            interest: caller.allowed().interest(filter, "graphql".to_owned()),
            after,
            backlog: VecDeque::new(),
            joined: None,
            is_over: false,
            _reserved: reserved,
        };
        let changes = stream::unfold(reader, async |mut reader| {
            if reader.is_over {
                return None;
            }
            let next = reader.next().await;
            reader.is_over = next.is_err();
            Some((next, reader))
        });
        Ok(changes)
    }
}

/// One reader of the feed: it reads what it has missed, then takes what the hub hands out.
struct Reader {
    feed: Arc<dyn ChangeFeed>,
    hub: Hub,
    caller: Arc<Caller>,
    interest: Arc<Interest>,
    /// Everything up to here was returned or filtered out.
    after: u64,
    backlog: VecDeque<Arc<Entry>>,
    joined: Option<Joining>,
    is_over: bool,
    _reserved: Reserved,
}

impl Reader {
    async fn next(&mut self) -> Result<Change> {
        loop {
            if let Some(entry) = self.backlog.pop_front() {
                return Ok(api::changes::Change::from(&entry.change).into());
            }
            match &mut self.joined {
                None => self.read().await?,
                Some(joined) => match joined.next().await {
                    Ok(batch) => {
                        self.after = batch.entries.last().map_or(self.after, |last| last.change.position);
                        self.backlog.extend(batch.entries.iter().cloned());
                    }
                    Err(End::Lagging) => self.joined = None,
                    Err(End::Gone { oldest }) => return Err(self.gone(oldest).await),
                    Err(End::Failed(failed)) => {
                        return Err(async_graphql::Error::new(failed.problem.detail.clone()));
                    }
                },
            }
        }
    }

    /// Reads the feed, up to where the hub reads it for all readers.
    async fn read(&mut self) -> Result<()> {
        let changes =
            match self.feed.changes(self.after, PAGE).await.map_err(|error| self.caller.failed("changes", error))? {
                Run::Gone { oldest } => return Err(self.gone(oldest).await),
                Run::Changes(changes) => changes,
            };
        let is_the_end = !RunMemory::may_continue(&changes, PAGE.get());
        self.after = changes.last().map_or(self.after, |last| last.position);
        let marked = self
            .interest
            .marked(changes, |change| change)
            .await
            .map_err(|error| self.caller.failed("changes", error))?;
        let wanted = marked.into_iter().filter_map(|(change, is_taken)| is_taken.then_some(change));
        self.backlog.extend(wanted.map(|change| Arc::new(Entry::from(change))));
        if is_the_end && let Joined::Yes(joined) = self.hub.subscribe(&self.interest, self.after, RETRY_FOR) {
            self.joined = Some(joined);
        }
        Ok(())
    }

    async fn gone(&self, oldest: u64) -> async_graphql::Error {
        problem(Problem::gone(self.feed.as_ref(), self.after, oldest).await)
    }
}
