//! The requests of a sequence, made from numbers and from what the records hold at that time.

use std::collections::BTreeMap;

use http::Method;
use nameservice_tests::{
    cids::{id_for, id_of},
    prelude::*,
};

/// What every name begins with; each sequence replaces it by a prefix of its own.
pub(crate) const PREFIX: &str = "P.";
const LEDGERS: [&str; 4] = ["P.a:main", "P.b:main", "P.a:dev", "P.a:exp"];
const SOURCES: [&str; 2] = ["P.s:main", "P.t:main"];
const CONCERNS: [&str; 4] = ["head", "index", "status", "config"];

pub(crate) fn addresses() -> impl Iterator<Item = &'static str> {
    LEDGERS.into_iter().chain(SOURCES)
}

/// Numbers from which a request is made. The last two decide about its repetition and its fault.
pub(crate) type Dice = [u8; 12];

/// One request.
#[derive(Clone, Debug)]
pub(crate) struct Ask {
    pub(crate) method: Method,
    pub(crate) path: String,
    pub(crate) body: Option<Value>,
}

impl Ask {
    fn new(method: Method, path: String, body: Option<Value>) -> Self {
        Self { method, path, body }
    }

    /// Whether it leaves its identity in the items that it writes, and nothing else has to be read to repeat it.
    pub(crate) fn is_remembered(&self) -> bool {
        ["/v1/heads/", "/v1/indexes/", "/v1/statuses/", "/v1/configs/", "/v1/leases/", "/v1/transactions"]
            .iter()
            .any(|path| self.path.starts_with(path))
    }
}

/// Takes the numbers of a throw one after the other; small numbers make simple requests.
struct Throw<'a> {
    dice: &'a [u8],
    next: usize,
}

impl Throw<'_> {
    fn below(&mut self, sides: usize) -> usize {
        let number = usize::from(self.dice[self.next % self.dice.len()]) + self.next / self.dice.len();
        self.next += 1;
        number % sides
    }

    fn of<T: Copy>(&mut self, choice: &[T]) -> T {
        choice[self.below(choice.len())]
    }
}

/// What the records hold, as the embedded service shows it.
#[derive(Default)]
pub(crate) struct Seen {
    pub(crate) records: BTreeMap<&'static str, Value>,
    /// The last token of each record.
    tokens: BTreeMap<String, i64>,
    pub(crate) steps: usize,
}

impl Seen {
    fn record(&self, address: &str) -> Option<&Value> {
        self.records.get(address).filter(|record| !record.is_null())
    }

    fn is_live(&self, address: &str) -> bool {
        self.record(address).is_some_and(|record| record["retracted"] == false)
    }

    /// The current value of a concern, or the one that it begins with.
    fn value(&self, address: &str, concern: &str) -> Value {
        let value = self.record(address).map_or(Value::Null, |record| record[concern].clone());
        if !value.is_null() {
            return value;
        }
        match concern {
            "head" => json!({ "id": null, "t": 0 }),
            "index" => json!({ "id": null, "t": 0, "rev": 0 }),
            "status" => json!({ "v": 1, "payload": { "state": "ready" } }),
            _ => json!({ "v": 0, "payload": null }),
        }
    }

    /// Notes what an answer says and no record shows.
    pub(crate) fn note(&mut self, ask: &Ask, answer: &Answer) {
        if let (Some(address), Some(token)) = (ask.path.strip_prefix("/v1/leases/"), answer.body["token"].as_i64()) {
            self.tokens.insert(address.to_owned(), token);
        }
    }

    fn number(&self) -> i64 {
        i64::try_from(self.steps).unwrap()
    }

    fn commit(&self, kind: &str, t: i64) -> Value {
        let concern = if kind == "graph" { "index" } else { kind };
        json!({ "id": id_for(concern, &format!("{kind} {}", self.steps)).as_str(), "t": t.max(1) })
    }

