//! Reports of copies and comparisons.

use nameservice_model::ChangedPart;
use serde::Serialize;
use serde_json::Value;

use crate::{
    bring::REDACTED_CONFIG,
    judge::{Difference, Verdict},
};

/// How many entries a list holds. Further ones are only counted, so that a report stays small, however many records
/// there are.
pub const MAX_ENTRIES: usize = 1_000;

/// The records with one outcome: how many there are, and the first of them.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Records {
    /// How many.
    pub count: u64,
    /// The first of them, at most [`MAX_ENTRIES`].
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub records: Vec<Entry>,
}

/// A record in a report.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Entry {
    /// Its address, or where it was found if it has none.
    pub address: String,
    /// The parts that differ.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub differences: Vec<Part>,
    /// What is wrong with it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// A part of a record that differs.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Part {
    /// `meta`, or the concern.
    pub concern: &'static str,
    /// How it compares at the target.
    pub target_is: Verdict,
    /// The value at the source.
    pub source: Value,
    /// The value at the target.
    pub target: Value,
}

impl From<&Difference> for Part {
    fn from(difference: &Difference) -> Self {
        let concern = match difference.part {
            ChangedPart::Meta => "meta",
            ChangedPart::Concern(concern) => concern.as_str(),
        };
        Self {
            concern,
            target_is: difference.verdict,
            source: difference.source.clone(),
            target: difference.target.clone(),
        }
    }
}

impl Records {
    pub(crate) fn add(&mut self, entry: Entry) {
        self.count += 1;
        if self.records.len() < MAX_ENTRIES {
            self.records.push(entry);
        }
    }

    pub(crate) fn add_address(&mut self, address: &impl ToString) {
        self.add(Entry { address: address.to_string(), differences: Vec::new(), reason: None });
    }

    pub(crate) fn add_reason(&mut self, address: &impl ToString, reason: impl Into<String>) {
        self.add(Entry { address: address.to_string(), differences: Vec::new(), reason: Some(reason.into()) });
    }

    pub(crate) fn add_differences(&mut self, address: &impl ToString, differences: &[Difference]) {
        let differences = differences.iter().map(Part::from).collect();
        self.add(Entry { address: address.to_string(), differences, reason: None });
    }

    /// Adds a record whose config is shown without its secrets at one of the places.
    pub(crate) fn add_unknown(&mut self, address: &impl ToString, differences: &[Difference]) {
        let differences = differences.iter().map(Part::from).collect();
        self.add(Entry { address: address.to_string(), differences, reason: Some(REDACTED_CONFIG.to_owned()) });
    }

    /// Adds those of another list, counting also those that it only counts.
    pub(crate) fn append(&mut self, other: Self) {
        self.count += other.count;
        let room = MAX_ENTRIES.saturating_sub(self.records.len());
        self.records.extend(other.records.into_iter().take(room));
    }

    /// Returns whether there are none.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }
}

/// How two places compare: for each record of the source, what the target has.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Comparison {
    /// The position of the source's feed before the first record was read, if it has a feed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub position: Option<u64>,
    /// How many records are the same.
    pub same: u64,
    /// Records that the target lacks.
    pub missing_there: Records,
    /// Records that are older at the target.
    pub older_there: Records,
    /// Records of which a part is newer at the target.
    pub newer_there: Records,
    /// Records that differ at the same watermark.
    pub diverged: Records,
    /// Records whose config is shown without its secrets at one of the places: whether it is the same is not known.
    pub unknown: Records,
    /// Records that only the target has.
    pub only_there: Records,
    /// What could not be read as a record.
    pub unreadable: Records,
}

impl Comparison {
    /// Returns whether both places hold the same.
    pub fn is_same(&self) -> bool {
        let Self { missing_there, older_there, newer_there, diverged, unknown, only_there, unreadable, .. } = self;
        [missing_there, older_there, newer_there, diverged, unknown, only_there, unreadable]
            .iter()
            .all(|records| records.is_empty())
    }

    pub(crate) fn add(&mut self, address: &impl ToString, differences: Option<&[Difference]>) {
        let Some(differences) = differences else { return self.missing_there.add_address(address) };
        let records = match crate::judge::worst(differences) {
            None => {
                self.same += 1;
                return;
            }
            Some(Verdict::Older) => &mut self.older_there,
            Some(Verdict::Newer) => &mut self.newer_there,
            Some(Verdict::Diverged) => &mut self.diverged,
            Some(Verdict::Unknown) => return self.unknown.add_unknown(address, differences),
        };
        records.add_differences(address, differences);
    }
}

/// What a copy has done, and how the places compare after it.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Report {
    /// The position of the source's feed before the first record was read, if it has a feed: the changes after it may
    /// not have been copied.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub position: Option<u64>,
    /// Nothing was written: the report says what would be.
    pub dry_run: bool,
    /// Records of which this copy wrote something, or would: also those that other lists have for a part that was not
    /// copied, and those without the prefix that records with it need.
    pub copied: Records,
    /// How many records were the same, and needed no write.
    pub already_there: u64,
    /// Records of which a part is newer at the target. That part was left unchanged.
    pub newer_there: Records,
    /// Records that differ at the same watermark, and were left unchanged.
    pub diverged: Records,
    /// Records whose config is shown without its secrets at one of the places: whether it is the same is not known, and it was
    /// left unchanged.
    pub unknown: Records,
    /// Records that are missing or older at the target after the copy: they changed while it ran, or were not copied.
    pub behind: Records,
    /// What could not be read as a record.
    pub unreadable: Records,
    /// Records that the target rejected, in whole or in part, with the reason. They are neither behind nor newer, diverged or
    /// unknown: each is reported once.
    pub rejected: Records,
    /// Records of older tables that keep addresses without a content id, in their config.
    #[serde(skip_serializing_if = "Records::is_empty")]
    pub kept_addresses: Records,
}

impl Report {
    /// Returns whether the target holds what the source holds, as far as it could be read.
    pub fn is_complete(&self) -> bool {
        let Self { newer_there, diverged, unknown, behind, unreadable, rejected, .. } = self;
        [newer_there, diverged, unknown, behind, unreadable, rejected].iter().all(|records| records.is_empty())
    }
}
