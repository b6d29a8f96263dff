//! The search index: the searchable text of every record, in the order of lists.
//!
//! The texts of several hundred records are stored contiguously in a chunk, so that a search is a sequential scan of
//! memory. It is about as fast as memory can be read, whatever is searched for, and a write has to update only the text
//! itself. Chunks are shared between a state and its clones.

use std::{ops::Bound, sync::Arc};

use imbl::OrdMap;
use memchr::memmem::Finder;
use nameservice_model::{Hit, Page, SearchField, SearchQuery, Visible, fold, searched_config};
use serde_json::Value;

use super::{Record, State, lists::is_shown, place::Place};

/// A chunk is split once it has more records or bytes than this.
const MAX_RECORDS: usize = 512;
const MAX_BYTES: usize = 64 * 1024;
/// Ends every field of a record. No word contains it.
const END: u8 = 0;
/// The fields of a record, in the order of their text.
const FIELDS: [SearchField; 4] = SearchField::ALL;

/// How well a word fits a record: where it was found. The rank of a hit is the sum over its words.
mod fit {
    /// It is the address, or the name of a `main` branch.
    pub(super) const WHOLE: u16 = 0;
    /// It is a segment of the address.
    pub(super) const SEGMENT: u16 = 1;
    /// A segment begins with it.
    pub(super) const PREFIX: u16 = 2;
    /// A word within a segment begins with it.
    pub(super) const WORD: u16 = 3;
    /// It is somewhere in the address.
    pub(super) const INSIDE: u16 = 4;
    /// It is in the type or the state.
    pub(super) const TYPE_OR_STATE: u16 = 5;
    /// It is in a value of the configuration.
    pub(super) const CONFIG: u16 = 6;
}

/// The texts of all records.
#[derive(Clone, Debug, Default)]
pub(crate) struct Texts {
    /// By a place that is not after the first record of the chunk.
    chunks: OrdMap<Place, Arc<Chunk>>,
}

/// The texts of some records, in their order.
#[derive(Clone, Debug, Default, PartialEq)]
struct Chunk {
    places: Vec<Place>,
    /// The end of each text.
    ends: Vec<u32>,
    text: String,
}

/// Returns the text of a record: its fields, each folded and terminated.
fn text_of(record: &Record) -> String {
    let end = char::from(END);
    let config = record.config.payload.as_deref().map(|text| serde_json::from_str(text).unwrap_or(Value::Null));
    let config = config.as_ref().map(searched_config).unwrap_or_default();
    let mut text = fold(&record.address);
    for field in [fold(record.source_type().unwrap_or_default()), fold(record.status.state()), config] {
        text.push(end);
        text.push_str(&field);
    }
    text.push(end);
    text
}

/// Returns whether a write has left the text unchanged.
fn is_same(before: &Record, after: &Record) -> bool {
    let same = |before: &Option<Arc<str>>, after: &Option<Arc<str>>| match (before, after) {
        (Some(before), Some(after)) => Arc::ptr_eq(before, after) || before == after,
        (None, None) => true,
        _ => false,
    };
    same(&before.config.payload, &after.config.payload)
        && same(&before.status.state, &after.status.state)
        && before.source_type() == after.source_type()
}