    /// The next request.
    pub(crate) fn ask(&self, dice: &Dice) -> Ask {
        let mut throw = Throw { dice: &dice[..10], next: 0 };
        // Mostly common requests, and mostly to few records, so that requests collide.
        let mut kind = throw.below(64);
        let ledger = throw.of(&LEDGERS);
        let source = throw.of(&SOURCES);
        let any = if throw.below(4) == 0 { source } else { ledger };
        if self.record(any).is_none() && throw.below(4) > 0 {
            // A request about a record that is missing shows little.
            kind = match any {
                _ if any == source => 12,
                "P.a:dev" | "P.a:exp" => 8,
                _ => 0,
            };
        }
        let post = |path: String, body: Value| Ask::new(Method::POST, path, Some(body));
        match kind {
            0..8 => {
                let mut body = json!({ "address": ledger });
                if throw.below(4) > 0 {
                    body["head"] = self.commit("head", 1);
                }
                if throw.below(3) == 0 {
                    body["config"] = json!({ "n": self.number() });
                }
                post("/v1/ledgers".into(), body)
            }
            8..12 => {
                let (branch, from) = throw.of(&[("dev", "main"), ("exp", "main"), ("exp", "dev"), ("main", "dev")]);
                let mut body = json!({ "name": "P.a", "branch": branch, "source": from });
                if throw.below(4) == 0 {
                    body["at"] = self.commit("head", 2);
                }
                post("/v1/branches".into(), body)
            }
            12..20 => self.publication(&mut throw, source, any),
            20..23 => post(format!("/v1/retractions/{any}"), json!({ "reason": "why" })),
            23..26 => post(format!("/v1/restorations/{any}"), json!({})),
            26..29 => Ask::new(Method::DELETE, format!("/v1/records/{any}"), None),
            29..31 => Ask::new(Method::DELETE, format!("/v1/branches/{any}"), None),
            31..33 => {
                let unborn = json!({ "id": null, "t": 0 });
                let head = if throw.below(2) == 0 { unborn.clone() } else { self.commit("head", 1) };
                let index = if throw.below(2) == 0 { unborn } else { self.commit("index", 1) };
                post(format!("/v1/resets/{any}"), json!({ "head": head, "index": index }))
            }
            33..36 => {
                // Mostly removes the mark, so that records can be retracted and purged.
                let body = json!({ "protected": throw.below(3) == 0 });
                Ask::new(Method::PUT, format!("/v1/protections/{any}"), Some(body))
            }
            36..41 => self.lease(&mut throw, any),
            41..47 => self.transaction(&mut throw),
            _ => self.push(&mut throw, any),
        }
    }

    fn publication(&self, throw: &mut Throw<'_>, source: &str, other: &str) -> Ask {
        // Now and then at the address of something else.
        let address = if throw.below(8) == 0 { other } else { source };
        let source_type = if throw.below(8) == 0 { "f:VectorIndex" } else { "f:Bm25Index" };
        let mut body = json!({ "source_type": source_type, "config": { "n": self.number() } });
        if throw.below(4) > 0 {
            let mask = throw.below(64);
            // Mostly what exists, now and then something that does not.
            let wanted: Vec<&str> = addresses()
                .enumerate()
                .filter(|(at, target)| {
                    mask >> at & 1 == 1 && *target != address && (self.is_live(target) || mask % 9 == *at)
                })
                .map(|(_, target)| target)
                .collect();
            body["dependencies"] = json!(wanted);
        }
        match throw.below(4) {
            0 => body["expected_v"] = self.value(address, "config")["v"].clone(),
            1 => body["expected_v"] = json!(throw.below(3)),
            _ => {}
        }
        Ask::new(Method::PUT, format!("/v1/graph-sources/{address}"), Some(body))
    }

    fn push_body(&self, throw: &mut Throw<'_>, address: &str, concern: &str) -> Value {
        let current = self.value(address, concern);
        if let "head" | "index" = concern {
            let mut expected = json!({ "id": current["id"], "t": current["t"] });
            if concern == "index" {
                expected["rev"] = current["rev"].clone();
            }
            let t = current["t"].as_i64().unwrap() + throw.of(&[1, 1, 2, 0, -1]);
            let mut new = self.commit(concern, t);
            if throw.below(12) == 1 && !current["id"].is_null() {
                new = json!({ "id": current["id"], "t": current["t"] });
            }
            if concern == "index" && throw.below(4) == 1 {
                let name = throw.of(&["g", "h"]);
                let graph = self.commit("graph", throw.of(&[1, 2, 3]));
                new["graphs"] = json!({ name: if throw.below(4) == 1 { Value::Null } else { graph } });
            }
            let form = throw.below(6);
            if form == 4 {
                // Only an index has one.
                expected.as_object_mut().unwrap().remove("rev");
            }
            return match form {
                0 | 1 => json!({ "new": new }),
                2 if concern == "index" => json!({ "new": new, "allow_equal": true }),
                3 => json!({ "new": new, "expected": { "id": id_of("another").as_str(), "t": (t - 1).max(1) } }),
                _ => json!({ "new": new, "expected": expected }),
            };
        }
        let mut expected = json!({ "v": current["v"] });
        match throw.below(4) {
            0 if current["payload"].is_object() => {
                let mut payload = current["payload"].as_object().unwrap().clone();
                payload.retain(|name, _| !name.ends_with("_lock"));
                if payload.get("state") != Some(&json!("retracted")) {
                    expected["payload"] = Value::Object(payload);
                }
            }
            1 => expected["v"] = json!(current["v"].as_i64().unwrap() + 1),
            _ => {}
        }
        let payload = match concern {
            "status" => json!({ "state": throw.of(&["ready", "syncing", "error"]), "n": self.number() }),
            _ => json!({ "n": self.number() }),
        };
        let mut new = json!({ "payload": payload });
        if throw.below(6) == 0 {
            new["v"] = json!((current["v"].as_i64().unwrap() + throw.of(&[3, 1, 0])).max(1));
        }
        json!({ "expected": expected, "new": new })
    }

