//! `lease list`: every lease that is held, by holder.

use std::collections::BTreeMap;

use clap::Args;
use jiff::Timestamp;
use nameservice_api::leases::Lease;
use nameservice_model::is_lease_member;
use serde_json::{Value, json};

use super::list::{Limit, Pages, follow};
use crate::{
    client::Request,
    failure::Failure,
    lists::{self, Column, FormatArgs},
    output,
    session::Session,
};

/// `lease list`
#[derive(Debug, Args)]
pub struct LeaseListArgs {
    /// Only records whose addresses begin with this
    #[arg(long)]
    pub prefix: Option<String>,
    /// Only leases of this holder
    #[arg(long)]
    pub holder: Option<String>,
    /// Also show leases that have expired and were not released
    #[arg(long)]
    pub expired: bool,
    /// The format.
    #[command(flatten)]
    pub format: FormatArgs,
}

const COLUMNS: &[Column] = &[
    ("holder", "/holder"),
    ("address", "/address"),
    ("name", "/name"),
    ("target_t", "/target_t"),
    ("acquired_at", "/acquired_at"),
    ("refreshed_at", "/refreshed_at"),
    ("expires_at", "/expires_at"),
    ("seconds_left", "/seconds_left"),
];

/// Returns the lease in the status of a record, with its name, whether it has expired or not.
pub(super) fn lease_of(status: &Value) -> Option<Value> {
    status.get("payload")?.as_object()?.iter().find_map(|(name, lease)| {
        let mut lease = Some(lease).filter(|lease| lease.is_object() && is_lease_member(name, lease))?.clone();
        lease["name"] = name.as_str().into();
        Some(lease)
    })
}

pub(crate) async fn run(session: &Session, args: LeaseListArgs) -> Result<(), Failure> {
    let format = args.format.wanted(session.output)?;
    let prefix = args.prefix.as_deref().filter(|prefix| !prefix.is_empty());
    let request = || Request::get("records").query("view", Some("full")).query("prefix", prefix);
    let Pages { items, .. } =
        follow(session, Limit::default(), None, request, |record| lease_of(&record["status"]).is_some()).await?;
    let mut leases = held(&items, now());
    leases.retain(|lease| {
        (args.expired || lease["seconds_left"].as_i64().is_some_and(|left| left > 0))
            && args.holder.as_ref().is_none_or(|holder| lease["holder"] == holder.as_str())
    });
    lists::print(format, COLUMNS, &leases, || json!({"leases": leases}), || words(&leases))
}

/// The current time in epoch seconds, rounded up like the expiry of a lease.
pub(super) fn now() -> i64 {
    (Timestamp::now().as_millisecond() + 999).div_euclid(1000)
}

/// The leases of these records, by holder and address, each with its record and its remaining seconds.
fn held(records: &[Value], now: i64) -> Vec<Value> {
    let mut leases = BTreeMap::new();
    for record in records {
        let Some(mut lease) = lease_of(&record["status"]) else { continue };
        // Its times are by the service's clock, which nearly agrees with this one.
        let left = lease["expires_at"].as_i64().map(|expires| expires.saturating_sub(now));
        lease["seconds_left"] = json!(left);
        lease["address"] = record["address"].clone();
        leases.insert((output::text(&lease["holder"]), output::text(&record["address"])), lease);
    }
    leases.into_values().collect()
}

fn words(leases: &[Value]) -> String {
    if leases.is_empty() {
        return "no lease is held".into();
    }
    let rows = leases.iter().map(|lease| {
        let left = lease["seconds_left"].as_i64().unwrap_or_default();
        let target = serde_json::from_value::<Lease>(lease.clone()).ok().and_then(|lease| lease.target_t);
        [
            output::text(&lease["holder"]),
            output::text(&lease["address"]),
            output::text(&lease["name"]),
            target.map_or_else(|| "-".to_owned(), |t| format!("t {t}")),
            time_left(left),
        ]
    });
    output::table(["HOLDER", "ADDRESS", "LEASE", "FOR", "LEFT"], rows)
}

/// The remaining time of a lease, such as `4:05`, or that it has expired.
pub(super) fn time_left(seconds: i64) -> String {
    match seconds {
        ..=0 => "expired".to_owned(),
        3600.. => format!("{}:{:02}:{:02}", seconds / 3600, seconds / 60 % 60, seconds % 60),
        _ => format!("{}:{:02}", seconds / 60, seconds % 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leases_are_sorted_by_holder_and_show_what_they_have_left() {
        let record = |address: &str, holder: &str, expires_at: i64| {
            let lease = json!({"holder": holder, "acquired_at": 1, "expires_at": expires_at});
            json!({"address": address, "status": {"v": 2, "payload": {"state": "indexing", "index_lock": lease}}})
        };
        let free = json!({"address": "free:main", "status": {"v": 1, "payload": {"state": "ready", "note": {"a": 1}}}});
        let records =
            [record("b:main", "two", 1065), free, record("a:main", "two", 990), record("c:main", "one", 4700)];
        let leases = held(&records, 1000);
        let shown: Vec<_> = leases.iter().map(|lease| (lease["holder"].as_str(), lease["address"].as_str())).collect();
        assert_eq!(shown, [("one", "c:main"), ("two", "a:main"), ("two", "b:main")].map(|(h, a)| (Some(h), Some(a))));
        let words = words(&leases);
        let left: Vec<_> = words.lines().skip(1).map(|line| line.split_whitespace().last().unwrap()).collect();
        assert_eq!(left, ["1:01:40", "expired", "1:05"]);
    }
}
