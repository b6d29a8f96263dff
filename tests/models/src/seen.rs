//! What readers find in a table of the feed, by the feed's own code.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
};

use crate::{
    expressions::{Attribute, Item},
    process::{ITEMS, Outcome, Positions, Record, Task, alone},
    shared::Shared,
    table::{Key, Table},
};

/// The most positions that a reader resumes from.
const RESUMED: usize = 8;

/// What a table holds, as readers see it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Contents {
    /// The last position.
    pub counter: usize,
    /// The first position that may be read; 0 if all may be.
    pub epoch: usize,
    /// What can be read.
    pub found: Positions,
    /// The same, and what the epoch has put out of reach.
    pub ever: Positions,
    /// Where the histories of the items do not agree with that.
    pub disagreement: Option<String>,
}

impl Contents {
    /// Whether these are the first of a batch, or all of it, and are at the positions that they report.
    pub(crate) fn has(
        &self,
        positions: &[(usize, Record)],
        batch: impl ExactSizeIterator<Item = Record>,
        all: bool,
    ) -> bool {
        let count = if all { batch.len() } else { positions.len() };
        let records: Vec<Record> = batch.take(count).collect();
        positions.iter().map(|(_, record)| *record).eq(records) && positions.iter().all(|of| self.ever.contains(of))
    }

    /// Whether these are the first changes after a position.
    pub(crate) fn follows(&self, after: usize, changes: &[(usize, Record)]) -> bool {
        let following = self.ever.iter().filter(|(position, _)| *position > after).take(changes.len());
        following.eq(changes) && changes.iter().map(|(position, _)| *position).eq(after + 1..=after + changes.len())
    }
}

/// What readers find, or why they cannot read.
pub type Seen = Shared<Result<Contents, String>>;

/// The items of a table.
type Rows = Vec<(Key, Shared<Item>)>;

/// What readers find in tables: equal tables have the same contents.
#[derive(Default)]
pub(crate) struct Readers(Mutex<HashMap<Rows, Seen>>);

impl Readers {
    pub(crate) fn look(&self, table: &Table<()>) -> Seen {
        let items: Rows = table.items.iter().map(|(key, item)| (key.clone(), item.clone())).collect();
        if let Some(seen) = self.0.lock().expect("no look panics").get(&items) {
            return seen.clone();
        }
        let seen = Shared::new(look(table));
        self.0.lock().expect("no look panics").entry(items).or_insert(seen).clone()
    }
}

fn look(table: &Table<()>) -> Result<Contents, String> {
    let (counter, epoch) = (number(table, "n"), number(table, "epoch"));
    let found = match alone(table, Task::Read { after: 0 }) {
        Outcome::Found(found) => found,
        Outcome::Gone(oldest) if oldest == epoch && epoch > 0 => changes_after(table, oldest - 1)?,
        other => return Err(format!("from the beginning: {other:?}")),
    };
    for n in (0..found.len()).step_by(1 + found.len() / RESUMED) {
        let rest = changes_after(table, found[n].0)?;
        if rest != found[n + 1..] {
            return Err(format!("{rest:?} follows {}, in {found:?}", found[n].0));
        }
    }
    let ever = if epoch > 0 { of_all_epochs(table, counter)? } else { found.clone() };
    let disagreement = disagreement(table, &ever);
    Ok(Contents { counter, epoch, found, ever, disagreement })
}

/// Where the history of an item differs from the feed.
fn disagreement(table: &Table<()>, ever: &[(usize, Record)]) -> Option<String> {
    ITEMS.iter().enumerate().find_map(|(shard, item)| {
        let of_item: Positions = ever.iter().filter(|(_, record)| record.0 == shard).copied().collect();
        let history = alone(table, Task::History { shard });
        (history != Outcome::Found(of_item)).then(|| format!("the history of {item} is {history:?}, in {ever:?}"))
    })
}

fn changes_after(table: &Table<()>, after: usize) -> Result<Positions, String> {
    match alone(table, Task::Read { after }) {
        Outcome::Found(found) => Ok(found),
        other => Err(format!("after {after}: {other:?}")),
    }
}

/// What could be read if no epoch had begun. Each epoch has left out a position.
fn of_all_epochs(table: &Table<()>, counter: usize) -> Result<Positions, String> {
    let mut table = table.clone();
    for (_, item) in Arc::make_mut(&mut table.items).iter_mut().filter(|((id, _), _)| is_counter(id)) {
        let mut plain = Item::clone(item);
        plain.remove("epoch");
        *item = Shared::new(plain);
    }
    let (mut ever, mut reached) = (Positions::new(), 0);
    while reached < counter {
        match alone(&table, Task::Read { after: reached }) {
            Outcome::Found(found) if !found.is_empty() => {
                ever.extend(found);
                reached = ever.last().map_or(reached, |(last, _)| *last);
            }
            Outcome::Found(_) | Outcome::Gone(_) => reached += 1,
            other => return Err(format!("before the epoch, after {reached}: {other:?}")),
        }
    }
    Ok(ever)
}

fn is_counter(id: &str) -> bool {
    id.starts_with("counter#")
}

/// A number of the counter; 0 if it has none.
fn number(table: &Table<()>, name: &str) -> usize {
    let counter = table.items.iter().find(|((id, _), _)| is_counter(id));
    match counter.and_then(|(_, counter)| counter.get(name)) {
        Some(Attribute::N(number)) => usize::try_from(*number).expect("a position is no less than 0"),
        _ => 0,
    }
}
