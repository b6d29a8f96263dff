//! A sequential specification of the concerns (docs/specification.md: Operations, Answers, Leases), as an object with one caller
//! at a time.
//!
//! It is written against the JSON of the wire and shares no code with the service.

use std::{
    collections::{BTreeMap, BTreeSet, HashSet},
    fmt,
    hash::{BuildHasher, RandomState},
    sync::{Arc, Mutex},
};

use serde_json::{Value, json};
use stateright::semantics::SequentialSpec;

/// One concern of one record: the unit of a write.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Spot {
    pub(crate) record: String,
    pub(crate) concern: Concern,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Concern {
    Head,
    Index,
    Status,
    Config,
}

impl Concern {
    pub(crate) const ALL: [Self; 4] = [Self::Head, Self::Index, Self::Status, Self::Config];

    /// Its member in a record.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Head => "head",
            Self::Index => "index",
            Self::Status => "status",
            Self::Config => "config",
        }
    }

    /// The segment of the path that its pushes go to.
    pub(crate) const fn path(self) -> &'static str {
        match self {
            Self::Head => "heads",
            Self::Index => "indexes",
            Self::Status => "statuses",
            Self::Config => "configs",
        }
    }

    pub(crate) fn of_operation(op: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|concern| op.strip_prefix("push_") == Some(concern.name()))
    }

    /// The value in a new ledger.
    pub(crate) fn unborn(self) -> Value {
        match self {
            Self::Head => json!({ "id": null, "t": 0 }),
            Self::Index => json!({ "id": null, "t": 0, "rev": 0 }),
            Self::Status => json!({ "v": 1, "payload": { "state": "ready" } }),
            Self::Config => json!({ "v": 0, "payload": null }),
        }
    }
}

impl Spot {
    pub(crate) fn new(record: &str, concern: Concern) -> Self {
        Self { record: record.to_owned(), concern }
    }

    pub(crate) fn status_of(record: &str) -> Self {
        Self::new(record, Concern::Status)
    }
}

/// A request.
#[derive(Clone, PartialEq)]
pub(crate) enum Asked {
    Read(Spot),
    Push(Spot, Value),
    /// Acquires or refreshes a lease.
    Lease(String, Value),
    /// Releases one: `{name, holder, token}`.
    Release(String, Value),
    Transaction(Vec<Value>),
}

impl Asked {
    /// Every concern that it can read or change.
    pub(crate) fn spots(&self) -> Vec<Spot> {
        match self {
            Self::Read(spot) => vec![spot.clone()],
            Self::Push(spot, body) => fenced(spot, body),
            Self::Lease(record, _) | Self::Release(record, _) => vec![Spot::status_of(record)],
            Self::Transaction(operations) => {
                operations.iter().flat_map(|operation| fenced(&spot_of(operation), operation)).collect()
            }
        }
    }

    pub(crate) fn writes(&self) -> bool {
        !matches!(self, Self::Read(_))
    }
}

fn fenced(spot: &Spot, body: &Value) -> Vec<Spot> {
    let status = body.get("lease").map(|_| Spot::status_of(&spot.record));
    std::iter::once(spot.clone()).chain(status).collect()
}

pub(crate) fn spot_of(operation: &Value) -> Spot {
    let record = operation["address"].as_str().unwrap();
    let concern = match operation["op"].as_str().unwrap() {
        "check" => Concern::ALL.into_iter().find(|concern| operation["concern"] == json!(concern.name())).unwrap(),
        op => Concern::of_operation(op).unwrap(),
    };
    Spot::new(record, concern)
}

impl fmt::Debug for Asked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Read(spot) => write!(f, "read {} {}", spot.record, spot.concern.name()),
            Self::Push(spot, body) => write!(f, "push {} {} {body}", spot.record, spot.concern.name()),
            Self::Lease(record, body) => write!(f, "lease {record} {body}"),
            Self::Release(record, claim) => write!(f, "release {record} {claim}"),
            Self::Transaction(operations) => write!(f, "transaction {}", json!(operations)),
        }
    }
}

/// A call of a history.
#[derive(Clone, Debug)]
pub(crate) struct Step {
    /// Which call of the history.
    pub(crate) at: usize,
    pub(crate) asked: Arc<Asked>,
}

/// An answer of the service.
#[derive(Clone, PartialEq)]
pub(crate) struct Answered {
    pub(crate) status: u16,
    pub(crate) body: Value,
}

impl Answered {
    /// No answer came.
    pub(crate) fn never() -> Arc<Self> {
        Arc::new(Self { status: 0, body: Value::Null })
    }

    fn came(&self) -> bool {
        self.status != 0
    }

