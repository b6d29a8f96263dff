//! Lists and snapshots of both places.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    ops::Bound,
};

use nameservice_model::{Address, Cursor, Limit, ListQuery, Listed, Page, Record, Result, Visible};

use super::{
    LazyBackend,
    older::{Entry, Place, place_of},
};
use crate::{
    compare::lookup,
    pending::{is_pending, without_mark},
};

/// How many records of the older place are looked up together.
const CHUNK: usize = 200;

impl LazyBackend {
    /// Returns a page of both places, in the order of lists. Each record of the older place that falls into the page is
    /// looked up at the backend.
    pub(super) async fn listed(&self, query: &ListQuery, visible: Visible<'_>) -> Result<Page<Listed>> {
        // An index by state has an order of its own, so states are compared here.
        let whole = ListQuery { state: None, full: query.full || query.state.is_some(), ..query.clone() };
        let older = self.older.list().await?;
        let mut after = query.cursor.clone();
        loop {
            let page = self.names.list(&ListQuery { cursor: after.clone(), ..whole.clone() }, visible).await?;
            // Where the page ends, in the order of lists.
            let end = page.cursor.as_ref().map(place_at);
            let begin = after.as_ref().map(place_at);
            let range =
                (begin.map_or(Bound::Unbounded, Bound::Excluded), end.map_or(Bound::Unbounded, Bound::Included));
            let (mut found, mut known) = (BTreeMap::new(), HashSet::new());
            for item in page.items {
                let place = place_of_listed(&item);
                known.insert(place.clone());
                let item = self.listed_here(item).await?;
                if is_in_state(&item, query) {
                    found.insert(place, item);
                }
            }
            let may = |(place, entry): &(&Place, &Entry)| {
                !known.contains(*place) && is_wanted(entry, query) && is_shown(&entry.summary.address, visible)
            };
            let mut candidates = older.range(range).filter(may);
            loop {
                let chunk: Vec<Entry> = candidates.by_ref().take(CHUNK).map(|(_, entry)| entry.clone()).collect();
                let Some(last) = chunk.last() else { break };
                for item in self.only_there(&chunk, query).await? {
                    if is_in_state(&item, query) {
                        found.insert(place_of_listed(&item), item);
                    }
                }
                // Records beyond the limit belong to the next page.
                if found.range(..=place_of(last.summary.kind, &last.summary.address)).count() > query.limit.get() {
                    break;
                }
            }
            drop(candidates);
            let more = found.len() > query.limit.get();
            let items: Vec<Listed> = found.into_values().take(query.limit.get()).collect();
            let cursor = match more {
                true => items.last().map(Listed::cursor),
                false => page.cursor,
            };
            if items.is_empty() && cursor.is_some() {
                after = cursor;
                continue;
            }
            let items = items.into_iter().map(|item| narrowed(item, query)).collect();
            return Ok(Page { items, cursor });
        }
    }

    /// Returns a record of the backend in the form in which it is shown.
    async fn listed_here(&self, item: Listed) -> Result<Listed> {
        match item {
            Listed::Full(record) if is_pending(&record) => {
                let address = record.address.clone();
                let shown = self.shown(&address, Some((*record).clone())).await?;
                Ok(Listed::Full(shown.map_or(record, Box::new)))
            }
            item => Ok(item),
        }
    }

    /// Returns those of the records that only the older place has.
    async fn only_there(&self, entries: &[Entry], query: &ListQuery) -> Result<Vec<Listed>> {
        let addresses: Vec<Address> = entries.iter().map(|entry| entry.summary.address.clone()).collect();
        let here = self.here(addresses).await?;
        let left: Vec<&Entry> = entries.iter().filter(|entry| !here.contains_key(&entry.summary.address)).collect();
        let needs_records = query.full || query.state.is_some();
        let mut items: Vec<Listed> = Vec::with_capacity(entries.len());
        // A record that is being taken over has had no other write, so it is shown as it is at the older place.
        let mut pending = Vec::new();
        for (address, record) in here {
            match is_pending(&record) && !record.retracted {
                true => pending.push(address),
                false => self.settle(&address),
            }
        }
        match needs_records {
            true => {
                let addresses = left.iter().map(|entry| entry.summary.address.clone()).chain(pending).collect();
                let records = self.older.find_all(addresses).await?;
                items.extend(records.into_iter().map(|record| Listed::Full(Box::new(record))));
            }
            false => items.extend(left.into_iter().map(|entry| Listed::Summary(entry.summary.clone()))),
        }
        Ok(items)
    }

