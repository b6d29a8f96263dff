//! The figures of `top`, and their text, which depends on the figures alone.

use std::{
    collections::{BTreeMap, VecDeque},
    time::{Duration, Instant},
};

use nameservice_api::Record;
use nameservice_model::{Change, ChangeKind, ChangePayload, ChangedPart, ConcernKind, RecordKind};
use serde_json::{Value, json};
use unicode_width::{UnicodeWidthChar as _, UnicodeWidthStr as _};

use crate::{
    commands::leases::{lease_of, time_left},
    output::{clean, text},
};

/// Rates are averages over this many seconds.
const WINDOW: u64 = 10;

/// The members of a record that are shown.
#[derive(Clone, Debug, Default)]
struct Seen {
    is_source: bool,
    retracted: bool,
    state: String,
    head: i64,
    index: i64,
    lease: Option<Value>,
}

impl Seen {
    /// How far the index of a ledger is behind its head.
    fn lag(&self) -> i64 {
        if self.is_source || self.retracted { 0 } else { self.head.saturating_sub(self.index).max(0) }
    }

    fn take_status(&mut self, payload: &Value) {
        self.state = payload["state"].as_str().unwrap_or_default().to_owned();
        self.lease = lease_of(&json!({ "payload": payload }));
    }

    /// Whether it has a lease that is not expired at this time, in epoch seconds.
    fn is_leased(&self, now: i64) -> bool {
        self.lease.as_ref().and_then(|lease| lease["expires_at"].as_i64()).is_some_and(|expires| expires > now)
    }
}

/// Whether the figures are a single reading or follow the feed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reading {
    Once,
    Live,
}

/// All records, and the changes of the last seconds.
#[derive(Debug)]
pub(super) struct Figures {
    records: BTreeMap<String, Seen>,
    position: u64,
    begun: Instant,
    /// Changes by second since the start, latest last.
    changes: VecDeque<(u64, [u64; ChangedPart::ALL.len()])>,
}

impl Figures {
    pub(super) fn new(now: Instant) -> Self {
        Self { records: BTreeMap::new(), position: 0, begun: now, changes: VecDeque::new() }
    }

    /// Takes a record of the snapshot.
    pub(super) fn put(&mut self, record: &Record) {
        let t = |t: Option<i64>| t.unwrap_or_default();
        let mut seen = Seen {
            is_source: record.kind == RecordKind::GraphSource,
            retracted: record.retracted,
            head: t(record.head.as_ref().map(|head| head.t)),
            index: t(record.index.as_ref().map(|index| index.t)),
            ..Seen::default()
        };
        if let Some(status) = &record.status {
            seen.take_status(&status.payload);
        }
        self.records.insert(record.address.clone(), seen);
    }

    /// Sets the position that the records are as of.
    pub(super) fn at(&mut self, position: u64) {
        self.position = position;
    }

    /// Takes a change of the feed.
    pub(super) fn take(&mut self, change: &Change, now: Instant) {
        self.position = change.position;
        self.count(change.part, now);
        let address = change.address.as_str();
        if change.part == ChangedPart::Meta && change.kind == ChangeKind::Purged {
            self.records.remove(address);
            return;
        }
        let seen = self.records.entry(address.to_owned()).or_default();
        seen.is_source = change.identity.kind == RecordKind::GraphSource;
        match (change.part, &change.payload) {
            // A record that is copied here may be retracted from its creation on.
            (ChangedPart::Meta, ChangePayload::Value(payload)) => seen.retracted = payload["retracted"] == true,
            // Too large to be carried: the dependencies of a graph source.
            (ChangedPart::Meta, _) => match change.kind {
                ChangeKind::Retracted => seen.retracted = true,
                ChangeKind::Restored | ChangeKind::Created => seen.retracted = false,
                _ => {}
            },
            // The record is gone: its `meta` change came first, and the entry was only created again above.
            _ if change.kind == ChangeKind::Purged => drop(self.records.remove(address)),
            (ChangedPart::Concern(ConcernKind::Head), _) => seen.head = change.watermark,
            (ChangedPart::Concern(ConcernKind::Index), _) => seen.index = change.watermark,
            (ChangedPart::Concern(ConcernKind::Status), ChangePayload::Value(payload)) => seen.take_status(payload),
            (ChangedPart::Concern(_), _) => {}
        }
    }