    /// The last segment of a problem's type.
    pub(crate) fn problem(&self) -> &str {
        self.body["type"].as_str().and_then(|kind| kind.rsplit('/').next()).unwrap_or_default()
    }
}

impl fmt::Debug for Answered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.problem() {
            "" => write!(f, "{} {}", self.status, self.body),
            "conflict" => write!(f, "conflict, actual {}", self.body["actual"]),
            "lease-held" | "lease-lost" => write!(f, "{} {}", self.problem(), self.body["lease"]),
            "transaction-refused" => write!(f, "rejected {}", self.body["results"]),
            problem => write!(f, "{problem}"),
        }
    }
}

/// A concern with its value as the wire shows it, less the lease.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Item {
    value: Value,
    lease: Option<Lease>,
    token: i64,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Lease {
    name: String,
    holder: String,
    /// The value in the answer; `None` if it has none.
    expires_at: Option<i64>,
}

/// The records of a history after a prefix of one order of its calls.
#[derive(Clone, Debug)]
pub(crate) struct Records {
    items: BTreeMap<Spot, Item>,
    /// Whether the service's clock may pass the end of a lease while the history runs.
    leases_end: bool,
    way: Way,
}

/// The prefix of the current order. The tester tries every order; of two prefixes with the same calls and the same records only
/// one needs to be followed (Lowe, "Testing for linearizability").
#[derive(Clone, Debug)]
struct Way {
    made: BTreeSet<usize>,
    /// How many answered calls are left.
    answered_left: usize,
    /// The records after it.
    here: u64,
    known: Arc<Mutex<Known>>,
    hasher: RandomState,
}

#[derive(Debug)]
struct Known {
    /// How many more steps may be tried; negative once the search has given up.
    left: i64,
    /// States that another prefix has reached.
    reached: HashSet<u64>,
    /// States in which a call fits that changes nothing: taking it can only help, so no other is tried there.
    settled: HashSet<u64>,
}

/// The result of a push.
pub(crate) enum Verdict {
    /// The value is stored already.
    InPlace,
    /// It is applied and leaves this value.
    Applies(Value),
    Stale,
    Conflict,
}

const LEASES: [(&str, &str); 3] =
    [("index_lock", "indexing"), ("reindex_lock", "reindexing"), ("maintenance_lock", "maintenance")];

pub(crate) fn without_lease(mut status: Value) -> Value {
    if let Some(payload) = status.get_mut("payload").and_then(Value::as_object_mut) {
        for (name, _) in LEASES {
            payload.remove(name);
        }
    }
    status
}

impl Records {
    /// Creates new records, for a history of this many answered calls, in whose orders at most so many steps are tried. Leases end
    /// only if `leases_end` is set.
    pub(crate) fn new(leases_end: bool, answered: usize, steps: i64) -> Self {
        let known = Known { left: steps, reached: HashSet::new(), settled: HashSet::new() };
        let way = Way {
            made: BTreeSet::new(),
            answered_left: answered,
            here: 0,
            known: Arc::new(Mutex::new(known)),
            hasher: RandomState::new(),
        };
        Self { items: BTreeMap::new(), leases_end, way }
    }

    /// Returns whether more steps would have to be tried.
    pub(crate) fn has_given_up(&self) -> bool {
        self.way.known.lock().unwrap().left < 0
    }

    fn item(&self, spot: &Spot) -> Item {
        self.items.get(spot).cloned().unwrap_or_else(|| Item { value: spot.concern.unborn(), lease: None, token: 0 })
    }

    fn change(&mut self, spot: &Spot, change: impl FnOnce(&mut Item)) {
        let mut item = self.item(spot);
        change(&mut item);
        self.items.insert(spot.clone(), item);
    }

    pub(crate) fn put(&mut self, spot: &Spot, value: Value) {
        self.change(spot, |item| item.value = value);
    }

    /// Returns whether the stored value is the one shown, as far as it belongs to the spot.
    fn shows(&self, spot: &Spot, shown: &Value) -> bool {
        without_lease(shown.clone()) == self.item(spot).value
    }

    fn reads(&self, spot: &Spot, shown: &Value) -> bool {
        let held = LEASES.iter().find_map(|(name, _)| shown["payload"].get(name).map(|lease| (*name, lease)));
        let lease = self.item(spot).lease;
        self.shows(spot, shown)
            && match (held, lease) {
                (None, None) => true,
                (Some((name, shown)), Some(lease)) => lease.name == name && shown["holder"] == json!(lease.holder),
                _ => false,
            }
    }

