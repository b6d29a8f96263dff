//! The concerns of records as a single caller sees them (docs/specification.md: Pushes, Answers).

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::leases::{self, Fence};
use crate::history::spec::{Answered, Asked, Concern, Spot, spot_of};

/// The value of a concern.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Cell {
    /// Of a head or an index.
    Reference { id: Option<String>, t: i64, rev: i64 },
    /// Of a status or a config.
    Document { v: i64, payload: Value },
}

impl Cell {
    fn shown(concern: Concern, value: &Value) -> Option<Self> {
        Some(match concern {
            Concern::Head | Concern::Index => Self::Reference {
                id: value.get("id")?.as_str().map(str::to_owned),
                t: value.get("t")?.as_i64()?,
                rev: value.get("rev").and_then(Value::as_i64).unwrap_or(0),
            },
            Concern::Status => {
                Self::Document { v: value.get("v")?.as_i64()?, payload: leases::without(value.get("payload")?) }
            }
            Concern::Config => Self::Document { v: value.get("v")?.as_i64()?, payload: value.get("payload")?.clone() },
        })
    }

    /// Returns whether this value answers the push that wrote the cell.
    fn is_answered(&self, concern: Concern, value: &Value) -> bool {
        Self::shown(concern, value).is_some_and(|shown| shown == *self)
    }
}

/// The result of a push.
enum Pushed {
    /// This is stored now.
    Written(Cell),
    /// It was stored already.
    There,
    Stale,
    Conflict,
}

/// All that was written; everything else is as in a new record.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Objects {
    cells: BTreeMap<Spot, Cell>,
    /// The leases of records.
    fences: BTreeMap<String, Fence>,
    /// Whether the service's clock may pass the end of a lease.
    leases_end: bool,
}

impl Objects {
    pub(super) fn new(leases_end: bool) -> Self {
        Self { cells: BTreeMap::new(), fences: BTreeMap::new(), leases_end }
    }

    fn cell(&self, spot: &Spot) -> Cell {
        self.cells.get(spot).cloned().unwrap_or_else(|| match spot.concern {
            Concern::Head | Concern::Index => Cell::Reference { id: None, t: 0, rev: 0 },
            Concern::Status => Cell::Document { v: 1, payload: json!({ "state": "ready" }) },
            Concern::Config => Cell::Document { v: 0, payload: Value::Null },
        })
    }

    fn holds(&self, spot: &Spot, shown: &Value) -> bool {
        Cell::shown(spot.concern, shown).is_some_and(|shown| shown == self.cell(spot))
    }

    /// Returns whether a check passes.
    fn passes(&self, spot: &Spot, expected: &Value) -> bool {
        match self.cell(spot) {
            Cell::Reference { id, t, .. } => expected["id"].as_str() == id.as_deref() && expected["t"] == t,
            Cell::Document { v, .. } => expected["v"] == v,
        }
    }

    fn push(&self, spot: &Spot, body: &Value) -> Pushed {
        let (new, expected) = (&body["new"], body.get("expected"));
        match self.cell(spot) {
            Cell::Reference { id, t, rev } => {
                let (Some(new_id), Some(new_t)) = (new["id"].as_str(), new["t"].as_i64()) else {
                    return Pushed::Conflict;
                };
                if id.as_deref() == Some(new_id) && t == new_t {
                    return Pushed::There;
                }
                // An index of the same data may be replaced, and is counted.
                let is_again = spot.concern == Concern::Index && id.is_some() && t == new_t;
                let rev = if is_again { rev + 1 } else { 0 };
                let written = Cell::Reference { id: Some(new_id.to_owned()), t: new_t, rev };
                let is_newer = new_t > t;
                match expected {
                    Some(expected) if (is_newer || is_again) && self.passes(spot, expected) => Pushed::Written(written),
                    Some(_) => Pushed::Conflict,
                    None if is_newer || (is_again && body["allow_equal"] == true) => Pushed::Written(written),
                    None => Pushed::Stale,
                }
            }
            Cell::Document { v, payload } => {
                let Some(expected) = expected else { return Pushed::Conflict };
                let wanted = match spot.concern {
                    Concern::Status => leases::without(&expected["payload"]),
                    _ => expected["payload"].clone(),
                };
                let as_expected = match (&wanted, spot.concern) {
                    (Value::Null, _) => true,
                    // An expected status of only a state: the stored status may have any other members.
                    (Value::Object(members), Concern::Status) if members.len() == 1 => {
                        members.get("state") == payload.get("state")
                    }
                    (wanted, _) => *wanted == payload,
                };
                let next = new["v"].as_i64().or_else(|| Some(expected["v"].as_i64()? + 1));
                match next {
                    Some(next) if expected["v"] == v && as_expected && next > v => {
                        Pushed::Written(Cell::Document { v: next, payload: new["payload"].clone() })
                    }
                    _ => Pushed::Conflict,
                }
            }
        }
    }

