//! Lists and snapshots: pages of a state in the order of its records.

use std::{ops::Bound, sync::Arc};

use imbl::OrdSet;
use nameservice_model::{
    Address, Cursor, ListQuery, Listed, Page, Record as ModelRecord, RecordKind, StatusPayload, Visible,
};

use super::{Record, State, place::Place};

/// A page ends once it has about this many bytes: answers stay below 4 MiB.
const PAGE_BYTES: usize = 3 * 1024 * 1024;

/// The order in which lists return the kinds.
const KINDS: [RecordKind; 2] = [RecordKind::GraphSource, RecordKind::Ledger];

/// A walk through the records of a state that fills one page.
pub(crate) struct Walk<'a, T> {
    state: &'a State,
    places: Option<&'a OrdSet<Place>>,
    kinds: Vec<RecordKind>,
    prefix: String,
    /// Where the walk continues.
    from: Bound<Place>,
    limit: usize,
    bytes: usize,
    page: Page<T>,
    wants: Box<dyn Fn(&Record) -> bool + Send + Sync + 'a>,
    shows: fn(&Record) -> T,
    cursor: Box<dyn Fn(&T) -> Cursor + Send + Sync + 'a>,
}

impl State {
    /// Returns the walk for a page of a list.
    pub(crate) fn list<'a>(&'a self, query: &'a ListQuery, visible: Visible<'a>) -> Walk<'a, Listed> {
        let kinds = KINDS.into_iter().filter(|kind| query.kind.is_none_or(|wanted| wanted == *kind)).collect();
        let state = query.state.as_deref();
        let beginning = query.beginning();
        let places = match (&query.source_type, state, query.retracted) {
            _ if beginning.is_none() => None,
            (Some(source_type), ..) => self.orders.of_type(source_type),
            (None, Some(state), _) if state != StatusPayload::READY => self.orders.in_state(state),
            // A retracted record is in no other state.
            (None, None, Some(true)) => self.orders.in_state(StatusPayload::RETRACTED),
            _ => Some(self.orders.all()),
        };
        let wants = move |record: &Record| {
            query.retracted.is_none_or(|retracted| retracted == record.retracted)
                && state.is_none_or(|state| state == record.status.state())
                && is_shown(&record.model_address(), visible)
        };
        let shows: fn(&Record) -> Listed = match query.full {
            true => |record| Listed::Full(Box::new(record.to_model())),
            false => |record| Listed::Summary(record.summary()),
        };
        Walk {
            state: self,
            places,
            kinds,
            prefix: beginning.unwrap_or_default(),
            from: begin(query.cursor.as_ref()),
            limit: query.limit.get(),
            bytes: 0,
            page: Page { items: Vec::new(), cursor: None },
            wants: Box::new(wants),
            shows,
            cursor: Box::new(Listed::cursor),
        }
    }

    /// Returns the walk for a page of a snapshot.
    pub(crate) fn snapshot<'a>(
        &'a self,
        limit: usize,
        after: Option<&Cursor>,
        visible: Visible<'a>,
    ) -> Walk<'a, ModelRecord> {
        let position = after.and_then(Cursor::position).unwrap_or(self.position);
        Walk {
            state: self,
            places: Some(self.orders.all()),
            kinds: KINDS.to_vec(),
            prefix: String::new(),
            from: begin(after),
            limit,
            bytes: 0,
            page: Page { items: Vec::new(), cursor: None },
            wants: Box::new(move |record| is_shown(&record.model_address(), visible)),
            shows: Record::to_model,
            cursor: Box::new(move |record| Cursor::in_snapshot(record, position)),
        }
    }

    /// Returns what depends on a record: graph sources, then branches, each in order.
    pub(crate) fn dependents(&self, address: &Address) -> Vec<Address> {
        let target: Arc<str> = Arc::from(address.as_str());
        let mut dependents: Vec<_> =
            self.orders.dependents(&target).map(|dependent| Address::stored(&**dependent)).collect();
        let names = format!("{}:", address.name());
        let from = Bound::Included(Place::new(RecordKind::Ledger, Arc::from(names.as_str())));
        let branches = self
            .orders
            .all()
            .range((from, Bound::Unbounded))
            .take_while(|place| place.address.starts_with(&names))
            .filter_map(|place| self.records.get(&place.address))
            .filter(|branch| branch.source_branch() == Some(address.branch()) && *branch.address != *address.as_str());
        dependents.extend(branches.map(|branch| branch.model_address()));
        dependents
    }
}

impl<T> Walk<'_, T> {
    /// Looks at a number of records. Returns whether the page is complete.
    pub(crate) fn advance(&mut self, looks: usize) -> bool {
        let Some(places) = self.places else { return true };
        let mut left = looks;
        for kind in self.kinds.clone() {
            let first = Place::new(kind, Arc::from(self.prefix.as_str()));
            let from = match &self.from {
                Bound::Excluded(place) if *place >= first => Bound::Excluded(place.clone()),
                _ => Bound::Included(first),
            };
            for place in places.range((from, Bound::Unbounded)) {
                if place.kind() != kind || !place.address.starts_with(&self.prefix) {
                    break;
                }
                if left == 0 {
                    return false;
                }
                left -= 1;
                if self.is_complete_with(place) {
                    return true;
                }
                self.from = Bound::Excluded(place.clone());
            }
        }
        true
    }

    /// Adds a record to the page if it is requested. Returns true if the page is full without it.
    fn is_complete_with(&mut self, place: &Place) -> bool {
        let Some(record) = self.state.records.get(&place.address).filter(|record| (self.wants)(record)) else {
            return false;
        };
        if self.page.items.len() == self.limit || self.bytes >= PAGE_BYTES {
            self.page.cursor = self.page.items.last().map(&self.cursor);
            return true;
        }
        self.bytes += record.weight();
        self.page.items.push((self.shows)(record));
        false
    }

    /// The page.
    pub(crate) fn into_page(self) -> Page<T> {
        self.page
    }
}

fn begin(cursor: Option<&Cursor>) -> Bound<Place> {
    match cursor {
        Some(cursor) => Bound::Excluded(Place::new(cursor.kind(), Arc::from(cursor.after()))),
        None => Bound::Unbounded,
    }
}

/// Names outside the grammar are readable only through the library.
pub(super) fn is_shown(address: &Address, visible: Visible<'_>) -> bool {
    address.is_well_formed() && visible(address)
}
