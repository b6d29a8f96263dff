//! Examines a whole table for what other programs, restores and interrupted work have left, and repairs it under live traffic
//! (docs/specification.md: Table, References).
//!
//! One consistent scan, partition by partition, raises only suspicions: its pages are read one after another while others
//! write. A suspected record is then read on its own, twice, with everything that it refers to in between; a state that is the
//! same both times is diagnosed ([`diagnosis`]). A repair is one transaction, conditional on the diagnosed state, so that
//! concurrent writers win: a rejected repair is left to the next run.

mod diagnosis;
mod partition;

use std::{collections::HashMap, time::Duration};

use nameservice_model::{Address, Call, ConcernKind, Result};

use self::{
    diagnosis::{Diagnosis, Repair, diagnose, miscounted_branches, parent_of},
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
const REPAIR: &str = "repair a record";

/// How often a record that changes while it is examined is examined again.
const LOOKS: usize = 5;
/// The most repairs of one record in one run: each sweeps a bounded number of rows.
const MAX_REMEDIES: usize = 1_000;

/// The severity of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// Information only: a table with nothing else is healthy.
    Note,
    /// Harmless today; it costs, misleads, or causes errors later.
    Warning,
    /// It causes wrong answers or wrong rejections.
    Error,
}

impl Severity {
    /// Returns its name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Note => "note",
            Self::Warning => "warning",
            Self::Error => "error",
        }
    }
}

/// Whether a finding can be, or was, repaired.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fix {
    /// Only by hand: [`Finding::mend`] describes how.
    ByHand,
    /// A run with `fix` would repair it.
    Possible,
    /// This run has repaired it.
    Done,
    /// This run has not repaired it, because others have written meanwhile. The next run examines it again.
    ChangedMeanwhile,
    /// The repair failed, for this reason.
    Failed(String),
}

/// A single inconsistency.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The kind of the finding. Stable, for programs; [`CODES`] has all codes of a table.
    pub code: &'static str,
    /// The severity.
    pub severity: Severity,
    /// The partition key; `None` where the finding is not about a single record.
    pub address: Option<String>,
    /// What is wrong, as a sentence for an operator.
    pub what: String,
    /// How to repair it: what `fix` does, or what to do by hand.
    pub mend: String,
    /// Whether it can be, or was, repaired.
    pub fix: Fix,
}

impl Finding {
    /// Creates a finding that is not about a record.
    pub fn general(code: &'static str, severity: Severity, what: String, mend: String) -> Self {
        Self { code, severity, address: None, what, mend, fix: Fix::ByHand }
    }

    /// Returns whether it needs attention.
    pub fn is_open(&self) -> bool {
        self.severity > Severity::Note && self.fix != Fix::Done
    }
}

/// What was examined.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Examined {
    /// Records.
    pub records: u64,
    /// Items of all kinds.
    pub items: u64,
    /// The last writes, newest first, that are at least [`SETTLED`] old, for checks of the change feed. At most
    /// [`LAST_WRITTEN`].
    pub last_written: Vec<Written>,
}

/// The last write of a concern.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Written {
    /// The record.
    pub address: Address,
    /// The concern.
    pub concern: ConcernKind,
    /// Its watermark.
    pub watermark: i64,
    /// The time of the write by the writer's clock, epoch milliseconds.
    pub at_ms: i64,
}

/// The age of a write from which the change feed should have it.
pub const SETTLED: Duration = Duration::from_secs(60);
/// How many of the last writes an examination returns.
pub const LAST_WRITTEN: usize = 20;

/// Every code that [`Store::examine`] reports, and its meaning.
pub const CODES: &[(&str, &str)] = diagnosis::CODES;

/// The receiver of findings.
type Sink<'a> = &'a mut (dyn FnMut(Finding) + Send);

impl Store {
    /// Examines every record of the table, passes findings to `found`, and with `fix` repairs what can be repaired.
    ///
    /// Reads the table once by a consistent scan, and a second time (branches only) where a count of branches does not match. Memory is bounded by a page of the scan, the largest set of references to one record, and a counter for
    /// each record with branches.
    ///
    /// Safe under live traffic. Writers that change a count in another transaction than the records that it counts (Fluree's, for
    /// branches) can be observed in between: a count that is then set wrongly is found by the next run.
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

