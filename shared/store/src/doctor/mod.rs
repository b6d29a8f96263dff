//! Looking a whole table over: what other programs, restores and interrupted work have left, and mending it beside live
//! traffic (contract §2.2, §5).
//!
//! One consistent scan, a partition at a time, only *suspects*: its pages are read one after another while others write.
//! A suspected record is then read by itself, twice, with whatever it refers to in between; what is the same both times
//! is diagnosed ([`diagnosis`]). A remedy is one transaction, conditional on what the diagnosis stands on, so that
//! whoever writes at the same time wins: a remedy that is refused is left to the next run.

mod diagnosis;
mod partition;

use std::{collections::HashMap, time::Duration};

use nameservice_model::{Address, Call, ConcernKind, Result};

use self::{
    diagnosis::{Illness, Remedy, diagnose, miscounted_branches, parent_of},
    partition::{Grouping, Partition, Related},
};
use crate::{
    Store,
    batches::GET_BATCH,
    client::Attempts,
    expressions::Key,
    items::{self, Item},
    schema::*,
};

const EXAMINE: &str = "examine the table";
const MEND: &str = "mend a record";

/// How often a record that changes while it is looked at is looked at again.
const LOOKS: usize = 5;
/// The most remedies for one record in one run: each sweeps a bounded number of rows.
const MAX_REMEDIES: usize = 1_000;

/// How bad a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// Worth knowing. Nothing needs to be done, and a table with nothing else is healthy.
    Note,
    /// Harmless today; it costs, misleads people, or bites later.
    Warning,
    /// Answers or refusals are wrong because of it.
    Error,
}

impl Severity {
    /// The word for it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Note => "note",
            Self::Warning => "warning",
            Self::Error => "error",
        }
    }
}

/// What became of a finding, or can become of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fix {
    /// Only by hand: [`Finding::mend`] says how.
    ByHand,
    /// A run that fixes would mend it.
    Possible,
    /// This run has mended it.
    Done,
    /// This run has left it alone, for others have written there meanwhile. The next run looks again.
    ChangedMeanwhile,
    /// The remedy could not be applied, for this reason.
    Failed(String),
}

/// One thing that is not as it should be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// What kind of finding it is. Stable, for programs; [`CODES`] has all that come from the table.
    pub code: &'static str,
    /// How bad it is.
    pub severity: Severity,
    /// The partition it is in, as it stands in the table; `None` where it is about no single record.
    pub address: Option<String>,
    /// What is wrong, in a sentence for an operator.
    pub what: String,
    /// How to mend it: what a fix does, or what to do by hand.
    pub mend: String,
    /// What became of it.
    pub fix: Fix,
}

impl Finding {
    /// A finding that is not about a record, for checks of other things than records.
    pub fn general(code: &'static str, severity: Severity, what: String, mend: String) -> Self {
        Self { code, severity, address: None, what, mend, fix: Fix::ByHand }
    }

    /// Whether somebody should do something about it.
    pub fn is_open(&self) -> bool {
        self.severity > Severity::Note && self.fix != Fix::Done
    }
}

/// What an examination has looked at.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Examined {
    /// Records.
    pub records: u64,
    /// Items of all kinds.
    pub items: u64,
    /// What was written last, youngest first, and [`SETTLED`] ago or earlier: for checks of what follows the table. At most
    /// [`LAST_WRITTEN`] of it.
    pub last_written: Vec<Written>,
}

/// A concern as it was last written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Written {
    /// The record.
    pub address: Address,
    /// Which concern of it.
    pub concern: ConcernKind,
    /// Its watermark.
    pub watermark: i64,
    /// When, by the clock of the writer, epoch milliseconds.
    pub at_ms: i64,
}

/// How old a write is that whatever follows the table should have seen.
pub const SETTLED: Duration = Duration::from_secs(60);
/// How many of the last writes an examination tells of.
pub const LAST_WRITTEN: usize = 20;

/// Every code that [`Store::examine`] gives, and what it means.
pub const CODES: &[(&str, &str)] = diagnosis::CODES;

/// Where findings go as they come.
type Sink<'a> = &'a mut (dyn FnMut(Finding) + Send);

