//! What a stream tells of changes: the changes themselves, or the records as they have become.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use jiff::Timestamp;
use nameservice_http::{
    Problem,
    extract::{Allowed, Read},
    shapes::{
        changes::{self, Filter},
        fluree::Event,
    },
};
use nameservice_model::{
    Address, Change, ChangedPart, ConcernKind, Cursor, Error, Limit, NameService, Record, RecordKind,
};
use serde::Serialize;

use crate::{follow::Stop, outlet::Outlet};

/// How many records that were named or have changed are read and held at once.
const RECORDS: usize = 25;
/// How many records of a scan are held at once: as many as one of its requests gives.
const OPENING: usize = 1000;

pub(crate) enum Story {
    Changes(Filter),
    Records(Records),
}

/// Records in the words of Fluree.
pub(crate) struct Records {
    names: Arc<dyn NameService>,
    scope: Scope,
    opening: Option<Opening>,
}

/// What is left to be told before changes are.
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
}

impl Story {
    pub(crate) fn of_changes(filter: Filter) -> Self {
        Self::Changes(filter)
    }

    /// `known`: the reader has been told of the records before.
    pub(crate) fn of_records(names: Arc<dyn NameService>, scope: Scope, known: bool) -> Self {
        let opening = match known {
            true => None,
            false if scope.all => Some(Opening::All(None)),
            false => {
                let named: HashSet<_> = scope.named.iter().map(|(_, address)| address.clone()).collect();
                Some(Opening::Named(named.into_iter().collect()))
            }
        };
        Self::Records(Records { names, scope, opening })
    }

    /// Whether something has to be told before changes are. A reader who is cut meanwhile begins again: nothing that is
    /// told then has an id.
    pub(crate) fn is_opening(&self) -> bool {
        matches!(self, Self::Records(Records { opening: Some(_), .. }))
    }

    /// Tells a page of that.
    pub(crate) async fn open(&mut self, caller: &Allowed<Read>, outlet: &mut Outlet) -> Result<(), Stop> {
        match self {
            Self::Changes(_) => Ok(()),
            Self::Records(records) => records.open(caller, outlet).await,
        }
    }

    /// Tells of changes, and counts `after` up to where all is told.
    pub(crate) async fn go_on(
        &self,
        changes: &[Change],
        caller: &Allowed<Read>,
        outlet: &mut Outlet,
        after: &mut u64,
    ) -> Result<(), Stop> {
        match self {
            Self::Changes(filter) => {
                for change in changes {
                    if filter.wants(change) && caller.sees(&change.address) {
                        let data = json_text(&changes::Change::from(change))?;
                        outlet.tell("change", Some(change.position), data).await?;
                    }
                    *after = change.position;
                }
            }
            Self::Records(records) => return records.go_on(changes, caller, outlet, after).await,
        }
        Ok(())
    }
}

impl Records {
    async fn open(&mut self, caller: &Allowed<Read>, outlet: &mut Outlet) -> Result<(), Stop> {
        let found = match &mut self.opening {
            None => return Ok(()),
            Some(Opening::All(cursor)) => {
                let visible = |address: &Address| caller.sees(address);
                let page =
                    self.names.snapshot(Limit::new(OPENING).unwrap_or_default(), cursor.as_ref(), &visible).await?;
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
        let live = found.iter().filter(|record| !record.retracted && self.scope.holds(record.kind, &record.address));
        for record in live {
            let event = Event::of(record, Timestamp::now());
            outlet.tell(event.name(), None, json_text(&event)?).await?;
        }
        Ok(())
    }

    async fn go_on(
        &self,
        changes: &[Change],
        caller: &Allowed<Read>,
        outlet: &mut Outlet,
        after: &mut u64,
    ) -> Result<(), Stop> {
        for chunk in self.changed(changes, caller).chunks(RECORDS) {
            let addresses: HashSet<_> = chunk.iter().map(|changed| changed.address.clone()).collect();
            let addresses: Vec<_> = addresses.into_iter().collect();
            let found = self.names.lookup_all(&addresses).await?;
            let found: HashMap<&Address, &Record> = found.iter().map(|record| (&record.address, record)).collect();
            for Changed { position, address, kind } in chunk {
                let now = Timestamp::now();
                // A record of another kind took the place of one that was purged: each has an entry of its own.
                let event = match found.get(address).filter(|record| record.kind == *kind) {
                    Some(record) => Event::of(record, now),
                    None => Event::retracted(address, *kind, now),
                };
                outlet.tell(event.name(), Some(*position), json_text(&event)?).await?;
                *after = *position;
            }
        }
        if let Some(last) = changes.last() {
            *after = last.position;
        }
        Ok(())
    }

    /// The records that have changed, each once, where its last change is. So after each of them everything up to there
    /// is told: what changed before and is told later, changes again after it.
    fn changed(&self, changes: &[Change], caller: &Allowed<Read>) -> Vec<Changed> {
        // A status is no part of what Fluree knows of a record.
        let is_shown = |change: &&Change| change.part != ChangedPart::Concern(ConcernKind::Status);
        let is_wanted =
            |change: &&Change| self.scope.holds(change.identity.kind, &change.address) && caller.sees(&change.address);
        let last: HashMap<_, _> = changes
            .iter()
            .filter(is_shown)
            .filter(is_wanted)
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

fn json_text(shape: &impl Serialize) -> Result<String, Error> {
    serde_json::to_string(shape).map_err(|error| Error::Store { operation: "write an event", source: error.into() })
}