    /// Examines one record, and repairs it if `fix` is set.
    async fn treat(&self, pk: &str, fix: bool, found: Sink<'_>) -> Result<()> {
        let mut findings: Vec<Finding> = Vec::new();
        for _ in 0..MAX_REMEDIES {
            let Some(diagnoses) = self.examine_record(pk).await? else {
                findings.push(diagnosis::unsettled(pk));
                break;
            };
            let ill = |code| diagnoses.iter().any(|illness| illness.finding.code == code);
            // Repaired together with another finding.
            for known in findings.iter_mut().filter(|known| known.fix == Fix::Possible && !ill(known.code)) {
                known.fix = Fix::Done;
            }
            for illness in &diagnoses {
                match findings.iter_mut().find(|known| known.code == illness.finding.code) {
                    // There was more than one repair can sweep.
                    Some(known) if known.fix == Fix::Done => known.fix = Fix::Possible,
                    Some(_) => {}
                    None => findings.push(illness.finding.clone()),
                }
            }
            let next = diagnoses.into_iter().filter(|_| fix).find_map(|Diagnosis { finding, repair }| {
                let known = findings.iter().position(|known| known.code == finding.code)?;
                (findings[known].fix == Fix::Possible).then_some((known, repair?))
            });
            let Some((known, repair)) = next else { break };
            findings[known].fix = self.apply(repair).await;
        }
        findings.into_iter().for_each(&mut *found);
        Ok(())
    }

    /// Returns `None` if it changed at every examination.
    async fn examine_record(&self, pk: &str) -> Result<Option<Vec<Diagnosis>>> {
        for _ in 0..LOOKS {
            let before = partition::read(self, EXAMINE, pk).await?;
            let related = self.related(std::slice::from_ref(&before)).await?;
            let partition = partition::read(self, EXAMINE, pk).await?;
            // What it refers to changes only together with it, so it was the same throughout.
            if partition.is_like(&before) {
                return Ok(Some(diagnose(&partition, &related, &Call::fresh(), self.now_ms())));
            }
        }
        Ok(None)
    }

    async fn apply(&self, repair: Repair) -> Fix {
        let actions = repair.0.into_iter().map(|action| ((), action)).collect();
        match self.transact(REPAIR, actions, &mut Attempts::default()).await {
            Ok(Ok(())) => Fix::Done,
            Ok(Err(_)) => Fix::ChangedMeanwhile,
            Err(error) => Fix::Failed(match std::error::Error::source(&error) {
                Some(source) => format!("{error}: {source}"),
                None => error.to_string(),
            }),
        }
    }

    /// Compares counts of branches with the actual branches, where the scan has shown a difference.
    ///
    /// A count is read, then every branch by a consistent scan, then the count again: if its item is the same, no branch was
    /// created or dropped in between, since both happen in one transaction with the count.
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
            // Branches of missing records have findings of their own.
            let Some(meta) = after.get(&key).filter(|meta| items::kind(meta).is_some()) else { continue };
            if before.get(&key) != Some(meta) {
                found(diagnosis::unsettled(pk));
                continue;
            }
            let branches = children.get(pk).copied().unwrap_or(0);
            let Some(Diagnosis { mut finding, repair }) = miscounted_branches(meta, branches, self.now_ms()) else {
                continue;
            };
            if let Some(repair) = repair.filter(|_| fix) {
                finding.fix = self.apply(repair).await;
            }
            found(finding);
        }
        Ok(())
    }

    /// Reads everything that the partitions refer to.
    async fn related(&self, partitions: &[Partition]) -> Result<Related> {
        let mut keys: Vec<Key> = partitions.iter().flat_map(diagnosis::refers_to).collect();
        keys.sort();
        keys.dedup();
        Ok(Related(self.read_all(keys).await?))
    }

    /// Reads items by key, consistently; missing ones are left out.
    async fn read_all(&self, keys: Vec<Key>) -> Result<HashMap<Key, Item>> {
        let mut found = HashMap::new();
        for batch in keys.chunks(GET_BATCH) {
            for item in self.get_all(EXAMINE, batch.to_vec()).await? {
                found.insert(Key::new(items::pk(&item), items::sk(&item)), item);
            }
        }
        Ok(found)
    }

    /// Reads a page of a consistent scan: of all items, or of those that have an attribute.
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

/// Counts of branches minus the branches seen by a scan. Records at zero are removed.
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