impl Store {
    /// Looks at every record of the table, gives what it finds to `found`, and mends what can be mended if `fix` says so.
    ///
    /// Reads the table once by a consistent scan, and a second time (branches alone) where a count of branches disagrees
    /// with it. Memory is bounded by a page of the scan, the largest set of references to one record, and a counter for
    /// each record with branches.
    ///
    /// Safe beside live traffic. Writers that change a count in another transaction than what it counts (Fluree's, for
    /// branches) can be met in between: what is then set wrongly is found by the next run.
    ///
    /// Needs `dynamodb:Scan`, `Query` and `BatchGetItem` on the table, and to fix `PutItem`, `UpdateItem`, `DeleteItem`
    /// and `ConditionCheckItem`.
    pub async fn examine(&self, fix: bool, found: Sink<'_>) -> Result<Examined> {
        let mut examined = Examined::default();
        let (mut grouping, mut balance) = (Grouping::default(), Balance::default());
        let mut start = None;
        loop {
            let page = self.scan_page(None, start.take()).await?;
            examined.items += page.items.len() as u64;
            let mut partitions: Vec<Partition> =
                page.items.into_iter().filter_map(|item| grouping.push(item)).collect();
            start = page.next;
            if start.is_none() {
                partitions.extend(grouping.finish());
            }
            let related = self.related(&partitions).await?;
            let settled = self.now_ms() - i64::try_from(SETTLED.as_millis()).unwrap_or(i64::MAX);
            for partition in &partitions {
                examined.records += u64::from(partition.record().is_some());
                examined.last_written.extend(partition.written());
                balance.weigh(partition);
                if !diagnose(partition, &related, &Call::fresh(), self.now_ms()).is_empty() {
                    self.treat(&partition.pk, fix, found).await?;
                }
            }
            examined.last_written.retain(|written| written.at_ms <= settled);
            examined.last_written.sort_by_key(|written| std::cmp::Reverse(written.at_ms));
            examined.last_written.truncate(LAST_WRITTEN);
            if start.is_none() {
                break;
            }
        }
        self.recount_branches(balance, fix, found).await?;
        Ok(examined)
    }

    /// Looks at one record closely, and mends it if `fix` says so.
    async fn treat(&self, pk: &str, fix: bool, found: Sink<'_>) -> Result<()> {
        let mut findings: Vec<Finding> = Vec::new();
        for _ in 0..MAX_REMEDIES {
            let Some(illnesses) = self.look_closely(pk).await? else {
                findings.push(diagnosis::unsettled(pk));
                break;
            };
            let ill = |code| illnesses.iter().any(|illness| illness.finding.code == code);
            // What a remedy for something else has mended too.
            for known in findings.iter_mut().filter(|known| known.fix == Fix::Possible && !ill(known.code)) {
                known.fix = Fix::Done;
            }
            for illness in &illnesses {
                match findings.iter_mut().find(|known| known.code == illness.finding.code) {
                    // There was more of it than one remedy can take.
                    Some(known) if known.fix == Fix::Done => known.fix = Fix::Possible,
                    Some(_) => {}
                    None => findings.push(illness.finding.clone()),
                }
            }
            let next = illnesses.into_iter().filter(|_| fix).find_map(|Illness { finding, remedy }| {
                let known = findings.iter().position(|known| known.code == finding.code)?;
                (findings[known].fix == Fix::Possible).then_some((known, remedy?))
            });
            let Some((known, remedy)) = next else { break };
            findings[known].fix = self.apply(remedy).await;
        }
        findings.into_iter().for_each(&mut *found);
        Ok(())
    }

    /// `None`: it was another one every time it was looked at.
    async fn look_closely(&self, pk: &str) -> Result<Option<Vec<Illness>>> {
        for _ in 0..LOOKS {
            let before = partition::read(self, EXAMINE, pk).await?;
            let related = self.related(std::slice::from_ref(&before)).await?;
            let partition = partition::read(self, EXAMINE, pk).await?;
            // What it refers to changes only together with it: it was the same throughout.
            if partition.is_like(&before) {
                return Ok(Some(diagnose(&partition, &related, &Call::fresh(), self.now_ms())));
            }
        }
        Ok(None)
    }

    async fn apply(&self, remedy: Remedy) -> Fix {
        let actions = remedy.0.into_iter().map(|action| ((), action)).collect();
        match self.transact(MEND, actions, &mut Attempts::default()).await {
            Ok(Ok(())) => Fix::Done,
            Ok(Err(_)) => Fix::ChangedMeanwhile,
            Err(error) => Fix::Failed(match std::error::Error::source(&error) {
                Some(source) => format!("{error}: {source}"),
                None => error.to_string(),
            }),
        }
    }

