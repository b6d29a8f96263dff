//! The nameservice as a plain program that keeps everything in memory and serves one caller at a time.

use std::collections::BTreeMap;

use http::Method;
use nameservice_tests::cids::id_of;
use proptest::prelude::*;
use proptest_state_machine::ReferenceStateMachine;
use serde_json::{Value, json};

use crate::history::spec::{Asked, Concern, Records, Spot, Verdict, spot_of};

/// What every name begins with; a run of the test puts a prefix of its own in its place.
pub(crate) const PREFIX: &str = "P.";
const LEDGERS: [&str; 4] = ["P.a:main", "P.b:main", "P.a:dev", "P.a:exp"];
const SOURCES: [&str; 2] = ["P.s:main", "P.t:main"];

pub(crate) fn addresses() -> impl Iterator<Item = &'static str> {
    LEDGERS.into_iter().chain(SOURCES)
}

/// One request, and what shall go wrong on its way.
#[derive(Clone, Debug)]
pub(crate) struct Transition {
    pub(crate) method: Method,
    pub(crate) path: String,
    pub(crate) body: Option<Value>,
    what: What,
    pub(crate) trouble: Trouble,
}

#[derive(Clone, Debug)]
enum What {
    Create {
        address: String,
        head: Value,
        config: Value,
    },
    Branch {
        branch: String,
        source: String,
        at: Value,
    },
    Publish {
        address: String,
        source_type: String,
        config: Value,
        dependencies: Option<Vec<String>>,
        expected_v: Value,
    },
    Retract(String),
    Restore(String),
    Purge(String),
    Drop(String),
    Reset {
        address: String,
        head: Value,
        index: Value,
    },
    Concern(Asked),
    /// The request before, under the same key.
    Again,
}

/// What happens to the first write of a request between service and engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Trouble {
    None,
    Busy,
    RequestCut,
    ReplyCut,
    ReplyCutAndTokenForgotten,
    ErrorButDone,
}

impl Trouble {
    /// Whether the service cannot know whether its write was applied.
    pub(crate) fn leaves_doubt(self) -> bool {
        !matches!(self, Self::None | Self::Busy)
    }
}

/// What the service must answer.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Told {
    pub(crate) status: u16,
    /// Members that the answer must have with these values.
    pub(crate) members: Value,
}

impl Told {
    fn new(status: u16, members: Value) -> Self {
        Self { status, members }
    }

    fn problem(status: u16, kind: &str) -> Self {
        Self::new(status, json!({ "type": format!("https://nameservice.dev/problems/{kind}") }))
    }

    fn with(mut self, member: &str, value: Value) -> Self {
        self.members[member] = value;
        self
    }

    /// Nothing was done.
    pub(crate) fn refuses(&self) -> bool {
        self.status >= 400 || self.members["status"] == "stale"
    }
}

/// A record, less its concerns.
#[derive(Clone, Debug)]
pub(crate) struct Entity {
    /// The type of a graph source.
    source_type: Option<String>,
    retracted: bool,
    source: Option<String>,
    dependencies: Vec<String>,
}

#[derive(Clone, Debug)]
pub(crate) struct Model {
    entities: BTreeMap<&'static str, Entity>,
    concerns: Records,
    /// What the last request must be told.
    pub(crate) told: Told,
    last: Option<Transition>,
    /// Makes ids that nobody has seen.
    numbers: i64,
}

fn known(address: &str) -> &'static str {
    addresses().find(|known| *known == address).unwrap()
}

impl Model {
    fn entity(&self, address: &str) -> Option<&Entity> {
        self.entities.get(address)
    }

    fn value(&self, address: &str, concern: Concern) -> Value {
        self.concerns.value(&Spot::new(address, concern))
    }

    fn branches(&self, address: &str) -> usize {
        let (name, branch) = address.split_once(':').unwrap();
        let of = |other: &&str, entity: &Entity| {
            other.split_once(':').unwrap().0 == name && entity.source.as_deref() == Some(branch)
        };
        self.entities.iter().filter(|(other, entity)| of(other, entity)).count()
    }

