//! What a stream sends for changes: the changes themselves, or the current records.

use std::{
    collections::{HashMap, HashSet, VecDeque},
    sync::Arc,
};

use jiff::Timestamp;
use nameservice_http::{
    Problem,
    extract::{Allowed, Events, Read},
    filter::{Filter, Interest, check_patterns},
    hub::Entry,
    shapes::fluree::Event,
};
use nameservice_model::{
    Address, Change, ChangedPart, ConcernKind, Cursor, Error, Limit, NameService, Record, RecordKind,
};

use crate::sse::Text;

/// How many records that were named or have changed are read and held together.
const RECORDS: usize = 25;
/// How many records of a scan are held at the same time: as many as one of its requests returns.
const OPENING: Limit = match Limit::new(1000) {
    Ok(limit) => limit,
    Err(_) => Limit::ONE,
};

pub(crate) enum Projection {
    Changes(Arc<Interest>),
    Records(Records),
}

/// Sends records in Fluree's format.
pub(crate) struct Records {
    names: Arc<dyn NameService>,
    caller: Allowed<Events>,
    scope: Scope,
    interest: Arc<Interest>,
    opening: Option<Opening>,
}

/// The records that are still to be sent before changes.
enum Opening {
    All(Option<Cursor>),
    Named(Vec<Address>),
}

/// Which records a reader wants.
pub(crate) struct Scope {
    all: bool,
    named: HashSet<(RecordKind, Address)>,
}

impl Scope {
    pub(crate) fn new(all: bool, ledgers: &[String], graph_sources: &[String]) -> Result<Self, Problem> {
        let mut named = HashSet::new();
        check_patterns(&["ledger", "graph-source"], ledgers.len() + graph_sources.len())?;
        for (parameter, kind, texts) in
            [("ledger", RecordKind::Ledger, ledgers), ("graph-source", RecordKind::GraphSource, graph_sources)]
        {
            for text in texts.iter().filter(|text| !text.is_empty()) {
                let address = Address::parse(text).map_err(|reason| Problem::invalid_parameter(parameter, reason))?;
                named.insert((kind, address));
            }
        }
        if !all && named.is_empty() {
            return Err(Problem::invalid_parameter("all", "say all=true, or which ledger= or graph-source="));
        }
        Ok(Self { all, named })
    }

    fn holds(&self, kind: RecordKind, address: &Address) -> bool {
        self.all || self.named.contains(&(kind, address.clone()))
    }

    fn addresses(&self) -> HashSet<Address> {
        self.named.iter().map(|(_, address)| address.clone()).collect()
    }

    /// Excludes changes of the status, which is not part of a record in Fluree.
    fn filter(&self) -> Filter {
        let addresses = if self.all { HashSet::new() } else { self.addresses() };
        Filter::of_records(addresses, ChangedPart::Concern(ConcernKind::Status))
    }

    /// Returns a name of the form in which these records are sent: equal for equal scopes.
    fn form(&self) -> String {
        let named = self.named.iter().filter(|_| !self.all);
        let mut named: Vec<_> = named.map(|(kind, address)| format!("{} {address}", kind.as_str())).collect();
        named.sort();
        format!("records\n{}", named.join("\n"))
    }
}

impl Projection {
    pub(crate) fn of_changes(caller: &Allowed<Read>, filter: Filter) -> Self {
        Self::Changes(caller.interest(filter, "changes".to_owned()))
    }

    /// Returns a projection to records. With `known`, the reader has already been sent them.
    pub(crate) fn of_records(names: Arc<dyn NameService>, caller: Allowed<Events>, scope: Scope, known: bool) -> Self {
        let opening = match known {
            true => None,
            false if scope.all => Some(Opening::All(None)),
            false => Some(Opening::Named(scope.addresses().into_iter().collect())),
        };
        let form = format!("{}\n{}", scope.form(), caller.events_form());
        let interest = caller.interest(scope.filter(), form);
        Self::Records(Records { names, caller, scope, interest, opening })
    }

    pub(crate) fn interest(&self) -> &Arc<Interest> {
        match self {
            Self::Changes(interest) => interest,
            Self::Records(records) => &records.interest,
        }
    }

    /// Whether records are still to be sent before changes. They have no id, so a reader that is disconnected meanwhile
    /// begins again.
    pub(crate) fn is_opening(&self) -> bool {
        matches!(self, Self::Records(Records { opening: Some(_), .. }))
    }

    /// Whether these are all records.
    pub(crate) fn is_opening_of_all(&self) -> bool {
        matches!(self, Self::Records(Records { opening: Some(Opening::All(_)), .. }))
    }