    /// A claim to the lease of a record: mostly the current one.
    fn claim(&self, throw: &mut Throw<'_>, address: &str) -> Value {
        let payload = self.value(address, "status")["payload"].clone();
        let lease = payload.as_object().and_then(|members| members.iter().find(|(name, _)| name.ends_with("_lock")));
        let (name, holder) = match lease {
            Some((name, lease)) => (name.clone(), lease["holder"].clone()),
            None => ("index_lock".to_owned(), json!("h0")),
        };
        let token = self.tokens.get(address).copied().unwrap_or(1) - throw.of(&[0, 0, 0, 1]);
        json!({ "name": name, "holder": holder, "token": token.max(1) })
    }

    fn push(&self, throw: &mut Throw<'_>, address: &str) -> Ask {
        let (concern, path) =
            throw.of(&[("head", "heads"), ("index", "indexes"), ("status", "statuses"), ("config", "configs")]);
        let mut body = self.push_body(throw, address, concern);
        if throw.below(5) == 0 {
            body["lease"] = self.claim(throw, address);
        } else if matches!(concern, "head" | "index") && throw.below(6) == 0 && body.get("allow_equal").is_none() {
            body["expected"] = Value::Null;
        }
        Ask::new(Method::PUT, format!("/v1/{path}/{address}"), Some(body))
    }

    fn lease(&self, throw: &mut Throw<'_>, address: &str) -> Ask {
        let path = format!("/v1/leases/{address}");
        let mut claim = self.claim(throw, address);
        match throw.below(4) {
            0 => {
                let [name, holder] = ["name", "holder"].map(|member| claim[member].as_str().unwrap());
                let query = format!("{path}?name={name}&holder={holder}&token={}", claim["token"]);
                Ask::new(Method::DELETE, query, None)
            }
            1 => {
                claim["ttl_seconds"] = json!(600);
                Ask::new(Method::PUT, path, Some(claim))
            }
            _ => {
                let name =
                    throw.of(&["index_lock", "reindex_lock", "maintenance_lock", "migration_lock", "vacuum_lock"]);
                let wanted = json!({ "name": name, "holder": throw.of(&["h0", "h1"]), "ttl_seconds": 600 });
                Ask::new(Method::PUT, path, Some(wanted))
            }
        }
    }

    fn transaction(&self, throw: &mut Throw<'_>) -> Ask {
        let mut operations: Vec<Value> = Vec::new();
        let mut taken = Vec::new();
        for _ in 0..1 + throw.below(3) {
            let (address, concern) = (throw.of(&LEDGERS), throw.of(&CONCERNS));
            if taken.contains(&(address, concern)) {
                continue;
            }
            taken.push((address, concern));
            let current = self.value(address, concern);
            operations.push(if throw.below(4) == 0 {
                let expected = match concern {
                    "head" | "index" => json!({ "id": current["id"], "t": current["t"] }),
                    _ => json!({ "v": current["v"] }),
                };
                json!({ "op": "check", "address": address, "concern": concern, "expected": expected })
            } else {
                let mut body = self.push_body(throw, address, concern);
                body["op"] = json!(format!("push_{concern}"));
                body["address"] = json!(address);
                body
            });
        }
        Ask::new(Method::POST, "/v1/transactions".into(), Some(json!({ "operations": operations })))
    }
}