    fn dependents(&self, address: &str) -> usize {
        self.entities.values().filter(|entity| entity.dependencies.iter().any(|target| target == address)).count()
    }

    fn is_referenced(&self, address: &str) -> bool {
        self.branches(address) + self.dependents(address) > 0
    }

    /// What a read must show, less its times.
    pub(crate) fn record(&self, address: &str) -> Option<Value> {
        let entity = self.entity(address)?;
        let (name, branch) = address.split_once(':').unwrap();
        let mut shown = json!({
            "address": address, "name": name, "branch": branch, "retracted": entity.retracted,
            "kind": if entity.source_type.is_some() { "graph_source" } else { "ledger" },
            "branches": self.branches(address), "dependents": self.dependents(address),
            "index": self.value(address, Concern::Index), "status": self.value(address, Concern::Status),
            "config": self.value(address, Concern::Config),
        });
        if let Some((name, holder)) = self.concerns.lease(address) {
            shown["status"]["payload"][name] = json!({ "holder": holder });
        }
        match &entity.source_type {
            Some(source_type) => {
                shown["source_type"] = json!(source_type);
                shown["dependencies"] = json!(entity.dependencies);
            }
            None => shown["head"] = self.value(address, Concern::Head),
        }
        if let Some(source) = &entity.source {
            shown["source_branch"] = json!(source);
        }
        Some(shown)
    }

    fn create(&mut self, address: &str, entity: Entity) {
        self.concerns.remove(address);
        self.entities.insert(known(address), entity);
    }

    fn create_ledger(&mut self, address: &str, source: Option<&str>) {
        let source = source.map(str::to_owned);
        self.create(address, Entity { source_type: None, retracted: false, source, dependencies: Vec::new() });
    }

    fn set(&mut self, address: &str, concern: Concern, value: Value) {
        self.concerns.put(&Spot::new(address, concern), value);
    }

    /// The state changes, the counter goes on.
    fn set_state(&mut self, address: &str, payload: Value) {
        let v = self.value(address, Concern::Status)["v"].as_i64().unwrap() + 1;
        self.set(address, Concern::Status, json!({ "v": v, "payload": payload }));
    }

    // ---- the operations ----