    fn second(&self, now: Instant) -> u64 {
        now.saturating_duration_since(self.begun).as_secs()
    }

    fn count(&mut self, part: ChangedPart, now: Instant) {
        let second = self.second(now);
        if self.changes.back().is_none_or(|(last, _)| *last != second) {
            self.changes.push_back((second, Default::default()));
        }
        while self.changes.front().is_some_and(|(first, _)| first + WINDOW < second) {
            self.changes.pop_front();
        }
        let place = ChangedPart::ALL.iter().position(|other| *other == part);
        if let (Some(place), Some((_, counts))) = (place, self.changes.back_mut()) {
            counts[place] += 1;
        }
    }

    /// Changes a second of each part, over the last whole seconds.
    fn rates(&self, now: Instant) -> [f64; ChangedPart::ALL.len()] {
        let second = self.second(now);
        let over = second.clamp(1, WINDOW);
        let mut sums = [0; ChangedPart::ALL.len()];
        for (at, counts) in &self.changes {
            if *at < second && at + over >= second {
                sums.iter_mut().zip(counts).for_each(|(sum, count)| *sum += count);
            }
        }
        sums.map(|sum| sum as f64 / Duration::from_secs(over).as_secs_f64())
    }

    fn states(&self) -> Vec<(&str, usize)> {
        let mut states: BTreeMap<&str, usize> = BTreeMap::new();
        for seen in self.records.values() {
            *states.entry(seen.state.as_str()).or_default() += 1;
        }
        let mut states: Vec<_> = states.into_iter().collect();
        states.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        states
    }

    /// The leases that are held, by expiry.
    fn leases(&self, now: i64) -> Vec<(&str, &Value)> {
        let held = self.records.iter().filter(|(_, seen)| seen.is_leased(now));
        let mut leases: Vec<_> =
            held.filter_map(|(address, seen)| Some((address.as_str(), seen.lease.as_ref()?))).collect();
        leases.sort_by_key(|(address, lease)| (lease["expires_at"].as_i64(), *address));
        leases
    }

    /// The ledgers whose indexes are behind, the furthest behind first.
    fn behind(&self) -> Vec<(&str, &Seen)> {
        let behind = self.records.iter().filter(|(_, seen)| seen.lag() > 0);
        let mut behind: Vec<_> = behind.map(|(address, seen)| (address.as_str(), seen)).collect();
        behind.sort_by_key(|(address, seen)| (std::cmp::Reverse(seen.lag()), *address));
        behind
    }

    fn counts(&self) -> (usize, usize, usize) {
        let sources = self.records.values().filter(|seen| seen.is_source).count();
        let retracted = self.records.values().filter(|seen| seen.retracted).count();
        (self.records.len() - sources, sources, retracted)
    }

    /// Returns the figures for a program.
    pub(super) fn document(&self, now: i64) -> Value {
        let (ledgers, graph_sources, retracted) = self.counts();
        let leases = self.leases(now).into_iter().map(|(address, lease)| json!({"address": address, "lease": lease}));
        let behind = self.behind().into_iter();
        let behind =
            behind.map(|(address, seen)| json!({"address": address, "head_t": seen.head, "index_t": seen.index}));
        json!({
            "position": self.position,
            "ledgers": ledgers,
            "graph_sources": graph_sources,
            "retracted": retracted,
            "states": self.states().into_iter().collect::<BTreeMap<_, _>>(),
            "leases": leases.collect::<Vec<_>>(),
            "behind": behind.collect::<Vec<_>>(),
        })
    }