    /// Returns a page of these records.
    pub(crate) async fn open(&mut self) -> Result<Text, Error> {
        match self {
            Self::Changes(_) => Ok(Text::default()),
            Self::Records(records) => records.open().await,
        }
    }

    /// Returns the changes that the reader takes.
    pub(crate) async fn select(&self, changes: Vec<Change>) -> Result<VecDeque<Arc<Entry>>, Error> {
        let marked = self.interest().marked(changes, |change| change).await?;
        let taken = marked.into_iter().filter_map(|(change, is_taken)| is_taken.then_some(change));
        Ok(taken.map(|change| Arc::new(change.into())).collect())
    }

    /// Returns the text to be sent for changes that the reader takes.
    pub(crate) async fn text(&self, entries: &[Arc<Entry>]) -> Result<Text, Error> {
        match self {
            Self::Changes(_) => {
                let mut text = Text::default();
                for entry in entries {
                    text.event("change", Some(entry.change.position), entry.json());
                }
                Ok(text)
            }
            Self::Records(records) => records.text(entries).await,
        }
    }
}

impl Records {
    async fn open(&mut self) -> Result<Text, Error> {
        let caller = &self.caller;
        let found = match &mut self.opening {
            None => return Ok(Text::default()),
            Some(Opening::All(cursor)) => {
                let visible = |address: &Address| caller.sees(address);
                let page = self.names.snapshot(OPENING, cursor.as_ref(), &visible).await?;
                self.opening = page.cursor.map(|cursor| Opening::All(Some(cursor)));
                page.items
            }
            Some(Opening::Named(addresses)) => {
                let rest = addresses.len().saturating_sub(RECORDS);
                let page: Vec<_> = addresses[rest..].iter().filter(|address| caller.sees(address)).cloned().collect();
                let found = self.names.lookup_all(&page).await?;
                addresses.truncate(rest);
                if rest == 0 {
                    self.opening = None;
                }
                found
            }
        };
        let mut text = Text::default();
        for record in found.iter().filter(|record| !record.retracted && self.shows(record.kind, &record.address)) {
            write(&mut text, &Event::of(record, Timestamp::now()), None)?;
        }
        Ok(text)
    }

    async fn text(&self, entries: &[Arc<Entry>]) -> Result<Text, Error> {
        let mut text = Text::default();
        for chunk in self.changed(entries).chunks(RECORDS) {
            let addresses: HashSet<_> = chunk.iter().map(|changed| changed.address.clone()).collect();
            let addresses: Vec<_> = addresses.into_iter().collect();
            let found = self.names.lookup_all(&addresses).await?;
            let found: HashMap<&Address, &Record> = found.iter().map(|record| (&record.address, record)).collect();
            for Changed { position, address, kind } in chunk {
                let now = Timestamp::now();
                // If a record was purged and created again as another kind, each of the two has an entry of its own.
                let event = match found.get(address).filter(|record| record.kind == *kind) {
                    Some(record) => Event::of(record, now),
                    None => Event::retracted(address, *kind, now),
                };
                write(&mut text, &event, Some(*position))?;
            }
        }
        Ok(text)
    }

    /// Whether the reader wants a record of this kind, and may follow it.
    fn shows(&self, kind: RecordKind, address: &Address) -> bool {
        self.scope.holds(kind, address) && self.caller.follows(kind, address)
    }

    /// Returns the records that changed, each once, at the position of its last change. So after each event everything up to
    /// its position is sent: a record that is sent later has a later change, too.
    fn changed(&self, entries: &[Arc<Entry>]) -> Vec<Changed> {
        let changes = entries.iter().map(|entry| &entry.change);
        let last: HashMap<_, _> = changes
            .filter(|change| self.shows(change.identity.kind, &change.address))
            .map(|change| ((&change.address, change.identity.kind), change.position))
            .collect();
        let mut changed: Vec<_> = last
            .into_iter()
            .map(|((address, kind), position)| Changed { position, address: address.clone(), kind })
            .collect();
        changed.sort_by_key(|changed| changed.position);
        changed
    }
}

struct Changed {
    position: u64,
    address: Address,
    kind: RecordKind,
}

fn write(text: &mut Text, event: &Event, id: Option<u64>) -> Result<(), Error> {
    let data = serde_json::to_string(event)
        .map_err(|error| Error::Store { operation: "write an event", source: error.into() })?;
    text.event(event.name(), id, &data);
    Ok(())
}