    fn apply(&mut self, what: &What) -> Told {
        match what {
            What::Create { address, head, config } => {
                if self.entity(address).is_some() {
                    return Told::problem(409, "already-exists");
                }
                self.create_ledger(address, None);
                if !head.is_null() {
                    self.set(address, Concern::Head, head.clone());
                }
                if !config.is_null() {
                    self.set(address, Concern::Config, json!({ "v": 1, "payload": config }));
                }
                Told::new(201, json!({ "address": address }))
            }
            What::Branch { branch, source, at } => {
                match self.entity(source) {
                    Some(Entity { retracted: false, source_type: None, .. }) => {}
                    _ => return Told::problem(404, "unknown-source"),
                }
                let head = self.value(source, Concern::Head);
                if head["id"].is_null() {
                    return Told::problem(409, "unborn-source");
                }
                if self.entity(branch).is_some() {
                    return Told::problem(409, "already-exists");
                }
                self.create_ledger(branch, source.split_once(':').map(|(_, branch)| branch));
                self.set(branch, Concern::Head, if at.is_null() { head } else { at.clone() });
                Told::new(201, json!({ "address": branch }))
            }
            What::Publish { address, source_type, config, dependencies, expected_v } => {
                self.publish(address, source_type, config, dependencies.as_deref(), expected_v.as_i64())
            }
            What::Retract(address) => match self.entity(address) {
                None => Told::problem(404, "unknown-record"),
                Some(Entity { retracted: true, .. }) => Told::new(200, json!({ "retracted": true })),
                Some(_) if self.is_referenced(address) => Told::problem(409, "has-dependents"),
                Some(_) => {
                    self.entities.get_mut(known(address)).unwrap().retracted = true;
                    self.set_state(address, json!({ "state": "retracted", "reason": "why" }));
                    Told::new(200, json!({ "retracted": true }))
                }
            },
            What::Restore(address) => match self.entity(address) {
                None => Told::problem(404, "unknown-record"),
                Some(Entity { retracted: false, .. }) => Told::new(200, json!({ "retracted": false })),
                Some(_) => {
                    self.entities.get_mut(known(address)).unwrap().retracted = false;
                    self.set_state(address, json!({ "state": "ready" }));
                    Told::new(200, json!({ "retracted": false }))
                }
            },
            What::Purge(address) => match self.entity(address) {
                None => Told::problem(404, "unknown-record"),
                Some(_) if self.is_referenced(address) => Told::problem(409, "has-dependents"),
                Some(_) => {
                    self.remove(address);
                    Told::new(204, json!({}))
                }
            },
            What::Drop(address) => match self.entity(address).cloned() {
                None => Told::problem(404, "unknown-record"),
                Some(Entity { source: None, .. }) => Told::problem(409, "not-a-branch"),
                Some(_) if self.is_referenced(address) => Told::problem(409, "has-dependents"),
                Some(Entity { source: Some(source), .. }) => {
                    self.remove(address);
                    let parent = format!("{}:{source}", address.split_once(':').unwrap().0);
                    Told::new(200, json!({ "parent_branches": self.branches(&parent) }))
                }
            },
            What::Reset { address, head, index } => match self.entity(address) {
                None => Told::problem(404, "unknown-record"),
                Some(Entity { source_type: Some(_), .. }) => Told::problem(409, "wrong-kind"),
                Some(Entity { retracted: true, .. }) => Told::problem(410, "retracted"),
                Some(_) => {
                    self.set(address, Concern::Head, head.clone());
                    let mut index = index.clone();
                    index["rev"] = json!(0);
                    self.set(address, Concern::Index, index.clone());
                    Told::new(200, json!({ "head": head, "index": index }))
                }
            },
            What::Concern(asked) => self.ask(asked),
            What::Again => match self.last.clone() {
                // A call that the item remembers is told again what it was told.
                Some(_) => self.told.clone(),
                None => Told::new(200, json!({})),
            },
        }
    }

    fn remove(&mut self, address: &str) {
        self.entities.remove(address);
        self.concerns.remove(address);
    }

    fn publish(
        &mut self,
        address: &str,
        source_type: &str,
        config: &Value,
        dependencies: Option<&[String]>,
        expected_v: Option<i64>,
    ) -> Told {
        let before = self.entity(address).cloned();
        let v = self.value(address, Concern::Config)["v"].as_i64().unwrap();
        match &before {
            None if expected_v.is_some_and(|v| v > 0) => {
                return Told::problem(409, "conflict").with("actual", Value::Null);
            }
            None => {}
            Some(entity) if entity.source_type.as_deref() != Some(source_type) => {
                return Told::problem(409, "wrong-kind");
            }
            Some(Entity { retracted: true, .. }) => return Told::problem(410, "retracted"),
            Some(_) if expected_v.is_some_and(|expected| expected != v) => {
                return Told::problem(409, "conflict").with("actual", self.value(address, Concern::Config));
            }
            Some(_) => {}
        }
        let wanted = match (dependencies, &before) {
            (Some(wanted), _) => wanted.to_vec(),
            (None, Some(before)) => before.dependencies.clone(),
            (None, None) => Vec::new(),
        };
        let missing = |target: &&String| self.entity(target).is_none_or(|entity| entity.retracted);
        let mut missing: Vec<&String> = wanted.iter().filter(missing).collect();
        missing.sort();
        if !missing.is_empty() {
            return Told::problem(422, "missing-dependencies").with("missing", json!(missing));
        }
        let created = before.is_none();
        if created {
            let source_type = Some(source_type.to_owned());
            self.create(address, Entity { source_type, retracted: false, source: None, dependencies: Vec::new() });
        }
        self.entities.get_mut(known(address)).unwrap().dependencies = wanted;
        let v = if created { 1 } else { v + 1 };
        self.set(address, Concern::Config, json!({ "v": v, "payload": config }));
        Told::new(if created { 201 } else { 200 }, json!({ "address": address }))
    }