impl Texts {
    /// Returns the texts of records that come in the order of lists.
    pub(super) fn of<'a>(records: impl Iterator<Item = (&'a Place, &'a Record)>) -> Self {
        let (mut chunks, mut chunk) = (OrdMap::new(), Chunk::default());
        let mut put = |chunk: Chunk| {
            if let Some(first) = chunk.places.first() {
                chunks.insert(first.clone(), Arc::new(chunk));
            }
        };
        for (place, record) in records {
            chunk.insert(chunk.places.len(), place.clone(), &text_of(record));
            // Half full, as after a split.
            if chunk.places.len() >= MAX_RECORDS / 2 || chunk.text.len() >= MAX_BYTES / 2 {
                chunk.text.shrink_to_fit();
                put(std::mem::take(&mut chunk));
            }
        }
        put(chunk);
        Self { chunks }
    }

    pub(super) fn add(&mut self, place: &Place, record: &Record) {
        let text = text_of(record);
        let Some(key) = self.key_of(place) else {
            let mut chunk = Chunk::default();
            chunk.insert(0, place.clone(), &text);
            self.chunks.insert(place.clone(), Arc::new(chunk));
            return;
        };
        let Some(chunk) = self.chunks.get_mut(&key) else { return };
        let chunk = Arc::make_mut(chunk);
        match chunk.places.binary_search(place) {
            Ok(at) => {
                chunk.remove(at);
                chunk.insert(at, place.clone(), &text);
            }
            Err(at) => chunk.insert(at, place.clone(), &text),
        }
        if chunk.places.len() > 1 && (chunk.places.len() > MAX_RECORDS || chunk.text.len() > MAX_BYTES) {
            let rest = chunk.split();
            if let Some(first) = rest.places.first() {
                self.chunks.insert(first.clone(), Arc::new(rest));
            }
        }
    }

    pub(super) fn remove(&mut self, place: &Place) {
        let Some(key) = self.key_of(place) else { return };
        let Some(chunk) = self.chunks.get_mut(&key) else { return };
        let Ok(at) = chunk.places.binary_search(place) else { return };
        let chunk = Arc::make_mut(chunk);
        chunk.remove(at);
        if chunk.places.is_empty() {
            self.chunks.remove(&key);
        }
    }

    /// Updates the text of a record that stays in its place.
    pub(super) fn replace(&mut self, place: impl FnOnce() -> Place, before: &Record, after: &Record) {
        if !is_same(before, after) {
            self.add(&place(), after);
        }
    }

    /// Returns the key of the chunk that has a place, or would have it; `None` if the place comes before all chunks.
    fn key_of(&self, place: &Place) -> Option<Place> {
        self.chunks.get_prev(place).map(|(key, _)| key.clone())
    }

    /// Every text, in order.
    fn texts(&self) -> impl Iterator<Item = (&Place, &str)> {
        self.chunks
            .values()
            .flat_map(|chunk| chunk.places.iter().enumerate().map(|(at, place)| (place, chunk.text_at(at))))
    }
}

/// Equality ignores how the texts are divided into chunks, which depends on the order of writes.
impl PartialEq for Texts {
    fn eq(&self, other: &Self) -> bool {
        self.texts().eq(other.texts())
    }
}

impl Chunk {
    fn start(&self, at: usize) -> usize {
        at.checked_sub(1).and_then(|before| self.ends.get(before)).map_or(0, |end| *end as usize)
    }

    fn end(&self, at: usize) -> usize {
        self.ends.get(at).map_or(self.text.len(), |end| *end as usize)
    }

    fn text_at(&self, at: usize) -> &str {
        self.text.get(self.start(at)..self.end(at)).unwrap_or_default()
    }

    fn insert(&mut self, at: usize, place: Place, text: &str) {
        let start = self.start(at);
        // Texts and chunks have only kilobytes, so the lengths fit.
        let length = u32::try_from(text.len()).unwrap_or(u32::MAX);
        self.text.insert_str(start, text);
        self.ends.insert(at, u32::try_from(start).unwrap_or(u32::MAX));
        self.ends.iter_mut().skip(at).for_each(|end| *end += length);
        self.places.insert(at, place);
    }

    fn remove(&mut self, at: usize) {
        let (start, end) = (self.start(at), self.end(at));
        let length = u32::try_from(end - start).unwrap_or(u32::MAX);
        self.text.replace_range(start..end, "");
        self.ends.iter_mut().skip(at).for_each(|end| *end -= length);
        self.ends.remove(at);
        self.places.remove(at);
    }

    /// Splits off the second half.
    fn split(&mut self) -> Self {
        let at = self.places.len() / 2;
        let start = self.start(at);
        let begin = u32::try_from(start).unwrap_or(u32::MAX);
        Self {
            places: self.places.split_off(at),
            ends: self.ends.split_off(at).into_iter().map(|end| end - begin).collect(),
            text: self.text.split_off(start),
        }
    }
}

/// A search in progress.
pub(crate) struct Lookup<'a> {
    state: &'a State,
    query: &'a SearchQuery,
    visible: Visible<'a>,
    /// The words, longest first: the texts are scanned for the first word, and only its hits are checked for the
    /// others.
    words: Vec<Word<'a>>,
    /// The wanted type and state, folded: texts with other ones are skipped without a look at the record.
    source_type: Option<String>,
    in_state: Option<String>,
    /// Only what comes after this rank and place.
    after: Option<(u16, Place)>,
    next: Bound<Place>,
    /// The best hits so far, by rank, and in order within a rank. In total there is at most one more than the page
    /// holds.
    found: Vec<Vec<Found>>,
    count: usize,
    /// Hits of this rank or a worse one are no longer needed: the page is full of hits that are better, or as good and
    /// earlier.
    worst: u16,
}

struct Word<'a> {
    finder: Finder<'a>,
    length: usize,
}

struct Found {
    place: Place,
    /// The fields with a word, as bits in the order of [`FIELDS`].
    fields: u8,
}