    /// Returns the result of a push, ignoring its lease.
    pub(crate) fn judge(&self, spot: &Spot, body: &Value) -> Verdict {
        let there = self.item(spot).value;
        let (new, expected) = (&body["new"], body.get("expected"));
        match spot.concern {
            Concern::Head | Concern::Index => {
                let (at, to) = (there["t"].as_i64().unwrap(), new["t"].as_i64().unwrap());
                if there["id"] == new["id"] && at == to {
                    return Verdict::InPlace;
                }
                let index = spot.concern == Concern::Index;
                let again = index && at == to && there["id"] != Value::Null;
                let value = match index {
                    true if again => json!({ "id": new["id"], "t": to, "rev": there["rev"].as_i64().unwrap() + 1 }),
                    true => json!({ "id": new["id"], "t": to, "rev": 0 }),
                    false => json!({ "id": new["id"], "t": to }),
                };
                match expected {
                    None if to > at || (again && body["allow_equal"] == json!(true)) => Verdict::Applies(value),
                    None => Verdict::Stale,
                    Some(expected) => {
                        let holds = expected["id"] == there["id"] && expected["t"] == there["t"];
                        if holds && (to > at || again) { Verdict::Applies(value) } else { Verdict::Conflict }
                    }
                }
            }
            Concern::Status | Concern::Config => {
                let expected = without_lease(expected.unwrap().clone());
                let at = there["v"].as_i64().unwrap();
                let to = new["v"].as_i64().unwrap_or_else(|| expected["v"].as_i64().unwrap() + 1);
                let payload_holds = match (&expected["payload"], spot.concern) {
                    (Value::Null, _) => true,
                    // Of a status, the members beside the state are compared where there are any.
                    (payload, Concern::Status) if payload.as_object().unwrap().len() == 1 => {
                        payload["state"] == there["payload"]["state"]
                    }
                    (payload, _) => *payload == there["payload"],
                };
                if expected["v"] == there["v"] && payload_holds && to > at {
                    Verdict::Applies(json!({ "v": to, "payload": new["payload"] }))
                } else {
                    Verdict::Conflict
                }
            }
        }
    }

    /// Returns whether the lease that a push claims is the current one.
    pub(crate) fn holds(&self, record: &str, claim: &Value) -> bool {
        let item = self.item(&Spot::status_of(record));
        json!(item.token) == claim["token"]
            && item
                .lease
                .is_some_and(|lease| claim["name"] == json!(lease.name) && claim["holder"] == json!(lease.holder))
    }

    pub(crate) fn fence_holds(&self, spot: &Spot, body: &Value) -> bool {
        body.get("lease").is_none_or(|claim| self.holds(&spot.record, claim))
    }

    /// Returns whether the lease that a rejection shows is the current one.
    fn shows_lease(&self, record: &str, shown: &Value) -> bool {
        match (self.item(&Spot::status_of(record)).lease, shown) {
            (None, Value::Null) => true,
            (Some(lease), shown) => shown["name"] == json!(lease.name) && shown["holder"] == json!(lease.holder),
            _ => false,
        }
    }

    /// Returns whether a push is fenced off: the lease is another one or has expired.
    fn fence_rejects(&self, spot: &Spot, body: &Value, shown: &Value) -> bool {
        let rejects = body.get("lease").is_some_and(|claim| self.leases_end || !self.holds(&spot.record, claim));
        rejects && self.shows_lease(&spot.record, shown)
    }

    pub(crate) fn take(&mut self, record: &str, name: &str, holder: &str, expires_at: Option<i64>) {
        let state = LEASES.iter().find(|(lease, _)| *lease == name).unwrap().1;
        self.change(&Spot::status_of(record), |item| {
            item.lease = Some(Lease { name: name.to_owned(), holder: holder.to_owned(), expires_at });
            item.token += 1;
            item.value["payload"]["state"] = json!(state);
            item.value["v"] = json!(item.value["v"].as_i64().unwrap() + 1);
        });
    }

    /// The state becomes `ready` where it is still the one that the lease set.
    pub(crate) fn release(&mut self, record: &str) {
        self.change(&Spot::status_of(record), |item| {
            let lease = item.lease.take();
            let set = LEASES.iter().find(|(name, _)| lease.as_ref().is_some_and(|lease| lease.name == *name));
            if set.is_some_and(|(_, state)| item.value["payload"]["state"] == *state) {
                item.value["payload"]["state"] = json!("ready");
            }
            item.value["v"] = json!(item.value["v"].as_i64().unwrap() + 1);
        });
    }

    pub(crate) fn extend(&mut self, record: &str, expires_at: Option<i64>) {
        self.change(&Spot::status_of(record), |item| {
            item.lease.as_mut().unwrap().expires_at = expires_at;
            item.value["v"] = json!(item.value["v"].as_i64().unwrap() + 1);
        });
    }