    /// Makes a call whose answer is not known, if it would be applied.
    pub(super) fn make(&mut self, asked: &Asked) {
        let written: Option<Vec<(Spot, Option<Cell>)>> = match asked {
            Asked::Push(spot, body) => Some(vec![(spot.clone(), self.effect(spot, body).flatten())]),
            Asked::Transaction(operations) => operations
                .iter()
                .map(|operation| {
                    let spot = spot_of(operation);
                    self.effect(&spot, operation).map(|cell| (spot, cell))
                })
                .collect(),
            Asked::Read(_) => None,
            Asked::Lease(record, asked) => {
                let fence = self.fence(record);
                if asked.get("token").is_some() {
                    if fence.is_current(asked) {
                        self.refresh(record, None);
                    }
                } else if self.leases_end || fence.may_be_taken(&asked["holder"], None) {
                    self.acquire(record, asked, None);
                }
                None
            }
            Asked::Release(record, claim) => {
                if self.fence(record).is_current(claim) {
                    self.release(record);
                }
                None
            }
        };
        self.write(written.unwrap_or_default());
    }

    /// The value that an operation leaves; `None` if it is rejected, `Some(None)` if it writes nothing.
    fn effect(&self, spot: &Spot, operation: &Value) -> Option<Option<Cell>> {
        if operation["op"] == "check" {
            return self.passes(spot, &operation["expected"]).then_some(None);
        }
        match self.push(spot, operation) {
            _ if !self.is_under_its_lease(spot, operation) => None,
            Pushed::Written(cell) => Some(Some(cell)),
            Pushed::There => Some(None),
            Pushed::Stale | Pushed::Conflict => None,
        }
    }

    fn write(&mut self, written: Vec<(Spot, Option<Cell>)>) {
        let written = written.into_iter().filter_map(|(spot, cell)| Some((spot, cell?)));
        self.cells.extend(written);
    }

    /// Returns whether a call has this answer now, and makes it.
    pub(super) fn answers(&mut self, asked: &Asked, answer: &Answered) -> bool {
        match asked {
            Asked::Read(spot) => {
                let lease_fits = spot.concern != Concern::Status || self.fence(&spot.record).shows_in(&answer.body);
                self.holds(spot, &answer.body) && lease_fits
            }
            Asked::Push(spot, body) => self.pushes(spot, body, answer),
            Asked::Transaction(operations) => {
                let Some(results) = answer.body["results"].as_array().filter(|all| all.len() == operations.len())
                else {
                    return false;
                };
                let each =
                    operations.iter().zip(results).map(|(operation, result)| (spot_of(operation), operation, result));
                match answer.status {
                    200 => self.commits(each.collect()),
                    409 => self.rejects(each.collect()),
                    _ => false,
                }
            }
            Asked::Lease(record, asked) => self.leases(record, asked, answer),
            Asked::Release(record, claim) => self.releases(record, claim, answer),
        }
    }

    /// Returns whether a push carries no lease, or the current one.
    fn is_under_its_lease(&self, spot: &Spot, body: &Value) -> bool {
        body.get("lease").is_none_or(|claim| self.fence(&spot.record).is_current(claim))
    }

    /// Returns whether a push can be rejected for its lease, and the rejection shows the current one.
    fn is_fenced_off(&self, spot: &Spot, body: &Value, shown: &Value) -> bool {
        let may_be = body.get("lease").is_some() && (self.leases_end || !self.is_under_its_lease(spot, body));
        may_be && self.fence(&spot.record).shows(shown)
    }

    fn fence(&self, record: &str) -> Fence {
        self.fences.get(record).cloned().unwrap_or_default()
    }

    /// Increments a status, and sets its state if one is given and the current one is `from`, or `from` is not given.
    fn restate(&mut self, record: &str, from: Option<&str>, state: Option<&str>) {
        let spot = Spot::status_of(record);
        if let Cell::Document { v, mut payload } = self.cell(&spot) {
            if let Some(state) = state.filter(|_| from.is_none_or(|from| payload["state"] == from)) {
                payload["state"] = json!(state);
            }
            self.cells.insert(spot, Cell::Document { v: v + 1, payload });
        }
    }

    fn acquire(&mut self, record: &str, asked: &Value, expires_at: Option<i64>) {
        let state = self.fences.entry(record.to_owned()).or_default().acquire(asked, expires_at);
        self.restate(record, None, Some(state));
    }