impl State {
    /// Returns a search over the state.
    pub(crate) fn search<'a>(&'a self, query: &'a SearchQuery, visible: Visible<'a>) -> Lookup<'a> {
        let mut words: Vec<Word<'a>> = query
            .words
            .words()
            .iter()
            .map(|word| Word { finder: Finder::new(word.as_bytes()), length: word.len() })
            .collect();
        words.sort_by_key(|word| std::cmp::Reverse(word.length));
        let after = query.cursor.as_ref();
        let after = after.map(|after| (after.rank().unwrap_or(0), Place::new(after.kind(), Arc::from(after.after()))));
        let ranks = usize::from(fit::CONFIG) * words.len() + 1;
        Lookup {
            state: self,
            query,
            visible,
            words,
            source_type: query.source_type.as_deref().map(fold),
            in_state: query.state.as_deref().map(fold),
            after,
            next: Bound::Unbounded,
            found: std::iter::repeat_with(Vec::new).take(ranks).collect(),
            count: 0,
            worst: u16::MAX,
        }
    }
}

impl Lookup<'_> {
    /// Looks through a number of chunks. Returns whether it has seen them all.
    pub(crate) fn advance(&mut self, chunks: usize) -> bool {
        let texts = self.state.texts();
        let rest = texts.chunks.range((self.next.clone(), Bound::Unbounded));
        for (seen, (key, chunk)) in rest.enumerate() {
            if seen == chunks {
                return false;
            }
            self.look(chunk);
            self.next = Bound::Excluded(key.clone());
        }
        true
    }

    fn look(&mut self, chunk: &Chunk) {
        let text = chunk.text.as_bytes();
        let (mut from, mut at) = (0, 0);
        while let Some(offset) = self.words.first().and_then(|word| word.finder.find(text.get(from..)?)) {
            let offset = from + offset;
            if chunk.end(at) <= offset {
                at += chunk.ends.get(at..).unwrap_or_default().partition_point(|end| *end as usize <= offset);
            }
            if let (Some(place), Some(text)) = (chunk.places.get(at), text.get(chunk.start(at)..chunk.end(at))) {
                self.consider(place, text);
            }
            from = chunk.end(at);
            at += 1;
        }
    }

    /// Adds a record to the page if it matches and is better than the last hit.
    fn consider(&mut self, place: &Place, text: &[u8]) {
        if self.query.kind.is_some_and(|kind| kind != place.kind()) {
            return;
        }
        let (mut rank, mut fields) = (0, 0);
        let (address, rest) = text.split_at(memchr::memchr(END, text).unwrap_or(text.len()));
        for word in &self.words {
            let fit = match word.fit(address) {
                Some(fit) => {
                    fields |= 1;
                    fit
                }
                None => match word.field(rest) {
                    Some((field, fit)) => {
                        fields |= 1 << field;
                        fit
                    }
                    None => return,
                },
            };
            rank += fit;
            if rank >= self.worst {
                return;
            }
        }
        let is_after = |(after_rank, after): &(u16, Place)| (rank, place) > (*after_rank, after);
        if self.after.as_ref().is_some_and(|after| !is_after(after)) || !self.passes(place, rest) {
            return;
        }
        if let Some(found) = self.found.get_mut(usize::from(rank)) {
            found.push(Found { place: place.clone(), fields });
            self.count += 1;
        }
        let limit = self.query.limit.get();
        if self.count > limit.saturating_add(1)
            && let Some(worst) = self.found.iter_mut().rev().find(|found| !found.is_empty())
        {
            worst.pop();
            self.count -= 1;
        }
        if self.count > limit {
            let ranks = self.found.iter().zip(0..);
            self.worst = ranks.filter(|(found, _)| !found.is_empty()).map(|(_, rank)| rank).max().unwrap_or(u16::MAX);
        }
    }

    /// Returns whether a record passes the filters.
    fn passes(&self, place: &Place, rest: &[u8]) -> bool {
        let mut fields = rest.split(|byte| *byte == END).skip(1);
        let (of_type, in_state) = (fields.next().unwrap_or_default(), fields.next().unwrap_or_default());
        let differs =
            |wanted: &Option<String>, found: &[u8]| wanted.as_ref().is_some_and(|wanted| wanted.as_bytes() != found);
        if differs(&self.source_type, of_type) || differs(&self.in_state, in_state) {
            return false;
        }
        let Some(record) = self.state.records.get(&place.address) else { return false };
        self.query.state.as_deref().is_none_or(|state| state == record.status.state())
            && self.query.source_type.as_deref().is_none_or(|wanted| Some(wanted) == record.source_type())
            && is_shown(&record.model_address(), self.visible)
    }

    /// The page.
    pub(crate) fn into_page(self) -> Page<Hit> {
        let limit = self.query.limit.get();
        let found =
            self.found.iter().zip(0u16..).flat_map(|(found, rank)| found.iter().map(move |found| (found, rank)));
        let hit = |(found, rank): (&Found, u16)| {
            let record = self.state.records.get(&found.place.address)?;
            let is_matched = |(bit, _): &(usize, SearchField)| found.fields & (1 << bit) != 0;
            let matched = FIELDS.into_iter().enumerate().filter(is_matched).map(|(_, field)| field).collect();
            Some(Hit {
                address: record.model_address(),
                kind: record.kind,
                retracted: record.retracted,
                source_type: record.source_type().map(str::to_owned),
                state: record.status.state().to_owned(),
                matched,
                rank,
            })
        };
        let items: Vec<Hit> = found.filter_map(hit).take(limit).collect();
        let cursor = items.last().filter(|_| self.count > limit).map(Hit::cursor);
        Page { items, cursor }
    }
}

