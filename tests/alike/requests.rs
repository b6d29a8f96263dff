//! The requests of a sequence: valid ones made from what the records hold, and damaged, repeated and odd ones.

use http::Method;
use nameservice_tests::{
    cids::{id_for, id_of},
    prelude::*,
};
use rand::{RngExt as _, SeedableRng as _, rngs::StdRng, seq::IndexedRandom as _};

use super::places::{Request, Step};
use crate::{
    hostile::bytes::replaced,
    model::requests::{Ask, Dice, Seen, addresses},
};

/// Every integer of interest, and what is none.
pub(super) const NUMBERS: [&str; 19] = [
    "0",
    "1",
    "2147483648",
    "9007199254740991",
    "9007199254740992",
    "9223372036854775807",
    "9223372036854775808",
    "18446744073709551616",
    "-1",
    "-0",
    "1.0",
    "1.5",
    "1152921504606846976.0",
    "1e400",
    "1e-400",
    "+5",
    "NaN",
    "text",
    "",
];

/// Addresses in a path, some of them none.
const ODD_ADDRESSES: [&str; 20] = [
    "P.a",
    "P.a%3Amain",
    "P%2Ea:main",
    "P.a:",
    ":main",
    "P.a:main:x",
    "P.a@main",
    "..:main",
    "P.a/../b:main",
    "P.a//b:main",
    "%20:main",
    "P.a:%20",
    "P.a%00:main",
    "P.%FF:main",
    "P.a*",
    "P.a%3Fb",
    "P.n/o:p/q",
    "P.%C3%BC%F0%9F%A6%80:main",
    "P.a%E2%80%AEb:main",
    "P.zz:main",
];

const KINDS: [&str; 3] = ["ledger", "graph_source", "table"];
const CONCERNS: [&str; 6] = ["head", "index", "status", "config", "meta", "heads"];

/// Draws requests. The same seed and the same answers draw the same.
pub(super) struct Maker {
    random: StdRng,
    pub(super) seen: Seen,
    past: Vec<Request>,
    /// Whether files are among the backends: then mostly what they can do is asked for.
    files: bool,
}

impl Maker {
    pub(super) fn new(seed: u64, files: bool) -> Self {
        Self { random: StdRng::seed_from_u64(seed), seen: Seen::default(), past: Vec::new(), files }
    }

    pub(super) fn step(&mut self) -> Step {
        self.seen.steps += 1;
        let request = match self.random.random_range(0..100) {
            0..3 => return Step::Later(self.of(&[20, 400, 4_000, 20_000])),
            3..15 => match self.repeated() {
                Some(request) => return Step::Send(request),
                None => self.valid(),
            },
            15..57 => self.valid(),
            57..65 => self.damaged(),
            65..69 => self.elsewhere(),
            69..72 => self.transaction(),
            72..76 => self.payload(),
            76..80 => self.fluree(),
            _ => self.read(),
        };
        let request = if request.is_write() { self.with_key(request) } else { request };
        if request.is_write() && request.header("idempotency-key").is_some() {
            self.past.push(request.clone());
        }
        Step::Send(request)
    }

    fn of<T: Clone>(&mut self, choice: &[T]) -> T {
        choice.choose(&mut self.random).unwrap().clone()
    }

    fn chance(&mut self, one_in: u32) -> bool {
        self.random.random_ratio(1, one_in)
    }