    fn ask(&mut self, asked: &Asked) -> Told {
        match asked {
            Asked::Push(spot, body) if body.get("expected") == Some(&Value::Null) => self.create_by_push(spot, body),
            Asked::Push(spot, body) => {
                let told = match self.result(spot, body) {
                    Ok(updated) => updated,
                    Err(refused) => refused,
                };
                if let (false, Verdict::Applies(value)) = (told.refuses(), self.concerns.judge(spot, body)) {
                    self.concerns.put(spot, value);
                }
                told
            }
            Asked::Transaction(operations) => self.transact(operations),
            Asked::Lease(record, wanted) => self.lease(record, wanted),
            Asked::Release(record, claim) => match self.entity(record) {
                None => Told::problem(404, "unknown-record"),
                Some(Entity { retracted: true, .. }) => Told::problem(410, "retracted"),
                Some(_) if !self.concerns.holds(record, claim) => Told::problem(409, "lease-lost"),
                Some(_) => {
                    self.concerns.release(record);
                    Told::new(204, json!({}))
                }
            },
            Asked::Read(_) => Told::new(200, json!({})),
        }
    }

    fn has(&self, spot: &Spot) -> Option<bool> {
        let source = self.entity(&spot.record)?.source_type.is_some();
        Some(!source || matches!(spot.concern, Concern::Index | Concern::Status))
    }

    /// What a push is told; nothing is changed.
    fn result(&self, spot: &Spot, body: &Value) -> Result<Told, Told> {
        let Some(entity) = self.entity(&spot.record) else { return Err(Told::problem(404, "unknown-record")) };
        let retracted = Err(Told::problem(410, "retracted"));
        if body.get("lease").is_some() {
            if entity.retracted {
                return retracted;
            }
            if !self.concerns.fence_holds(spot, body) {
                return Err(Told::problem(409, "lease-lost"));
            }
        }
        // A graph source has no head item that could be marked; its config item is.
        if spot.concern == Concern::Head && self.has(spot) == Some(false) {
            return Err(Told::problem(409, "wrong-kind"));
        }
        if entity.retracted {
            return retracted;
        }
        if self.has(spot) == Some(false) {
            return Err(Told::problem(409, "wrong-kind"));
        }
        let there = self.concerns.value(spot);
        match self.concerns.judge(spot, body) {
            Verdict::Applies(value) => Ok(Told::new(200, json!({ "status": "updated", "value": value }))),
            Verdict::InPlace => Ok(Told::new(200, json!({ "status": "updated", "value": there, "replayed": true }))),
            Verdict::Stale => Err(Told::new(200, json!({ "status": "stale", "value": there }))),
            Verdict::Conflict => Err(Told::problem(409, "conflict").with("actual", there)),
        }
    }

    fn create_by_push(&mut self, spot: &Spot, body: &Value) -> Told {
        let mut value = body["new"].clone();
        if spot.concern == Concern::Index {
            value["rev"] = json!(0);
        }
        let Some(entity) = self.entity(&spot.record) else {
            self.create_ledger(&spot.record, None);
            self.concerns.put(spot, value.clone());
            return Told::new(200, json!({ "status": "updated", "value": value }));
        };
        let there = self.concerns.value(spot);
        let has = self.has(spot) == Some(true);
        if has && !entity.retracted && there["id"] == value["id"] && there["t"] == value["t"] {
            Told::new(200, json!({ "status": "updated", "value": there, "replayed": true }))
        } else if !has {
            Told::problem(409, "wrong-kind")
        } else if entity.retracted {
            Told::problem(410, "retracted")
        } else {
            Told::problem(409, "conflict").with("actual", there)
        }
    }