    /// Returns whether a push can have this answer here, and applies it if so.
    fn pushed(&mut self, spot: &Spot, body: &Value, answer: &Answered) -> bool {
        let shown = &answer.body;
        match (answer.status, shown["status"].as_str(), answer.problem()) {
            (200, Some("updated"), _) if self.fence_holds(spot, body) => match self.judge(spot, body) {
                Verdict::InPlace => shown["replayed"] == json!(true) && self.shows(spot, &shown["value"]),
                Verdict::Applies(value) => {
                    let right = without_lease(shown["value"].clone()) == value;
                    self.put(spot, value);
                    right
                }
                Verdict::Stale | Verdict::Conflict => false,
            },
            (200, Some("stale"), _) if self.fence_holds(spot, body) => {
                matches!(self.judge(spot, body), Verdict::Stale) && self.shows(spot, &shown["value"])
            }
            (409, _, "conflict") if self.fence_holds(spot, body) => {
                matches!(self.judge(spot, body), Verdict::Conflict) && self.shows(spot, &shown["actual"])
            }
            (409, _, "lease-lost") => self.fence_rejects(spot, body, &shown["lease"]),
            _ => false,
        }
    }

    /// Returns the value that an operation of a transaction leaves, `None` if it is not applied.
    fn effect(&self, operation: &Value) -> Option<Option<Value>> {
        let spot = spot_of(operation);
        if operation["op"] == json!("check") {
            return self.expected_holds(&spot, &operation["expected"]).then_some(None);
        }
        match self.judge(&spot, operation) {
            _ if !self.fence_holds(&spot, operation) => None,
            Verdict::Applies(value) => Some(Some(value)),
            Verdict::InPlace => Some(None),
            Verdict::Stale | Verdict::Conflict => None,
        }
    }

    pub(crate) fn expected_holds(&self, spot: &Spot, expected: &Value) -> bool {
        let there = self.item(spot).value;
        let members: &[&str] = match spot.concern {
            Concern::Head | Concern::Index => &["id", "t"],
            Concern::Status | Concern::Config => &["v"],
        };
        members.iter().all(|member| expected[*member] == there[*member])
    }

    fn committed(&mut self, operations: &[Value], results: &[Value]) -> bool {
        let Some(effects) = operations.iter().map(|operation| self.effect(operation)).collect::<Option<Vec<_>>>()
        else {
            return false;
        };
        let mut right = operations.len() == results.len();
        for ((operation, effect), result) in operations.iter().zip(effects).zip(results) {
            let spot = spot_of(operation);
            if operation["op"] == json!("check") {
                right &= result["status"] == json!("passed");
                continue;
            }
            right &= result["status"] == json!("updated");
            match effect {
                Some(value) => {
                    right &= without_lease(result["value"].clone()) == value;
                    self.put(&spot, value);
                }
                None => right &= result["replayed"] == json!(true) && self.shows(&spot, &result["value"]),
            }
        }
        right
    }

    fn is_rejected(&self, operations: &[Value], results: &[Value]) -> bool {
        let mut any_rejects = false;
        let right = operations.iter().zip(results).all(|(operation, result)| {
            let spot = spot_of(operation);
            let check = operation["op"] == json!("check");
            let verdict = || self.judge(&spot, operation);
            let (rejects, right) = match result["status"].as_str().unwrap_or_default() {
                // It proves nothing: another operation was rejected.
                "passed" => (false, true),
                "conflict" if check => (true, !self.expected_holds(&spot, &operation["expected"])),
                "conflict" => (true, matches!(verdict(), Verdict::Conflict)),
                "stale" => (true, matches!(verdict(), Verdict::Stale)),
                "lease-lost" => {
                    let shown = result.get("lease").unwrap_or(&Value::Null);
                    return {
                        any_rejects = true;
                        self.fence_rejects(&spot, operation, shown)
                    };
                }
                _ => (true, false),
            };
            any_rejects |= rejects;
            right && (!rejects || self.shows(&spot, &result["actual"]))
        });
        right && any_rejects && operations.len() == results.len()
    }