    fn address(&mut self) -> &'static str {
        let all: Vec<_> = addresses().collect();
        self.of(&all)
    }

    fn with_key(&mut self, request: Request) -> Request {
        let key = match self.random.random_range(0..20) {
            0..6 => return request,
            6 if !self.past.is_empty() => self.recent().header("idempotency-key").unwrap().to_owned(),
            7 => {
                let long = "k".repeat(129);
                self.of(&["", "a b", &long, "\u{fc}", "k\tk"].map(str::to_owned))
            }
            _ => format!("key-{}", self.seen.steps),
        };
        request.with_header("idempotency-key", key)
    }

    /// One of the last requests that had a key.
    fn recent(&mut self) -> Request {
        let from = self.past.len().saturating_sub(10);
        let recent = self.past[from..].to_vec();
        self.of(&recent)
    }

    /// An earlier request again: immediately, or after others; sometimes with another query or body under the same key.
    fn repeated(&mut self) -> Option<Request> {
        if self.past.is_empty() {
            return None;
        }
        let mut request = if self.chance(3) { self.past.last().unwrap().clone() } else { self.recent() };
        match self.random.random_range(0..12) {
            0 => {
                request.path =
                    format!("{}{}unknown=1", request.path, if request.path.contains('?') { '&' } else { '?' })
            }
            1 => request.body = request.body.map(|body| format!("{body} ")),
            2 => {
                let address = self.address();
                let path = request.path.split_once("P.").map(|(path, _)| format!("{path}{address}"));
                request.path = path.unwrap_or(request.path);
            }
            _ => {}
        }
        Some(request)
    }

    fn valid(&mut self) -> Request {
        loop {
            let dice: Dice = self.random.random();
            let Ask { method, path, body } = self.seen.ask(&dice);
            let body = body.map(|body| body.to_string());
            let beyond = path == "/v1/transactions" || body.as_ref().is_some_and(|body| body.contains("\"graphs\""));
            if !(self.files && beyond) {
                return Request { method, path, headers: Vec::new(), body };
            }
        }
    }

    /// A valid request with something wrong in it.
    fn damaged(&mut self) -> Request {
        let mut request = self.valid();
        let body: Value = request.body.as_deref().map_or(Value::Null, |body| serde_json::from_str(body).unwrap());
        match self.random.random_range(0..14) {
            0..5 if request.body.is_some() => {
                let text = replaced(&body, &mut self.random);
                request.body = Some(String::from_utf8(text).unwrap());
            }
            5..8 if request.body.is_some() => request.body = Some(self.restructured(&body)),
            8 => request.body = None,
            9 => request.method = self.of(&[Method::PUT, Method::POST, Method::DELETE, Method::GET, Method::PATCH]),
            10 => {
                let kind = self.of(&["text/plain", "application/json; charset=utf-8", "application/ld+json", ""]);
                request = request.with_header("content-type", kind);
            }
            11 => request.path = format!("{}?limit=1", request.path),
            12 => request.body = Some(request.body.unwrap_or_default() + "{"),
            _ => {
                // Another number in place of one.
                let text = request.body.take().unwrap_or_default();
                let number = self.of(&NUMBERS);
                let t = [":1", ":2", ":3"].into_iter().find(|t| text.contains(t)).unwrap_or("\"new\":");
                request.body = Some(text.replacen(t, &format!(":{number}"), 1)).filter(|text| !text.is_empty());
            }
        }
        request
    }

    /// An object with a member left out, added, or twice.
    fn restructured(&mut self, body: &Value) -> String {
        let Some(members) = body.as_object() else { return body.to_string() };
        let mut members: Vec<(String, String)> =
            members.iter().map(|(name, value)| (name.clone(), value.to_string())).collect();
        match self.random.random_range(0..4) {
            0 if !members.is_empty() => {
                let at = self.random.random_range(0..members.len());
                members.remove(at);
            }
            1 => members.push(("extra".to_owned(), "1".to_owned())),
            2 if !members.is_empty() => {
                let again = self.of(&members);
                members.push(again);
            }
            _ => {
                for (_, value) in &mut members {
                    *value = if self.chance(2) { "null".to_owned() } else { value.replacen('{', "{\"extra\":1,", 1) };
                }
            }
        }
        let members: Vec<_> = members.iter().map(|(name, value)| format!("{}:{value}", json!(name))).collect();
        format!("{{{}}}", members.join(","))
    }

    /// A request at an address that is written in another way, or is none.
    fn elsewhere(&mut self) -> Request {
        let mut request = self.valid();
        let address = self.of(&ODD_ADDRESSES);
        if let Some((path, _)) = request.path.split_once("P.") {
            request.path = format!("{path}{address}");
        } else if let Some(body) = &mut request.body {
            *body = body.replacen("P.a", &address.replace('%', "\\u00"), 1);
        }
        request
    }

    /// A transaction with many operations, some of which may fail.
    fn transaction(&mut self) -> Request {
        let mut operations = Vec::new();
        let count = self.of(&[0, 1, 2, 5, 24, 47, 48, 49]);
        let mut parts: Vec<(String, &str)> = addresses()
            .flat_map(|address| ["head", "index", "status", "config"].map(|concern| (address.to_owned(), concern)))
            .collect();
        if count < 10 {
            let from = self.random.random_range(0..parts.len());
            parts.rotate_left(from);
        }
        parts.extend((0..30).map(|n| (format!("P.u{n}:main"), "head")));
        for (n, (address, concern)) in parts.into_iter().take(count).enumerate() {
            let record = self.seen.records.get(address.as_str()).cloned().unwrap_or_default();
            let current = &record[concern];
            let t = current["t"].as_i64().unwrap_or(0);
            let is_check = self.chance(3);
            let mut operation = match concern {
                "head" | "index" => json!({ "expected": { "id": current["id"], "t": t } }),
                _ => json!({ "expected": { "v": current["v"].as_i64().unwrap_or(1) } }),
            };
            operation["address"] = json!(address);
            if is_check {
                operation["op"] = json!("check");
                operation["concern"] = json!(concern);
            } else {
                operation["op"] = json!(format!("push_{concern}"));
                let id = id_for(concern, &format!("{concern} {} {n}", self.seen.steps));
                operation["new"] = match concern {
                    "head" | "index" => json!({ "id": id.as_str(), "t": t + 1 }),
                    "status" => json!({ "payload": { "state": "ready", "n": n } }),
                    _ => json!({ "payload": { "n": n } }),
                };
            }
            operations.push(operation);
        }
        if self.chance(8) && operations.len() > 1 {
            let again = operations[0].clone();
            operations.push(again);
        }
        Request::new(Method::POST, "/v1/transactions").with_body(json!({ "operations": operations }))
    }

    /// A status, config or graph source with an odd payload.
    fn payload(&mut self) -> Request {
        let depth = self.of(&[28, 29, 30, 31, 60]);
        let odd = [
            "12345678901234567890123456789012345678".to_owned(),
            "123456789012345678901234567890123456789".to_owned(),
            "18446744073709551616".to_owned(),
            "9007199254740993".to_owned(),
            "1e125".to_owned(),
            "1e126".to_owned(),
            "1e-400".to_owned(),
            "1e-130".to_owned(),
            "1.10".to_owned(),
            "-0.0".to_owned(),
            "\"\\u0000\"".to_owned(),
            "\"\\ud800\"".to_owned(),
            "{\"\":1}".to_owned(),
            "{\"a\":1,\"a\":2}".to_owned(),
            "{}".to_owned(),
            "[]".to_owned(),
            "\"\"".to_owned(),
            format!("{}1{}", "{\"a\":".repeat(depth), "}".repeat(depth)),
            format!("{}1{}", "[".repeat(depth), "]".repeat(depth)),
            format!("\"{}\"", "x".repeat(20_000)),
        ];
        let value = self.of(&odd);
        let address = self.address();
        let v =
            |concern: &str| self.seen.records.get(address).map_or(Value::Null, |record| record[concern]["v"].clone());
        let (status, config) = (v("status"), v("config"));
        let (path, body) = match self.random.random_range(0..5) {
            0 | 1 => (
                format!("/v1/statuses/{address}"),
                format!(r#"{{"expected":{{"v":{status}}},"new":{{"payload":{{"state":"s","x":{value}}}}}}}"#),
            ),
            2 => (
                format!("/v1/configs/{address}"),
                format!(r#"{{"expected":{{"v":{config}}},"new":{{"payload":{{"x":{value}}}}}}}"#),
            ),
            3 => (
                format!("/v1/statuses/{address}"),
                format!(r#"{{"expected":{{"v":{status}}},"new":{{"payload":{{"state":{value}}}}}}}"#),
            ),
            _ => (
                "/v1/graph-sources/P.s:main".to_owned(),
                format!(r#"{{"source_type":"f:Bm25Index","config":{{"x":{value}}}}}"#),
            ),
        };
        Request::new(Method::PUT, path).with_body(body)
    }

    fn fluree(&mut self) -> Request {
        let address = self.address();
        let base = self.of(&["/fluree", "/v1/fluree"]);
        let record = self.seen.records.get(address).cloned().unwrap_or_default();
        let (operation, concern) = self.of(&[("commit", "head"), ("index", "index"), ("init", ""), ("drop", "head")]);
        let request = Request::new(Method::POST, format!("{base}/nameservice/refs/{address}/{operation}"));
        if operation == "init" {
            return if self.chance(4) { request.with_body("{}") } else { request };
        }
        let current = &record[concern];
        let t = current["t"].as_i64().unwrap_or(0);
        let id = id_for(concern, &format!("{concern} {}", self.seen.steps));
        let new = json!({ "id": id.as_str(), "t": t + self.of(&[1, 1, 1, 2, 0, -1]) });
        let expected = match self.random.random_range(0..5) {
            0 => Value::Null,
            1 => json!({ "id": id_of("another").as_str(), "t": t.max(1) }),
            2 => json!({ "id": null, "t": 0 }),
            _ => json!({ "id": current["id"], "t": t }),
        };
        let mut body = json!({ "expected": expected, "new": new });
        if self.chance(6) {
            body.as_object_mut().unwrap().remove("expected");
        }
        if self.chance(8) {
            body["new"]["id"] = json!(self.of(&["", "bafy", "Qmabc", "fluree:commit:x"]));
        }
        request.with_body(body)
    }

    /// A parameter, sometimes with a value that it cannot have.
    fn parameter(&mut self, query: &mut Vec<String>, name: &str, values: &[&str]) {
        if self.chance(3) {
            let value = if self.chance(8) { self.of(&["", "%FF", "x", "0", "-1", "%00"]) } else { self.of(values) };
            query.push(format!("{name}={value}"));
        }
    }

    fn read(&mut self) -> Request {
        let address = self.address();
        let limits = ["1", "2", "1000", "1001", "0", "%2B5", "18446744073709551616"];
        let numbers: Vec<&str> = NUMBERS.to_vec();
        let mut query = Vec::new();
        let path = match self.random.random_range(0..24) {
            0..5 => {
                self.parameter(&mut query, "concerns", &["head", "head,index", "status", "meta", ""]);
                self.parameter(&mut query, "min_t", &["0", "1", "2", "99", "-1", "9007199254740992"]);
                self.parameter(&mut query, "min_v", &["1", "2", "99"]);
                self.parameter(&mut query, "concern", &CONCERNS);
                if self.chance(4) {
                    self.parameter(&mut query, "min_position", &["0", "1", "9007199254740991"]);
                }
                format!("/v1/records/{address}")
            }
            5..11 => {
                self.parameter(&mut query, "kind", &KINDS);
                self.parameter(&mut query, "name", &["P.a", "P.s", "P.", "P.a:main"]);
                self.parameter(&mut query, "prefix", &["P.", "P.a", "P.a:", "P.a:d", "Q"]);
                self.parameter(&mut query, "source_type", &["f:Bm25Index", "f:VectorIndex"]);
                self.parameter(&mut query, "state", &["ready", "retracted", "indexing", "error", "syncing"]);
                self.parameter(&mut query, "retracted", &["true", "false", "1"]);
                self.parameter(&mut query, "view", &["summary", "full", "all"]);
                self.parameter(&mut query, "limit", &limits);
                self.parameter(&mut query, "cursor", &["{cursor}", "{cursor}", "x"]);
                "/v1/records".to_owned()
            }
            11..13 => {
                self.parameter(&mut query, "prefix", &["P.", "P.a", "Q"]);
                self.parameter(&mut query, "limit", &limits);
                self.parameter(&mut query, "cursor", &["{cursor}", "x"]);
                "/v1/snapshot".to_owned()
            }
            13..15 => {
                self.parameter(&mut query, "limit", &limits);
                self.parameter(&mut query, "cursor", &["{cursor}", "x"]);
                format!("/v1/branches/{}", self.of(&["P.a", "P.b", "P.a:main", "P.none"]))
            }
            15..17 => {
                let concern = self.of(&CONCERNS);
                query.push(format!("concern={concern}"));
                self.parameter(&mut query, "after", &["0", "9007199254740991", "{position}"]);
                self.parameter(&mut query, "order", &["oldest", "newest", "x"]);
                self.parameter(&mut query, "limit", &limits);
                format!("/v1/history/{address}")
            }
            17..19 => {
                query.push(format!("address={address}"));
                query.push(format!("concern={}", self.of(&CONCERNS)));
                query.push("after=0".to_owned());
                self.parameter(&mut query, "limit", &limits);
                self.parameter(&mut query, "kind", &KINDS);
                self.parameter(&mut query, "source_type", &["f:Bm25Index"]);
                self.parameter(&mut query, "prefix", &["P.a"]);
                "/v1/changes".to_owned()
            }
            19 => return self.comparison(),
            20 => {
                let path = self.of(&["/v1/events", "/fluree/events"]);
                query.push(
                    self.of(&["after=-1", "all=maybe", "concern=none", "ledger=a:b:c", "kind=", "all=true"]).to_owned(),
                );
                path.to_owned()
            }
            21 => {
                self.parameter(&mut query, "q", &["P.a", "ready", "Bm25", "nothing"]);
                self.parameter(&mut query, "limit", &limits);
                "/v1/search".to_owned()
            }
            22 => {
                let base = self.of(&["/fluree", "/v1/fluree"]);
                match self.chance(3) {
                    true => format!("{base}/nameservice/snapshot"),
                    false => format!("{base}/storage/ns/{address}"),
                }
            }
            _ => {
                let paths =
                    ["/v1/health", "/v1/nothing", "/v1", "/v2/records", "/v1/records/", "/metric", "/v1/heads/P.a"];
                self.parameter(&mut query, "deep", &["true", "false"]);
                self.of(&paths).to_owned()
            }
        };
        if self.chance(20) {
            let name = self.of(&["after", "limit", "min_t", "wait", "min_position", "min_v", "before"]);
            // `+` is a space in a query.
            let number = self.of(&numbers[2..]).replace('+', "%2B");
            query.push(format!("{name}={number}"));
        }
        let method = if self.chance(30) { Method::HEAD } else { Method::GET };
        let query = if query.is_empty() { String::new() } else { format!("?{}", query.join("&")) };
        let request = Request::new(method, format!("{path}{query}"));
        if self.chance(10) { request.with_header("if-none-match", "{etag}") } else { request }
    }

    fn comparison(&mut self) -> Request {
        let mut subscriptions = Object::new();
        for address in addresses().chain(["P.u:main", "P.a"]) {
            if self.chance(2) {
                continue;
            }
            let record = self.seen.records.get(address).cloned().unwrap_or_default();
            let mut known = json!({});
            if self.chance(2) {
                known["commit_t"] = json!(record["head"]["t"].as_i64().unwrap_or(0) + self.of(&[0, 0, 1]));
            }
            if self.chance(2) {
                known["status_v"] = json!(record["status"]["v"].as_i64().unwrap_or(0));
            }
            if self.chance(4) {
                known["kind"] = json!(self.of(&KINDS));
            }
            if self.chance(10) {
                known["index_t"] = json!(self.of(&[-1_i64, 9_007_199_254_740_992]));
            }
            subscriptions.insert(address.to_owned(), known);
        }
        Request::new(Method::POST, "/v1/changes/compare").with_body(json!({ "subscriptions": subscriptions }))
    }

    /// Notes what the first backend answered.
    pub(super) fn note(&mut self, request: &Request, answer: &Answer) {
        let body = request.body.as_deref().and_then(|body| serde_json::from_str(body).ok());
        let Request { method, path, .. } = request.clone();
        self.seen.note(&Ask { method, path, body }, answer);
    }
}

#[test]
fn every_route_is_asked() {
    let mut maker = Maker::new(1, false);
    let mut asked = std::collections::BTreeSet::new();
    for _ in 0..20_000 {
        if let Step::Send(request) = maker.step() {
            asked.insert((request.method.to_string(), request.path.split('?').next().unwrap().to_owned()));
        }
    }
    let document = json!(nameservice_cli::routes::document());
    // Files, and the page that shows the document, are the same whatever the backend.
    let pages = ["/console", "/v1/docs", "/v1/openapi.json", "/.well-known/fluree.json"];
    for (path, operations) in document["paths"].as_object().unwrap() {
        let fixed = path.split('{').next().unwrap();
        for method in operations.as_object().unwrap().keys().filter(|method| *method != "parameters") {
            let hit = |(sent, to): &(String, String)| {
                sent.eq_ignore_ascii_case(method) && (to == path || path.contains('{') && to.starts_with(fixed))
            };
            assert!(pages.iter().any(|page| path.starts_with(page)) || asked.iter().any(hit), "{method} {path}");
        }
    }
}