    fn lease(&mut self, record: &str, wanted: &Value) -> Told {
        let (name, holder) = (wanted["name"].as_str().unwrap(), wanted["holder"].as_str().unwrap());
        match self.entity(record) {
            None => return Told::problem(404, "unknown-record"),
            Some(Entity { retracted: true, .. }) => return Told::problem(410, "retracted"),
            Some(_) => {}
        }
        let lease = self.concerns.lease(record);
        if wanted.get("token").is_some() {
            if !self.concerns.holds(record, wanted) {
                return Told::problem(409, "lease-lost");
            }
            self.concerns.extend(record, None);
        } else if lease.is_some_and(|(_, other)| other != holder) {
            return Told::problem(409, "lease-held");
        } else {
            self.concerns.take(record, name, holder, None);
        }
        Told::new(200, json!({ "token": self.concerns.token(record) }))
    }

    fn transact(&mut self, operations: &[Value]) -> Told {
        let told: Vec<Told> = operations.iter().map(|operation| self.operation(operation)).collect();
        let shown = |told: &Told| match (told.status, told.members["type"].as_str()) {
            (200, _) if told.members["status"] == "stale" => {
                json!({ "status": "stale", "actual": told.members["value"] })
            }
            (200, _) => told.members.clone(),
            (_, kind) => {
                let mut shown = json!({ "status": kind.unwrap().rsplit('/').next().unwrap() });
                if let Some(actual) = told.members.get("actual") {
                    shown["actual"] = actual.clone();
                }
                shown
            }
        };
        if told.iter().any(Told::refuses) {
            let results: Vec<Value> = told
                .iter()
                .map(|told| if told.refuses() { shown(told) } else { json!({ "status": "passed" }) })
                .collect();
            return Told::problem(409, "transaction-refused").with("results", json!(results));
        }
        for operation in operations.iter().filter(|operation| operation["op"] != "check") {
            let spot = spot_of(operation);
            if let Verdict::Applies(value) = self.concerns.judge(&spot, operation) {
                self.concerns.put(&spot, value);
            }
        }
        Told::new(200, json!({ "results": told.iter().map(shown).collect::<Vec<_>>() }))
    }

    fn operation(&self, operation: &Value) -> Told {
        let spot = spot_of(operation);
        if operation["op"] != "check" {
            return self.result(&spot, operation).unwrap_or_else(|refused| refused);
        }
        match self.entity(&spot.record) {
            None => Told::problem(404, "unknown-record"),
            Some(entity) if entity.source_type.is_some() && spot.concern == Concern::Head => {
                Told::problem(409, "wrong-kind")
            }
            Some(_) if self.concerns.expected_holds(&spot, &operation["expected"]) => {
                Told::new(200, json!({ "status": "passed" }))
            }
            Some(_) => Told::problem(409, "conflict").with("actual", self.concerns.value(&spot)),
        }
    }
}

// ---- what is asked ----

/// Numbers from which a request is made.
type Dice = [u8; 12];

/// Takes the numbers of a throw one after the other; small numbers make simple requests.
struct Throw<'a> {
    dice: &'a Dice,
    next: usize,
}

impl Throw<'_> {
    fn below(&mut self, sides: usize) -> usize {
        let number = usize::from(self.dice[self.next % self.dice.len()]);
        self.next += 1;
        number % sides
    }

    fn of<T: Copy>(&mut self, choice: &[T]) -> T {
        choice[self.below(choice.len())]
    }
}

fn commit(kind: &str, number: i64, t: i64) -> Value {
    json!({ "id": id_of(&format!("{kind} {number}")).as_str(), "t": t.max(1) })
}