    fn leased(&mut self, record: &str, asked: &Value, answer: &Answered) -> bool {
        let spot = Spot::status_of(record);
        let (before, shown) = (self.item(&spot), &answer.body["lease"]);
        let (name, holder) = (asked["name"].as_str().unwrap(), asked["holder"].as_str().unwrap());
        match (answer.status, answer.problem(), asked.get("token")) {
            (200, _, None) => {
                let free = before.lease.as_ref().is_none_or(|lease| {
                    let over = lease.expires_at.is_none_or(|end| shown["acquired_at"].as_i64().unwrap() >= end);
                    lease.holder == holder || (self.leases_end && over)
                });
                self.take(record, name, holder, shown["expires_at"].as_i64());
                free && answer.body["token"] == json!(before.token + 1) && self.shows_lease(record, shown)
            }
            (409, "lease-held", None) => {
                before.lease.is_some_and(|lease| lease.holder != holder) && self.shows_lease(record, shown)
            }
            (200, _, Some(token)) => {
                let holds = self.holds(record, asked);
                if holds {
                    self.extend(record, shown["expires_at"].as_i64());
                }
                holds && answer.body["token"] == *token && self.shows_lease(record, shown)
            }
            (409, "lease-lost", Some(_)) => !self.holds(record, asked) && self.shows_lease(record, shown),
            _ => false,
        }
    }
}

impl Records {
    /// Applies a call that was never answered.
    fn make_unanswered(&mut self, asked: &Asked) {
        match asked {
            Asked::Read(_) => {}
            Asked::Push(spot, body) => {
                if let (true, Verdict::Applies(value)) = (self.fence_holds(spot, body), self.judge(spot, body)) {
                    self.put(spot, value);
                }
            }
            Asked::Transaction(operations) => {
                let effects = operations.iter().map(|operation| self.effect(operation)).collect::<Option<Vec<_>>>();
                for (operation, effect) in operations.iter().zip(effects.unwrap_or_default()) {
                    if let Some(value) = effect {
                        self.put(&spot_of(operation), value);
                    }
                }
            }
            Asked::Lease(record, asked) => {
                let (name, holder) = (asked["name"].as_str().unwrap(), asked["holder"].as_str().unwrap());
                let lease = self.item(&Spot::status_of(record)).lease;
                match asked.get("token") {
                    None if self.leases_end || lease.is_none_or(|lease| lease.holder == holder) => {
                        self.take(record, name, holder, None);
                    }
                    Some(_) if self.holds(record, asked) => self.extend(record, None),
                    _ => {}
                }
            }
            Asked::Release(record, claim) => {
                if self.holds(record, claim) {
                    self.release(record);
                }
            }
        }
    }

    /// Returns whether a call can have this answer now, and applies it if so.
    fn make(&mut self, asked: &Asked, answer: &Answered) -> bool {
        match asked {
            Asked::Read(spot) => self.reads(spot, &answer.body),
            Asked::Push(spot, body) => self.pushed(spot, body, answer),
            Asked::Lease(record, asked) => self.leased(record, asked, answer),
            Asked::Release(record, claim) => match (answer.status, answer.problem()) {
                (204, _) => {
                    let holds = self.holds(record, claim);
                    if holds {
                        self.release(record);
                    }
                    holds
                }
                (409, "lease-lost") => !self.holds(record, claim) && self.shows_lease(record, &answer.body["lease"]),
                _ => false,
            },
            Asked::Transaction(operations) => {
                let results = answer.body["results"].as_array().map(Vec::as_slice).unwrap_or_default();
                match answer.status {
                    200 => self.committed(operations, results),
                    409 => self.is_rejected(operations, results),
                    _ => false,
                }
            }
        }
    }
}

impl SequentialSpec for Records {
    type Op = Step;
    type Ret = Arc<Answered>;

    /// Calls without an answer are modelled as answered at the end of the history, with [`Answered::never`], so that
    /// [`Self::is_valid_step`] decides which of them are worth applying.
    fn invoke(&mut self, _step: &Step) -> Self::Ret {
        Answered::never()
    }

    fn is_valid_step(&mut self, step: &Step, answer: &Self::Ret) -> bool {
        {
            let mut known = self.way.known.lock().unwrap();
            known.left -= 1;
            if known.left < 0 || known.settled.contains(&self.way.here) {
                return false;
            }
        }
        let before = self.items.clone();
        if answer.came() {
            self.way.answered_left -= 1;
            if !self.make(&step.asked, answer) {
                return false;
            }
        } else if self.way.answered_left > 0 {
            self.make_unanswered(&step.asked);
            // Without an effect, it may as well be ordered after everything that was answered.
            if self.items == before {
                return false;
            }
        } else {
            return true;
        }
        let from = self.way.here;
        self.way.made.insert(step.at);
        self.way.here = self.way.hasher.hash_one((&self.way.made, &self.items));
        let mut known = self.way.known.lock().unwrap();
        if self.items == before {
            known.settled.insert(from);
        }
        known.reached.insert(self.way.here)
    }
}