    fn refresh(&mut self, record: &str, expires_at: Option<i64>) {
        self.fences.entry(record.to_owned()).or_default().refresh(expires_at);
        self.restate(record, None, None);
    }

    /// Ends the current lease. A state that was set meanwhile stays.
    fn release(&mut self, record: &str) {
        let set = self.fences.entry(record.to_owned()).or_default().release();
        self.restate(record, set, Some("ready"));
    }

    /// Returns whether a lease can be acquired or refreshed with this answer now, and does so.
    fn leases(&mut self, record: &str, asked: &Value, answer: &Answered) -> bool {
        let (fence, body) = (self.fence(record), &answer.body);
        let shown = &body["lease"];
        let fits = match (asked.get("token"), answer.status, answer.problem()) {
            (None, 200, _) => {
                let at = self.leases_end.then_some(&shown["acquired_at"]);
                self.acquire(record, asked, shown["expires_at"].as_i64());
                fence.may_be_taken(&asked["holder"], at) && body["token"] == fence.next_token()
            }
            (None, 409, "lease-held") => !fence.may_be_taken(&asked["holder"], None),
            (Some(claimed), 200, _) => {
                self.refresh(record, shown["expires_at"].as_i64());
                fence.is_current(asked) && body["token"] == *claimed
            }
            (Some(_), 409, "lease-lost") => !fence.is_current(asked),
            _ => false,
        };
        fits && self.fence(record).shows(shown)
    }

    /// Returns whether a lease can be released with this answer now, and does so.
    fn releases(&mut self, record: &str, claim: &Value, answer: &Answered) -> bool {
        let fence = self.fence(record);
        match (answer.status, answer.problem()) {
            (204, _) => {
                self.release(record);
                fence.is_current(claim)
            }
            (409, "lease-lost") => !fence.is_current(claim) && fence.shows(&answer.body["lease"]),
            _ => false,
        }
    }

    fn pushes(&mut self, spot: &Spot, body: &Value, answer: &Answered) -> bool {
        let shown = &answer.body;
        if answer.problem() == "lease-lost" {
            return self.is_fenced_off(spot, body, &shown["lease"]);
        }
        if !self.is_under_its_lease(spot, body) {
            return false;
        }
        match (self.push(spot, body), answer.status, shown["status"].as_str()) {
            (Pushed::Written(cell), 200, Some("updated")) => {
                let fits = cell.is_answered(spot.concern, &shown["value"]);
                self.write(vec![(spot.clone(), Some(cell))]);
                fits
            }
            (Pushed::There, 200, Some("updated")) => shown["replayed"] == true && self.holds(spot, &shown["value"]),
            (Pushed::Stale, 200, Some("stale")) => self.holds(spot, &shown["value"]),
            (Pushed::Conflict, 409, _) => answer.problem() == "conflict" && self.holds(spot, &shown["actual"]),
            _ => false,
        }
    }

    fn commits(&mut self, each: Vec<(Spot, &Value, &Value)>) -> bool {
        let mut written = Vec::new();
        for (spot, operation, result) in each {
            let Some(cell) = self.effect(&spot, operation) else { return false };
            let fits = match (&cell, operation["op"] == "check") {
                (_, true) => result["status"] == "passed",
                (Some(cell), false) => {
                    result["status"] == "updated" && cell.is_answered(spot.concern, &result["value"])
                }
                (None, false) => {
                    result["status"] == "updated" && result["replayed"] == true && self.holds(&spot, &result["value"])
                }
            };
            if !fits {
                return false;
            }
            written.push((spot, cell));
        }
        self.write(written);
        true
    }

    /// An operation that passed shows nothing of its concern: another one was rejected.
    fn rejects(&self, each: Vec<(Spot, &Value, &Value)>) -> bool {
        let mut rejected = false;
        for (spot, operation, result) in each {
            let is_check = operation["op"] == "check";
            let fits = match result["status"].as_str() {
                Some("passed") => continue,
                Some("lease-lost") if self.is_fenced_off(&spot, operation, &result["lease"]) => {
                    rejected = true;
                    continue;
                }
                Some("conflict") if is_check => !self.passes(&spot, &operation["expected"]),
                Some("conflict") => matches!(self.push(&spot, operation), Pushed::Conflict),
                Some("stale") if !is_check => matches!(self.push(&spot, operation), Pushed::Stale),
                _ => false,
            };
            if !fits || !self.holds(&spot, &result["actual"]) {
                return false;
            }
            rejected = true;
        }
        rejected
    }
}