impl Model {
    fn transition(&self, dice: &Dice) -> Transition {
        let mut throw = Throw { dice, next: 0 };
        // Mostly what is common, and mostly to few records, so that requests meet.
        let mut kind = throw.below(64);
        let ledger = throw.of(&LEDGERS);
        let source = throw.of(&SOURCES);
        let any = if throw.below(4) == 0 { source } else { ledger };
        if self.entity(any).is_none() && throw.below(4) > 0 {
            // There is little to be seen where there is no record.
            kind = match any {
                _ if any == source => 12,
                "P.a:dev" | "P.a:exp" => 8,
                _ => 0,
            };
        }
        let post = |path: String, body: Value, what| (Method::POST, path, Some(body), what);
        let (method, path, body, what) = match kind {
            0..8 => {
                let head = if throw.below(4) > 0 { commit("head", self.numbers, 1) } else { Value::Null };
                let config = if throw.below(3) == 0 { json!({ "n": self.numbers }) } else { Value::Null };
                let mut body = json!({ "address": ledger });
                for (member, value) in [("head", &head), ("config", &config)] {
                    if !value.is_null() {
                        body[member] = value.clone();
                    }
                }
                post("/v1/ledgers".into(), body, What::Create { address: ledger.into(), head, config })
            }
            8..12 => {
                let (branch, from) = throw.of(&[("dev", "main"), ("exp", "main"), ("exp", "dev"), ("main", "dev")]);
                let mut body = json!({ "name": "P.a", "branch": branch, "source": from });
                let at = if throw.below(4) == 0 { commit("head", self.numbers, 2) } else { Value::Null };
                if !at.is_null() {
                    body["at"] = at.clone();
                }
                let (branch, source) = (format!("P.a:{branch}"), format!("P.a:{from}"));
                post("/v1/branches".into(), body, What::Branch { branch, source, at })
            }
            12..20 => self.publication(&mut throw, source, any),
            20..23 => post(format!("/v1/retractions/{any}"), json!({ "reason": "why" }), What::Retract(any.into())),
            23..26 => post(format!("/v1/restorations/{any}"), json!({}), What::Restore(any.into())),
            26..29 => (Method::DELETE, format!("/v1/records/{any}"), None, What::Purge(any.into())),
            29..31 => (Method::DELETE, format!("/v1/branches/{any}"), None, What::Drop(any.into())),
            31..33 => {
                let unborn = json!({ "id": null, "t": 0 });
                let head = if throw.below(2) == 0 { unborn.clone() } else { commit("head", self.numbers, 1) };
                let index = if throw.below(2) == 0 { unborn } else { commit("index", self.numbers, 1) };
                let body = json!({ "head": head, "index": index });
                post(format!("/v1/resets/{any}"), body, What::Reset { address: any.into(), head, index })
            }
            33..39 => self.lease_request(&mut throw, any),
            39..44 => self.transaction(&mut throw),
            44..48 if self.last.as_ref().is_some_and(Transition::is_remembered) => {
                let last = self.last.clone().unwrap();
                (last.method, last.path, last.body, What::Again)
            }
            _ => self.push(&mut throw, any),
        };
        let trouble = match throw.below(16) {
            1 => Trouble::Busy,
            2 => Trouble::RequestCut,
            3 => Trouble::ReplyCut,
            4 => Trouble::ReplyCutAndTokenForgotten,
            5 => Trouble::ErrorButDone,
            _ => Trouble::None,
        };
        Transition { method, path, body, what, trouble }
    }

