//! Compares a record at one place with the record of the same address at another.

use std::cmp::Ordering;

use nameservice_api as api;
use nameservice_model::{
    ChangedPart, ConcernKind, Config, Index, IndexRoot, LEGACY_ADDRESS, Object, Record, RecordAttribute, RecordKind,
    Status, StatusPayload, is_redacted,
};
use serde::Serialize;
use serde_json::{Value, json};

use crate::pending::{PENDING, is_pending};

/// How a part of a record at the target compares with the same part at the source.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// The source's is newer.
    Older,
    /// The target's is newer.
    Newer,
    /// They differ at the same watermark, or in what never changes.
    Diverged,
    /// One of them is shown without its secrets, so it is unknown whether they are the same.
    Unknown,
}

/// A part of a record that is not the same at both places.
#[derive(Clone, Debug, PartialEq)]
pub struct Difference {
    /// Which part.
    pub part: ChangedPart,
    /// How the target's compares with the source's.
    pub verdict: Verdict,
    /// The value at the source, as JSON.
    pub source: Value,
    /// The value at the target, as JSON.
    pub target: Value,
}

impl Difference {
    /// Returns whether the source's record is protected, if the difference is that only one of them is.
    pub(crate) fn protection(&self) -> Option<bool> {
        self.source.get(PROTECTED).filter(|_| self.part == ChangedPart::Meta)?.as_bool()
    }

    /// Returns whether the difference is in what never changes.
    pub(crate) fn is_of_identity(&self) -> bool {
        self.part == ChangedPart::Meta && self.protection().is_none()
    }
}

/// The mark of a protected record, in a difference.
const PROTECTED: &str = "protected";

/// Returns the parts in which a record at the target differs from the source's. Counters, times and leases belong to
/// the place that keeps them and are not compared; neither is the revision of an index.
pub fn judge(source: &Record, target: &Record) -> Vec<Difference> {
    if !is_same_identity(source, target) {
        return vec![Difference {
            part: ChangedPart::Meta,
            verdict: Verdict::Diverged,
            source: identity(source),
            target: identity(target),
        }];
    }
    // The mark has no watermark: a missing one is set, and one that only the target has is left.
    let protection = (source.protected != target.protected).then(|| Difference {
        part: ChangedPart::Meta,
        verdict: if source.protected { Verdict::Older } else { Verdict::Diverged },
        source: json!({ PROTECTED: source.protected }),
        target: json!({ PROTECTED: target.protected }),
    });
    let concerns = ConcernKind::ALL.into_iter().filter_map(|concern| {
        Some(Difference {
            part: ChangedPart::Concern(concern),
            verdict: verdict(concern, source, target)?,
            source: shown(source, concern),
            target: shown(target, concern),
        })
    });
    protection.into_iter().chain(concerns).collect()
}

/// Returns the most serious of the differences of one record; `None` if there are none.
pub fn worst(differences: &[Difference]) -> Option<Verdict> {
    differences.iter().map(|difference| difference.verdict).max()
}

/// Returns whether an attribute never changes in the life of a record. Those that change have a comparison of their own.
const fn is_fixed(attribute: RecordAttribute) -> bool {
    match attribute {
        RecordAttribute::SourceType | RecordAttribute::SourceBranch => true,
        // The dependencies are compared, and copied, with the config.
        RecordAttribute::Protected | RecordAttribute::Dependencies => false,
    }
}

/// Returns what never changes in the life of a record.
fn identity(record: &Record) -> Value {
    let attributes = record.attributes();
    let mut identity = json!({ "kind": record.kind.as_str() });
    for attribute in RecordAttribute::ALL.iter().filter(|attribute| is_fixed(**attribute)) {
        identity[attribute.as_str()] = attributes.get(*attribute).into();
    }
    identity
}

/// Returns whether two records have the same kind, type and origin.
pub(crate) fn is_same_identity(a: &Record, b: &Record) -> bool {
    identity(a) == identity(b)
}

/// Returns whether a concern is the same at both places.
pub(crate) fn is_same(concern: ConcernKind, a: &Record, b: &Record) -> bool {
    verdict(concern, a, b).is_none() || verdict(concern, b, a).is_none()
}

/// Returns how the concern of the target compares with the source's; `None` if it is the same.
fn verdict(concern: ConcernKind, source: &Record, target: &Record) -> Option<Verdict> {
    match concern {
        ConcernKind::Head => head(source, target),
        ConcernKind::Index => index(&source.index, &target.index),
        ConcernKind::Status => status(source, target),
        ConcernKind::Config => config(source, target),
    }
}

fn by_watermark(source: i64, target: i64) -> Verdict {
    match source.cmp(&target) {
        Ordering::Greater => Verdict::Older,
        Ordering::Less => Verdict::Newer,
        Ordering::Equal => Verdict::Diverged,
    }
}

fn head(source: &Record, target: &Record) -> Option<Verdict> {
    if source.kind != RecordKind::Ledger || source.head == target.head {
        return None;
    }
    let t = |record: &Record| record.head.as_ref().map_or(0, |head| head.v);
    Some(by_watermark(t(source), t(target)))
}

fn index(source: &Index, target: &Index) -> Option<Verdict> {
    let id = |index: &Index| index.payload.as_ref().map(|root| root.id.clone());
    if source.v != target.v || id(source) != id(target) {
        return Some(by_watermark(source.v, target.v));
    }
    let (Some(source), Some(target)) = (&source.payload, &target.payload) else { return None };
    graphs(source, target)
}