    /// Returns the records of these addresses that the backend has.
    async fn here(&self, addresses: Vec<Address>) -> Result<HashMap<Address, Record>> {
        lookup(&*self.names, addresses).await.map_err(super::older::unreadable)
    }

    /// Returns a page of a snapshot: first the records that only the older place has, then the backend's.
    pub(super) async fn snapshot_page(
        &self,
        limit: Limit,
        after: Option<&Cursor>,
        visible: Visible<'_>,
    ) -> Result<Page<Record>> {
        if after.is_none_or(Cursor::is_older) {
            let older = match after {
                // A fresh list, because a record that was created there since the last one is in none of the backend's
                // pages.
                None => self.older.list_now().await?,
                Some(_) => self.older.list().await?,
            };
            let position = match after.and_then(Cursor::position) {
                Some(position) => position,
                None => self.feed.position().await?,
            };
            let begin = after.map_or(Bound::Unbounded, |cursor| Bound::Excluded(place_at(cursor)));
            let following = older.range((begin, Bound::Unbounded)).map(|((_, address), _)| address);
            let wanted: Vec<Address> = following.filter(|address| is_shown(address, visible)).cloned().collect();
            for chunk in wanted.chunks(CHUNK.min(limit.get())) {
                let here = self.here(chunk.to_vec()).await?;
                let left = chunk.iter().filter(|address| !here.contains_key(*address)).cloned().collect();
                let records = self.older.find_all(left).await?;
                if let Some(last) = records.last() {
                    let cursor = Some(Cursor::in_snapshot(last, position).older(true));
                    return Ok(Page { items: records, cursor });
                }
            }
        }
        let page = self.names.snapshot(limit, after.filter(|cursor| !cursor.is_older()), visible).await?;
        let mut items = Vec::with_capacity(page.items.len());
        for record in page.items {
            let address = record.address.clone();
            match is_pending(&record) {
                true => items.extend(self.shown(&address, Some(record)).await?),
                false => items.push(record),
            }
        }
        Ok(Page { items, cursor: page.cursor })
    }
}

fn is_in_state(item: &Listed, query: &ListQuery) -> bool {
    let state = match item {
        Listed::Full(record) => record.status.payload.as_ref().map_or("", |payload| payload.state.as_str()),
        Listed::Summary(_) => "",
    };
    query.state.as_deref().is_none_or(|wanted| wanted == state)
}

/// Names outside the grammar are readable only through the library.
fn is_shown(address: &Address, visible: Visible<'_>) -> bool {
    address.is_well_formed() && visible(address)
}

fn place_at(cursor: &Cursor) -> Place {
    place_of(cursor.kind(), &Address::stored(cursor.after().to_owned()))
}

fn place_of_listed(item: &Listed) -> Place {
    match item {
        Listed::Summary(summary) => place_of(summary.kind, &summary.address),
        Listed::Full(record) => place_of(record.kind, &record.address),
    }
}

/// Returns whether a record of the older place belongs to a list, regardless of its state.
fn is_wanted(entry: &Entry, query: &ListQuery) -> bool {
    let summary = &entry.summary;
    query.kind.is_none_or(|kind| kind == summary.kind)
        && query.name.as_ref().is_none_or(|name| name == summary.address.name())
        && query.prefix.as_ref().is_none_or(|prefix| summary.address.as_str().starts_with(prefix.as_str()))
        && query.source_type.as_ref().is_none_or(|wanted| Some(wanted) == summary.source_type.as_ref())
        && query.retracted.is_none_or(|retracted| retracted == summary.retracted)
}

/// Reduces an entry to what was asked for.
fn narrowed(item: Listed, query: &ListQuery) -> Listed {
    match item {
        Listed::Full(record) if !query.full => Listed::Summary(nameservice_model::Summary::from(&*record)),
        Listed::Full(record) => Listed::Full(Box::new(without_mark(*record))),
        item => item,
    }
}