    fn publication(&self, throw: &mut Throw<'_>, source: &str, other: &str) -> Asking {
        // Now and then at the address of something else.
        let address = if throw.below(8) == 0 { other } else { source };
        let source_type = if throw.below(8) == 0 { "f:VectorIndex" } else { "f:Bm25Index" };
        let config = json!({ "n": self.numbers });
        let mut body = json!({ "source_type": source_type, "config": config });
        let mut dependencies = None;
        if throw.below(4) > 0 {
            let mask = throw.below(64);
            // Mostly what there is, now and then something that is not there.
            let there = |target| self.entity(target).is_some_and(|entity| !entity.retracted);
            let wanted: Vec<String> = addresses()
                .enumerate()
                .filter(|(at, target)| mask >> at & 1 == 1 && *target != address && (there(target) || mask % 9 == *at))
                .map(|(_, target)| target.to_owned())
                .collect();
            body["dependencies"] = json!(wanted);
            dependencies = Some(wanted);
        }
        let expected_v = match throw.below(4) {
            0 => self.value(address, Concern::Config)["v"].clone(),
            1 => json!(throw.below(3)),
            _ => Value::Null,
        };
        if !expected_v.is_null() {
            body["expected_v"] = expected_v.clone();
        }
        let (address, source_type) = (address.to_owned(), source_type.to_owned());
        let path = format!("/v1/graph-sources/{address}");
        (Method::PUT, path, Some(body), What::Publish { address, source_type, config, dependencies, expected_v })
    }

    fn push_body(&self, throw: &mut Throw<'_>, spot: &Spot) -> Value {
        let there = self.concerns.value(spot);
        match spot.concern {
            Concern::Head | Concern::Index => {
                let index = spot.concern == Concern::Index;
                let mut expected = json!({ "id": there["id"], "t": there["t"] });
                if index {
                    expected["rev"] = there["rev"].clone();
                }
                let t = there["t"].as_i64().unwrap() + throw.of(&[1, 1, 2, 0, -1]);
                let mut new = commit(spot.concern.name(), self.numbers, t);
                if throw.below(12) == 1 && !there["id"].is_null() {
                    new = json!({ "id": there["id"], "t": there["t"] });
                }
                match throw.below(6) {
                    0 | 1 => json!({ "new": new }),
                    2 if index => json!({ "new": new, "allow_equal": true }),
                    3 => json!({ "new": new, "expected": commit(spot.concern.name(), 0, t - 1) }),
                    _ => json!({ "new": new, "expected": expected }),
                }
            }
            Concern::Status | Concern::Config => {
                let mut expected = json!({ "v": there["v"] });
                match throw.below(4) {
                    0 if there["payload"].is_object() => expected["payload"] = there["payload"].clone(),
                    1 => expected["v"] = json!(there["v"].as_i64().unwrap() + 1),
                    _ => {}
                }
                let payload = match spot.concern {
                    Concern::Status => json!({ "state": throw.of(&["ready", "syncing"]), "n": self.numbers }),
                    _ => json!({ "n": self.numbers }),
                };
                let mut new = json!({ "payload": payload });
                if throw.below(6) == 0 {
                    new["v"] = json!((there["v"].as_i64().unwrap() + throw.of(&[3, 1, 0])).max(1));
                }
                json!({ "expected": expected, "new": new })
            }
        }
    }

    fn claim(&self, throw: &mut Throw<'_>, record: &str) -> Value {
        let (name, holder) = self.concerns.lease(record).unwrap_or(("index_lock".into(), "h0".into()));
        let token = self.concerns.token(record) - throw.of(&[0, 0, 0, 1]);
        json!({ "name": name, "holder": holder, "token": token.max(1) })
    }

    fn push(&self, throw: &mut Throw<'_>, record: &str) -> Asking {
        let spot = Spot::new(record, throw.of(&Concern::ALL));
        let mut body = self.push_body(throw, &spot);
        let is_ref = matches!(spot.concern, Concern::Head | Concern::Index);
        if throw.below(5) == 0 {
            body["lease"] = self.claim(throw, record);
        } else if is_ref && throw.below(6) == 0 && body.get("allow_equal").is_none() {
            body["expected"] = Value::Null;
        }
        let path = format!("/v1/{}/{record}", spot.concern.path());
        (Method::PUT, path, Some(body.clone()), What::Concern(Asked::Push(spot, body)))
    }