/// Compares named graphs, which have watermarks of their own. A graph that is older at the target can be written,
/// whatever the others are.
fn graphs(source: &IndexRoot, target: &IndexRoot) -> Option<Verdict> {
    let verdicts = source.graphs.iter().filter_map(|(name, graph)| match (graph, target.graphs.get(name)) {
        (None, Some(None)) => None,
        (None, Some(Some(_))) => Some(Verdict::Newer),
        (_, None) | (Some(_), Some(None)) => Some(Verdict::Older),
        (Some(source), Some(Some(target))) if source.id == target.id && source.t == target.t => None,
        (Some(source), Some(Some(target))) => Some(by_watermark(source.t, target.t)),
    });
    let more = target.graphs.keys().any(|name| !source.graphs.contains_key(name));
    verdicts.chain(more.then_some(Verdict::Newer)).min()
}

fn config(source: &Record, target: &Record) -> Option<Verdict> {
    // The mark of a record that is being taken over has to be removed, whatever the watermarks say.
    if is_pending(target) && !target.retracted && !is_pending(source) {
        return Some(Verdict::Older);
    }
    // Two different secrets look the same without them.
    if has_redacted_config(source) || has_redacted_config(target) {
        return Some(Verdict::Unknown);
    }
    // What a graph source depends on is published with its config.
    let content = |record: &Record| {
        let mut config = record.config.payload.clone();
        if let Some(Value::Object(members)) = &mut config {
            members.remove(PENDING);
        }
        // An empty config is equivalent to none.
        let config = config.filter(|config| config.as_object().is_none_or(|members| !members.is_empty()));
        (config, sorted(&record.dependencies))
    };
    let ((in_source, dependencies), (in_target, others)) = (content(source), content(target));
    if dependencies == others
        && let Some(verdict) = by_kept_addresses(in_source.as_ref(), in_target.as_ref())
    {
        return Some(verdict);
    }
    by_content((source.config.v, (in_source, dependencies)), (target.config.v, (in_target, others)))
}

/// Returns whether a config is shown without its secrets. A service marks them by a text alone, so a config that contains
/// that text is taken for one that lacks its secrets.
pub(crate) fn has_redacted_config(record: &Record) -> bool {
    record.config.payload.as_ref().is_some_and(is_redacted)
}

/// Compares configs that differ only in the addresses of an earlier layout. Those addresses have watermarks of their
/// own, the `t` of what they name; the config's watermark does not move with them.
fn by_kept_addresses(source: Option<&Value>, target: Option<&Value>) -> Option<Verdict> {
    let (source, target) = (source?.as_object()?, target?.as_object()?);
    let (kept, there) = (source.get(LEGACY_ADDRESS)?, target.get(LEGACY_ADDRESS)?);
    let others = |config: &Object| {
        let mut others = config.clone();
        others.remove(LEGACY_ADDRESS);
        others
    };
    if kept == there || others(source) != others(target) {
        return None;
    }
    let t = |kept: &Value, concern: &str| kept[concern]["t"].as_i64().unwrap_or(0);
    let of = ["head", "index"].map(|concern| t(kept, concern).cmp(&t(there, concern)));
    match (of.contains(&Ordering::Greater), of.contains(&Ordering::Less)) {
        (true, false) => Some(Verdict::Older),
        (false, true) => Some(Verdict::Newer),
        _ => Some(Verdict::Diverged),
    }
}

fn sorted(texts: &[String]) -> Vec<String> {
    let mut texts = texts.to_vec();
    texts.sort();
    texts
}

/// Compares by content: equal content at an equal or higher watermark of the target needs no copy.
fn by_content<T: PartialEq>((source_v, source): (i64, T), (target_v, target): (i64, T)) -> Option<Verdict> {
    if source == target && target_v >= source_v {
        return None;
    }
    Some(by_watermark(source_v, target_v))
}

fn status(source: &Record, target: &Record) -> Option<Verdict> {
    let reason =
        |record: &Record| record.status.payload.as_ref().and_then(|payload| payload.meta.get("reason").cloned());
    match (source.retracted, target.retracted) {
        // Each place has its own time of retraction.
        (true, true) if reason(source) == reason(target) => None,
        // Retracted by a program that marks only the record.
        (true, false) if source.status.v == target.status.v => Some(Verdict::Older),
        _ => by_content(
            (source.status.v, (source.retracted, payload(&source.status))),
            (target.status.v, (target.retracted, payload(&target.status))),
        ),
    }
}

/// Returns the payload of a status without leases.
pub(crate) fn payload(status: &Status) -> StatusPayload {
    let payload = status.payload.clone().unwrap_or_else(|| StatusPayload::state(StatusPayload::READY));
    payload.without_leases()
}

/// Returns a concern as JSON, for reports.
fn shown(record: &Record, concern: ConcernKind) -> Value {
    match concern {
        ConcernKind::Head => json!(record.head.clone().map(api::Head::from)),
        ConcernKind::Index => json!(api::Index::from(record.index.clone())),
        ConcernKind::Status => json!({"v": record.status.v, "payload": payload(&record.status)}),
        ConcernKind::Config if record.kind == RecordKind::GraphSource => {
            json!({
                "v": record.config.v,
                "payload": record.config.payload,
                "dependencies": record.dependencies,
            })
        }
        ConcernKind::Config => {
            let Config { v, payload, .. } = &record.config;
            json!({"v": v, "payload": payload})
        }
    }
}