    /// Returns the figures as lines that fit into this width and height.
    pub(super) fn text(&self, reading: Reading, now: i64, at: Instant, (width, height): (usize, usize)) -> Vec<String> {
        let (ledgers, sources, retracted) = self.counts();
        let mut lines = vec![format!(
            "position {}   ledgers {ledgers}   graph sources {sources}   retracted {retracted}",
            self.position
        )];
        let states = self.states().into_iter().map(|(state, count)| format!("{} {count}", clean(state)));
        lines.push(format!("states: {}", states.collect::<Vec<_>>().join(", ")));
        if reading == Reading::Live {
            let rates = self.rates(at);
            let each = ChangedPart::ALL.iter().zip(rates).map(|(part, rate)| format!("{part} {rate:.1}"));
            lines.push(format!(
                "changes/s: {:.1} ({})",
                rates.iter().sum::<f64>(),
                each.collect::<Vec<_>>().join(", ")
            ));
        }
        let (leases, behind) = (self.leases(now), self.behind());
        // The lines left for the two tables: each has a blank line, a title and perhaps a line with the number of further rows.
        let room = height.saturating_sub(lines.len() + 6 + 2 * usize::from(reading == Reading::Live)).max(1);
        let for_leases = leases.len().min((room / 2).max(room.saturating_sub(behind.len())));
        let for_behind = behind.len().min(room - for_leases.min(room));
        let rows = leases.iter().take(for_leases).map(|(address, lease)| {
            let left = time_left(lease["expires_at"].as_i64().unwrap_or_default().saturating_sub(now));
            let (holder, name) = (padded(&text(&lease["holder"]), 24), padded(&text(&lease["name"]), 20));
            format!("{left:>8}  {holder}  {name}  {}", clean(address))
        });
        table(&mut lines, format!("LEASES {}", leases.len()), rows.collect(), leases.len());
        let rows = behind.iter().take(for_behind).map(|(address, seen)| {
            let (lag, head, index) = (seen.lag(), format!("head {}", seen.head), format!("index {}", seen.index));
            format!("{lag:>8}  {head:<24}  {index:<20}  {}", clean(address))
        });
        table(&mut lines, format!("INDEXES BEHIND {}", behind.len()), rows.collect(), behind.len());
        if reading == Reading::Live {
            lines.push(String::new());
            lines.push("q ends it".to_owned());
        }
        // What is beyond the screen would scroll it.
        lines.truncate(height);
        lines.into_iter().map(|line| within(&line, width)).collect()
    }
}

/// Cuts a line to a number of cells: some characters take two, and some none.
fn within(line: &str, cells: usize) -> String {
    let mut used = 0;
    let fits = |c: &char| {
        used += c.width().unwrap_or(0);
        used <= cells
    };
    line.chars().take_while(fits).collect()
}

/// Fills a text up to a number of cells.
fn padded(text: &str, cells: usize) -> String {
    format!("{text}{}", " ".repeat(cells.saturating_sub(text.width())))
}