    fn lease_request(&self, throw: &mut Throw<'_>, record: &str) -> Asking {
        let path = format!("/v1/leases/{record}");
        let mut claim = self.claim(throw, record);
        match throw.below(4) {
            0 => {
                let [name, holder] = ["name", "holder"].map(|member| claim[member].as_str().unwrap());
                let path = format!("{path}?name={name}&holder={holder}&token={}", claim["token"]);
                (Method::DELETE, path, None, What::Concern(Asked::Release(record.into(), claim)))
            }
            1 => {
                claim["ttl_seconds"] = json!(600);
                (Method::PUT, path, Some(claim.clone()), What::Concern(Asked::Lease(record.into(), claim)))
            }
            _ => {
                let name = throw.of(&["index_lock", "reindex_lock", "maintenance_lock"]);
                let wanted = json!({ "name": name, "holder": throw.of(&["h0", "h1"]), "ttl_seconds": 600 });
                (Method::PUT, path, Some(wanted.clone()), What::Concern(Asked::Lease(record.into(), wanted)))
            }
        }
    }

    fn transaction(&self, throw: &mut Throw<'_>) -> Asking {
        let mut operations: Vec<Value> = Vec::new();
        let mut taken: Vec<Spot> = Vec::new();
        for _ in 0..1 + throw.below(3) {
            let spot = Spot::new(throw.of(&LEDGERS), throw.of(&Concern::ALL));
            if taken.contains(&spot) {
                continue;
            }
            let there = self.concerns.value(&spot);
            let operation = if throw.below(4) == 0 {
                let expected = match spot.concern {
                    Concern::Head | Concern::Index => json!({ "id": there["id"], "t": there["t"] }),
                    Concern::Status | Concern::Config => json!({ "v": there["v"] }),
                };
                json!({ "op": "check", "address": spot.record, "concern": spot.concern.name(), "expected": expected })
            } else {
                let mut body = self.push_body(throw, &spot);
                body["op"] = json!(format!("push_{}", spot.concern.name()));
                body["address"] = json!(spot.record);
                body
            };
            taken.push(spot);
            operations.push(operation);
        }
        let body = json!({ "operations": operations });
        (Method::POST, "/v1/transactions".into(), Some(body), What::Concern(Asked::Transaction(operations)))
    }
}

type Asking = (Method, String, Option<Value>, What);

impl Transition {
    /// Whether it leaves its identity in the items that it writes, and nothing else has to be read to repeat it.
    fn is_remembered(&self) -> bool {
        matches!(
            self.what,
            What::Concern(Asked::Push(..) | Asked::Lease(..) | Asked::Release(..) | Asked::Transaction(_))
        )
    }

    /// The request before, under the same key.
    pub(crate) fn is_repetition(&self) -> bool {
        matches!(self.what, What::Again)
    }
}

impl ReferenceStateMachine for Model {
    type State = Self;
    type Transition = Transition;

    fn init_state() -> BoxedStrategy<Self> {
        let concerns = Records::new(false, 0);
        let told = Told::new(0, json!({}));
        Just(Self { entities: BTreeMap::new(), concerns, told, last: None, numbers: 1 }).boxed()
    }

    fn transitions(state: &Self) -> BoxedStrategy<Transition> {
        let state = state.clone();
        any::<Dice>().prop_map(move |dice| state.transition(&dice)).boxed()
    }

    fn apply(mut state: Self, transition: &Transition) -> Self {
        state.told = Self::apply(&mut state, &transition.what);
        if !transition.is_repetition() {
            state.last = Some(transition.clone());
        }
        state.numbers += 1;
        state
    }

    fn preconditions(state: &Self, transition: &Transition) -> bool {
        // A repetition is one of the request just before; shrinking may have taken that away.
        !transition.is_repetition()
            || state.last.as_ref().is_some_and(|last| {
                last.is_remembered() && last.path == transition.path && last.body == transition.body
            })
    }
}