impl Word<'_> {
    /// Returns how well the word fits an address; `None` if the address does not contain it.
    fn fit(&self, address: &[u8]) -> Option<u16> {
        let is_bound = |byte: Option<&u8>| matches!(byte, None | Some(b'/' | b':'));
        let mut best = None;
        for at in self.finder.find_iter(address) {
            let before = at.checked_sub(1).and_then(|before| address.get(before));
            let rest = address.get(at + self.length..).unwrap_or_default();
            let fit = match (is_bound(before), is_bound(rest.first())) {
                (true, true) if before.is_none() && matches!(rest, b"" | b":main") => fit::WHOLE,
                (true, true) => fit::SEGMENT,
                (true, false) => fit::PREFIX,
                _ if before.is_some_and(|byte| byte.is_ascii() && !byte.is_ascii_alphanumeric()) => fit::WORD,
                _ => fit::INSIDE,
            };
            best = Some(best.unwrap_or(fit).min(fit));
            if fit <= fit::SEGMENT {
                break;
            }
        }
        best
    }

    /// Returns the first other field that contains the word.
    fn field(&self, rest: &[u8]) -> Option<(usize, u16)> {
        let at = self.finder.find(rest)?;
        let field = memchr::memchr_iter(END, rest.get(..at)?).count();
        Some((field, if field == 3 { fit::CONFIG } else { fit::TYPE_OR_STATE }))
    }
}

#[cfg(test)]
mod tests {
    use nameservice_model::RecordKind;
    use proptest::prelude::*;

    use super::*;

    fn place(name: &str) -> Place {
        Place::new(RecordKind::Ledger, Arc::from(name))
    }

    proptest! {
        #[test]
        fn chunks_hold_the_texts_in_order_whatever_is_put_and_removed(
            steps in prop::collection::vec(("[a-d]{1,2}", "[xyzß]{0,9}", any::<bool>()), 0..80)
        ) {
            let (mut chunk, mut model) = (Chunk::default(), std::collections::BTreeMap::new());
            for (name, text, removed) in steps {
                let at = chunk.places.binary_search(&place(&name));
                if let Ok(at) = at {
                    chunk.remove(at);
                    model.remove(&name);
                }
                if let (Err(at) | Ok(at), false) = (at, removed) {
                    chunk.insert(at, place(&name), &text);
                    model.insert(name, text);
                }
            }
            let mut halves = vec![chunk.clone()];
            if chunk.places.len() > 1 {
                let rest = chunk.split();
                prop_assert!(!chunk.places.is_empty() && !rest.places.is_empty());
                halves = vec![chunk, rest];
            }
            let texts = halves.iter().flat_map(|chunk| {
                (0..chunk.places.len()).map(|at| (chunk.places[at].address.to_string(), chunk.text_at(at).to_owned()))
            });
            prop_assert!(texts.eq(model));
        }
    }

    #[test]
    fn words_fit_best_where_they_are_most_of_a_name() {
        for (word, address, expected) in [
            ("books", "books:main", Some(fit::WHOLE)),
            ("books:dev", "books:dev", Some(fit::WHOLE)),
            ("books", "books:dev", Some(fit::SEGMENT)),
            ("books", "tenant/books:main", Some(fit::SEGMENT)),
            ("dev", "books:dev", Some(fit::SEGMENT)),
            ("boo", "books:main", Some(fit::PREFIX)),
            ("tenant/b", "tenant/books:main", Some(fit::PREFIX)),
            ("books", "old-books:main", Some(fit::WORD)),
            ("ooks", "books:main", Some(fit::INSIDE)),
            ("ooks", "books/ooks-2:main", Some(fit::PREFIX)),
            ("oks", "bücher:main", None),
        ] {
            let word = Word { finder: Finder::new(word.as_bytes()), length: word.len() };
            assert_eq!(word.fit(address.as_bytes()), expected, "{address}");
        }
    }
}
