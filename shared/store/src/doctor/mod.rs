//! Examines a whole table for inconsistencies that other programs, restored backups and interrupted work have left, and
//! repairs them under live traffic (docs/specification.md: Table, References).
//!
//! One consistent scan, partition by partition, raises only suspicions: its pages are read one after another while others
//! write. A suspected record is then read on its own, twice, with everything that it refers to in between; a state that is the
//! same both times is diagnosed (`diagnosis.rs`). A repair is one transaction, conditional on the diagnosed state, so that
//! concurrent writers win: a rejected repair is left to the next run.

mod attributes;
mod branches;
mod codes;
mod commits;
mod dependents;
mod diagnosis;
mod leftovers;
mod partition;
mod references;
mod retractions;

use std::{collections::HashMap, time::Duration};

use nameservice_dynamo::READ_BATCH;
use nameservice_model::{Address, Call, ChangeFeed, Observer, Progress, RecordKind, Result};
pub use nameservice_model::{Finding, Fix, Severity};

pub use self::partition::Written;
use self::{
    branches::{Balance, may_be_branch, miscounted_branches, parent_of},
    dependents::dependent_of,
    diagnosis::{Diagnosis, Repair, diagnose, unsettled},
    partition::{Grouping, Partition, Related},
    references::wanted,
};
use crate::{
    Store,
    client::{Attempts, Outcome, of_table},
    expressions::Key,
    items::{self, Item},
    references::counted,
    schema::*,
};

const EXAMINE: &str = "examine the table";
const REPAIR: &str = "repair a record";

/// How often a record is examined if it changes meanwhile.
const LOOKS: usize = 5;
/// The most repairs of one record in one run: each sweeps a bounded number of rows.
const MAX_REMEDIES: usize = 1_000;

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

/// The age at which a write should be in the change feed.
pub const SETTLED: Duration = Duration::from_secs(60);
/// How many of the last writes an examination returns.
pub const LAST_WRITTEN: usize = 20;

/// Every code that [`Store::examine`] reports, and its meaning.
pub const CODES: &[(&str, &str)] = codes::CODES;

/// The receiver of findings.
type Sink<'a> = &'a mut (dyn FnMut(Finding) + Send);

impl Store {
    /// Examines every record of the table, passes findings to `found`, and with `fix` repairs what can be repaired.
    ///
    /// Reads the table once with a consistent scan, and a second time (branches only) if a count of branches does not
    /// match. Memory is bounded by a page of the scan, the largest set of references to one record, and a counter for
    /// each record with branches.
    ///
    /// Safe under live traffic. A writer that changes a count and the records that it counts in separate transactions
    /// (Fluree does, for branches) can be observed in between. A count that is then set wrongly is found by the next
    /// run.
    ///
    /// Needs `dynamodb:Scan`, `Query` and `BatchGetItem` on the table, and with `fix` also `PutItem`, `UpdateItem`,
    /// `DeleteItem` and `ConditionCheckItem`.
    pub async fn examine(&self, fix: bool, found: Sink<'_>) -> Result<Examined> {
        self.examine_observed(None, fix, found, &|_| {}).await
    }

    /// Examines the table like [`Self::examine`], and compares Fluree's commit logs with the history of their ledgers in a
    /// feed.
    ///
    /// For each ledger with a log this costs a Query of the log, a read of the head, and one request for each page of the
    /// history; memory holds one log at a time.
    pub async fn examine_with_history(&self, feed: &dyn ChangeFeed, fix: bool, found: Sink<'_>) -> Result<Examined> {
        self.examine_observed(Some(feed), fix, found, &|_| {}).await
    }