    /// Compares counts of branches with the branches that there are, where the scan has shown a difference.
    ///
    /// A count is read, then every branch by a consistent scan, then the count again: nobody has created or dropped a
    /// branch in between if its item is the same, for each does so in one transaction with the count.
    async fn recount_branches(&self, balance: Balance, fix: bool, found: Sink<'_>) -> Result<()> {
        let suspects: Vec<String> = balance.open.into_keys().collect();
        if suspects.is_empty() {
            return Ok(());
        }
        let keys = || suspects.iter().map(Key::meta).collect::<Vec<_>>();
        let before = self.read_all(keys()).await?;
        let mut children: HashMap<String, i64> = HashMap::new();
        let mut start = None;
        loop {
            let page = self.scan_page(Some(ATTR_BP_SOURCE), start.take()).await?;
            for meta in page.items.iter().filter(|item| items::kind(item).is_some()) {
                if let Some(parent) = parent_of(meta).filter(|parent| before.contains_key(&Key::meta(parent))) {
                    *children.entry(parent).or_default() += 1;
                }
            }
            start = page.next;
            if start.is_none() {
                break;
            }
        }
        let after = self.read_all(keys()).await?;
        for pk in &suspects {
            let key = Key::meta(pk);
            // Branches of what is gone are found as such, one by one.
            let Some(meta) = after.get(&key).filter(|meta| items::kind(meta).is_some()) else { continue };
            if before.get(&key) != Some(meta) {
                found(diagnosis::unsettled(pk));
                continue;
            }
            let branches = children.get(pk).copied().unwrap_or(0);
            let Some(Illness { mut finding, remedy }) = miscounted_branches(meta, branches, self.now_ms()) else {
                continue;
            };
            if let Some(remedy) = remedy.filter(|_| fix) {
                finding.fix = self.apply(remedy).await;
            }
            found(finding);
        }
        Ok(())
    }

    /// Whatever the partitions refer to.
    async fn related(&self, partitions: &[Partition]) -> Result<Related> {
        let mut keys: Vec<Key> = partitions.iter().flat_map(diagnosis::refers_to).collect();
        keys.sort();
        keys.dedup();
        Ok(Related(self.read_all(keys).await?))
    }

    /// Items by key, consistently read; those that are not there are left out.
    async fn read_all(&self, keys: Vec<Key>) -> Result<HashMap<Key, Item>> {
        let mut found = HashMap::new();
        for batch in keys.chunks(GET_BATCH) {
            for item in self.get_all(EXAMINE, batch.to_vec()).await? {
                found.insert(Key::new(items::pk(&item), items::sk(&item)), item);
            }
        }
        Ok(found)
    }

    /// A page of a consistent scan: of all items, or of those that have an attribute.
    async fn scan_page(&self, having: Option<&str>, start: Option<Item>) -> Result<ScanPage> {
        let mut request = self
            .sender
            .client()
            .scan()
            .table_name(self.sender.table())
            .consistent_read(true)
            .set_exclusive_start_key(start);
        if let Some(attribute) = having {
            request =
                request.filter_expression("attribute_exists(#having)").expression_attribute_names("#having", attribute);
        }
        let page = self.sender.read(EXAMINE, || request.clone().send()).await?;
        Ok(ScanPage {
            items: page.items.unwrap_or_default(),
            next: page.last_evaluated_key.filter(|key| !key.is_empty()),
        })
    }
}

struct ScanPage {
    items: Vec<Item>,
    next: Option<Item>,
}

/// Counts of branches against the branches that a scan comes by. What is even is forgotten.
#[derive(Default)]
struct Balance {
    open: HashMap<String, i64>,
}

impl Balance {
    fn weigh(&mut self, partition: &Partition) {
        let Some((meta, _)) = partition.record() else { return };
        self.add(partition.pk.clone(), items::integer(meta, ATTR_BRANCHES).unwrap_or(0));
        if let Some(parent) = parent_of(meta) {
            self.add(parent, -1);
        }
    }

    fn add(&mut self, pk: String, by: i64) {
        use std::collections::hash_map::Entry;
        match self.open.entry(pk) {
            Entry::Occupied(open) if *open.get() == -by => drop(open.remove()),
            Entry::Occupied(mut open) => *open.get_mut() += by,
            Entry::Vacant(even) if by != 0 => drop(even.insert(by)),
            Entry::Vacant(_) => {}
        }
    }
}