fn table(lines: &mut Vec<String>, title: String, rows: Vec<String>, of: usize) {
    let more = of - rows.len();
    lines.push(String::new());
    lines.push(title);
    lines.extend(rows);
    if more > 0 {
        lines.push(format!("          and {more} more"));
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use nameservice_model::{Address, Identity};

    use super::*;

    #[test]
    fn lines_are_cut_and_filled_by_cells() {
        assert_eq!(within("漢字ab", 5), "漢字a");
        assert_eq!(within("漢字ab", 3), "漢");
        assert_eq!(padded("漢", 4), "漢  ");
        assert_eq!(padded("abcdef", 4), "abcdef");
        for height in 1..20 {
            let figures = Figures::new(Instant::now());
            assert!(figures.text(Reading::Live, 0, Instant::now(), (20, height)).len() <= height, "{height}");
        }
    }

    fn change(
        position: u64,
        address: &str,
        part: ChangedPart,
        kind: ChangeKind,
        watermark: i64,
        payload: Value,
    ) -> Change {
        Change {
            position,
            address: Address::parse(address).unwrap(),
            identity: Identity { kind: RecordKind::Ledger, source_type: None },
            part,
            kind,
            watermark,
            previous: None,
            payload: ChangePayload::Value(payload),
            occurred_at: Timestamp::UNIX_EPOCH,
            recorded_at: Timestamp::UNIX_EPOCH,
        }
    }

    const HEAD: ChangedPart = ChangedPart::Concern(ConcernKind::Head);
    const STATUS: ChangedPart = ChangedPart::Concern(ConcernKind::Status);

    fn some() -> (Figures, Instant) {
        let begun = Instant::now();
        let mut figures = Figures::new(begun);
        let lease = json!({"holder": "indexer-7", "acquired_at": 1, "expires_at": 1090});
        let changes = [
            change(1, "a", ChangedPart::Meta, ChangeKind::Created, 0, json!({"retracted": false})),
            change(2, "a", HEAD, ChangeKind::Created, 7, json!({"id": "bafy", "t": 7})),
            change(3, "a", STATUS, ChangeKind::Updated, 2, json!({"state": "indexing", "index_lock": lease})),
            change(4, "b", ChangedPart::Meta, ChangeKind::Created, 0, json!({"retracted": false})),
            change(5, "b", STATUS, ChangeKind::Created, 1, json!({"state": "ready"})),
        ];
        for change in &changes {
            figures.take(change, begun);
        }
        (figures, begun)
    }

    #[test]
    fn leases_lag_states_and_rates_are_those_of_the_changes() {
        let (figures, begun) = some();
        let later = begun + Duration::from_secs(2);
        let text = figures.text(Reading::Live, 1000, later, (100, 40)).join("\n");
        for words in ["position 5   ledgers 2", "indexing 1", "ready 1", "changes/s: 2.5 (meta 1.0, head 0.5"] {
            assert!(text.contains(words), "{words}\n{text}");
        }
        assert!(text.contains("LEASES 1\n    1:30  indexer-7 "), "{text}");
        assert!(text.contains("INDEXES BEHIND 1\n       7  head 7 "), "{text}");
        let text = figures.text(Reading::Live, 1090, begun + Duration::from_secs(60), (100, 40)).join("\n");
        assert!(text.contains("LEASES 0") && text.contains("changes/s: 0.0"), "{text}");
        assert_eq!(figures.document(1000)["leases"][0]["lease"]["name"], "index_lock");
    }

    #[test]
    fn what_is_purged_or_retracted_is_not_behind() {
        let (mut figures, begun) = some();
        figures.take(&change(6, "a", ChangedPart::Meta, ChangeKind::Retracted, 0, json!({"retracted": true})), begun);
        assert!(figures.behind().is_empty());
        assert_eq!(figures.counts(), (2, 0, 1));
        figures.take(&change(7, "a", ChangedPart::Meta, ChangeKind::Purged, 0, Value::Null), begun);
        figures.take(&change(8, "a", HEAD, ChangeKind::Purged, 0, Value::Null), begun);
        assert_eq!(figures.counts(), (1, 0, 0));
        figures.take(&change(9, "c", ChangedPart::Meta, ChangeKind::Created, 0, json!({"retracted": true})), begun);
        figures.take(&change(10, "c", HEAD, ChangeKind::Created, 3, json!({"id": "bafy", "t": 3})), begun);
        assert!(figures.behind().is_empty());
        assert_eq!(figures.counts(), (2, 0, 1));
    }

    #[test]
    fn the_screen_is_as_wide_and_high_as_the_terminal_and_says_what_is_left_out() {
        let (mut figures, begun) = some();
        for n in 0..200 {
            figures.take(&change(10 + n, &format!("ledger{n}"), HEAD, ChangeKind::Created, 3, json!({})), begun);
        }
        for size in [(20, 12), (80, 24), (200, 60)] {
            let lines = figures.text(Reading::Live, 1000, begun, size);
            assert!(lines.len() <= size.1, "{} lines at {size:?}", lines.len());
            assert!(lines.iter().all(|line| line.chars().count() <= size.0));
            assert!(lines.iter().any(|line| line.contains("more")), "{lines:?}");
        }
    }
}
