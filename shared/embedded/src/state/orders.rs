//! The orders in which records are listed, and the references between them.

use std::{ops::Bound, sync::Arc};

use imbl::{OrdMap, OrdSet};

use super::{place::Place, record::Record, search::Texts};

/// Indexes that are derived from the records.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Orders {
    all: OrdSet<Place>,
    /// Records in states other than `ready`.
    by_state: OrdMap<Arc<str>, OrdSet<Place>>,
    by_type: OrdMap<Arc<str>, OrdSet<Place>>,
    /// References: (target, dependent).
    references: OrdSet<(Arc<str>, Arc<str>)>,
    /// The texts that are searched.
    texts: Texts,
}

impl Orders {
    pub(crate) fn add(&mut self, record: &Record) {
        self.texts.add(&Place::of(record), record);
        self.place(record);
    }

    /// Adds a record to everything but the texts. For many records those are built in one pass, by [`Orders::write_texts`].
    pub(crate) fn place(&mut self, record: &Record) {
        let place = Place::of(record);
        if let Some(state) = &record.status.state {
            self.by_state.entry(state.clone()).or_default().insert(place.clone());
        }
        if let Some(source_type) = source_type(record) {
            self.by_type.entry(source_type.clone()).or_default().insert(place.clone());
        }
        for target in record.dependencies() {
            self.references.insert((target.clone(), record.address.clone()));
        }
        self.all.insert(place);
    }

    pub(crate) fn remove(&mut self, record: &Record) {
        self.texts.remove(&Place::of(record));
        self.displace(record);
    }

    fn displace(&mut self, record: &Record) {
        let place = Place::of(record);
        if let Some(state) = &record.status.state {
            take(&mut self.by_state, state, &place);
        }
        if let Some(source_type) = source_type(record) {
            take(&mut self.by_type, source_type, &place);
        }
        for target in record.dependencies() {
            self.references.remove(&(target.clone(), record.address.clone()));
        }
        self.all.remove(&place);
    }

    /// Updates the orders after a write of a record. Most writes change nothing here.
    pub(crate) fn replace(&mut self, before: Option<&Record>, after: &Record) {
        let Some(before) = before else { return self.add(after) };
        self.texts.replace(|| Place::of(after), before, after);
        if before.status.state != after.status.state {
            let place = Place::of(after);
            if let Some(state) = &before.status.state {
                take(&mut self.by_state, state, &place);
            }
            if let Some(state) = &after.status.state {
                self.by_state.entry(state.clone()).or_default().insert(place);
            }
        }
        let has_moved = match (&before.origin, &after.origin) {
            (Some(before), Some(after)) => !Arc::ptr_eq(before, after),
            (None, None) => false,
            _ => true,
        };
        if has_moved {
            self.displace(before);
            self.place(after);
        }
    }

    /// Builds the texts of all records.
    pub(crate) fn write_texts<'a>(&'a mut self, record: impl Fn(&Place) -> Option<&'a Record>) {
        let placed = self.all.iter().filter_map(|place| Some((place, record(place)?)));
        self.texts = Texts::of(placed);
    }

    pub(crate) const fn texts(&self) -> &Texts {
        &self.texts
    }

    pub(crate) const fn all(&self) -> &OrdSet<Place> {
        &self.all
    }

    pub(crate) fn in_state(&self, state: &str) -> Option<&OrdSet<Place>> {
        self.by_state.get(state)
    }

    pub(crate) fn of_type(&self, source_type: &str) -> Option<&OrdSet<Place>> {
        self.by_type.get(source_type)
    }

    /// Returns the addresses that depend on a target, in order.
    pub(crate) fn dependents(&self, target: &Arc<str>) -> impl Iterator<Item = &Arc<str>> {
        let from = Bound::Included((target.clone(), Arc::from("")));
        let target = target.clone();
        self.references
            .range((from, Bound::Unbounded))
            .take_while(move |(of, _)| *of == target)
            .map(|(_, dependent)| dependent)
    }
}

fn source_type(record: &Record) -> Option<&Arc<str>> {
    record.origin.as_ref()?.source_type.as_ref()
}

fn take(sets: &mut OrdMap<Arc<str>, OrdSet<Place>>, key: &Arc<str>, place: &Place) {
    if let Some(set) = sets.get_mut(key) {
        set.remove(place);
        if set.is_empty() {
            sets.remove(key);
        }
    }
}