    /// Does either, and passes the number of records examined to `observe` after each page of the scan. The total is
    /// not known: DynamoDB counts only items, and only every six hours.
    pub async fn examine_observed(
        &self,
        feed: Option<&dyn ChangeFeed>,
        fix: bool,
        found: Sink<'_>,
        observe: Observer<'_>,
    ) -> Result<Examined> {
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
                let logged =
                    matches!(partition.record(), Some((_, RecordKind::Ledger))) && !partition.commits.is_empty();
                if let Some(feed) = feed.filter(|_| logged) {
                    self.treat_log(&partition.pk, feed, fix, found).await?;
                }
            }
            examined.last_written.retain(|written| written.at_ms <= settled);
            examined.last_written.sort_by_key(|written| std::cmp::Reverse(written.at_ms));
            examined.last_written.truncate(LAST_WRITTEN);
            observe(Progress { done: examined.records, total: None });
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
                findings.push(unsettled(pk));
                break;
            };
            let ill = |code| diagnoses.iter().any(|illness| illness.finding.code == code);
            // It was repaired together with another finding.
            for known in findings.iter_mut().filter(|known| known.fix == Fix::Possible && !ill(known.code)) {
                known.fix = Fix::Done;
            }
            for illness in &diagnoses {
                match findings.iter_mut().find(|known| known.code == illness.finding.code) {
                    // There was more than one repair could sweep.
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

    /// Compares a commit log with the history of its ledger, and repairs it if `fix` is set.
    async fn treat_log(&self, pk: &str, feed: &dyn ChangeFeed, fix: bool, found: Sink<'_>) -> Result<()> {
        let diagnoses = self.compare_log(pk, feed).await?;
        let Some(mut finding) = diagnoses.first().map(|diagnosis| diagnosis.finding.clone()) else { return Ok(()) };
        for repair in diagnoses.into_iter().filter_map(|diagnosis| diagnosis.repair).take_while(|_| fix) {
            finding.fix = self.apply(repair).await;
            if finding.fix != Fix::Done {
                break;
            }
        }
        found(finding);
        Ok(())
    }

    /// Examines a record. Returns `None` if it changed at every examination.
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
            Ok(Outcome::Applied(())) => Fix::Done,
            Ok(Outcome::Rejected(_)) => Fix::ChangedMeanwhile,
            Err(error) => Fix::Failed(match std::error::Error::source(&error) {
                Some(source) => format!("{error}: {source}"),
                None => error.to_string(),
            }),
        }
    }

    /// Compares counts of branches with the actual branches, if the scan has shown a difference.
    ///
    /// A count is read, then every branch by a consistent scan, then the count again: if the item with the count is the
    /// same, no branch was created or dropped in between, because both update it in the same transaction.
    async fn recount_branches(&self, balance: Balance, fix: bool, found: Sink<'_>) -> Result<()> {
        let suspects: Vec<String> = balance.open.into_keys().collect();
        if suspects.is_empty() {
            return Ok(());
        }
        let keys = || suspects.iter().map(Key::meta).collect::<Vec<_>>();
        let before = self.read_all(keys()).await?;
        let mut children: HashMap<String, i64> = HashMap::new();
        // Of each name, a record that may be a branch.
        let mut unclear: HashMap<String, String> = HashMap::new();
        let mut start = None;
        loop {
            let page = self.scan_page(Some(ATTR_BP_SOURCE), start.take()).await?;
            for pk in page.items.iter().filter(|item| may_be_branch(item)).map(items::pk) {
                unclear.insert(Address::stored(pk).name().to_owned(), pk.to_owned());
            }
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
            // Branches whose source is missing have findings of their own.
            let Some(meta) = after.get(&key).filter(|meta| items::kind(meta).is_some()) else { continue };
            if before.get(&key) != Some(meta) {
                found(unsettled(pk));
                continue;
            }
            let branches = children.get(pk).copied().unwrap_or(0);
            let unclear = unclear.get(Address::stored(pk.as_str()).name()).map(String::as_str);
            let Some(Diagnosis { mut finding, repair }) = miscounted_branches(meta, branches, unclear, self.now_ms())
            else {
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
        let mut keys: Vec<Key> = partitions.iter().flat_map(refers_to).collect();
        keys.sort();
        keys.dedup();
        Ok(Related(self.read_all(keys).await?))
    }

    /// Reads items by key, consistently; missing ones are left out.
    async fn read_all(&self, keys: Vec<Key>) -> Result<HashMap<Key, Item>> {
        let mut found = HashMap::new();
        for batch in keys.chunks(READ_BATCH) {
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
        let page = self.sender.read(EXAMINE, || request.clone().send()).await.map_err(of_table)?;
        Ok(ScanPage {
            items: page.items.unwrap_or_default(),
            next: page.last_evaluated_key.filter(|key| !key.is_empty()),
        })
    }
}

/// Returns the keys of the items of other partitions that the diagnosis of this one needs.
fn refers_to(partition: &Partition) -> Vec<Key> {
    let mut keys = Vec::new();
    if let Some((meta, kind)) = partition.record() {
        keys.extend(parent_of(meta).map(Key::meta));
        let address = partition.address();
        if kind == RecordKind::GraphSource && address.is_well_formed() {
            for target in wanted(meta, &address).0.into_iter().chain(counted(meta)) {
                keys.push(Key::new(&target, sk_backref(address.as_str())));
                keys.push(Key::meta(target));
            }
        }
    }
    keys.extend(partition.backrefs.iter().filter_map(dependent_of).map(Key::meta));
    keys
}

struct ScanPage {
    items: Vec<Item>,
    next: Option<Item>,
}
