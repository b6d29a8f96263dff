//! A stand-in for OpenSearch that enforces what the engine of CI does not: bulk bodies are checked line by line, what was written
//! is found after a refresh, deleted versions are forgotten when a test says so, and items fail on demand. As in the real one, a write
//! to an index that is missing creates it, unless it requires an alias.
//!
//! It knows the requests and queries that the nameservice sends, and answers any other with 400.

use std::{
    collections::{BTreeMap, HashMap},
    net::SocketAddr,
    sync::{Arc, Mutex, MutexGuard},
};

use axum::{
    Router,
    body::Bytes,
    extract::State,
    http::{HeaderMap, Method, StatusCode, Uri},
    response::{IntoResponse as _, Response},
};
use nameservice_tests::prelude::*;

#[derive(Default)]
pub(super) struct Index {
    /// The one index: its name, and its aliases, mapping and settings.
    created: Option<(String, Value)>,
    /// What is stored, and its version; no document where it was deleted.
    docs: BTreeMap<String, (u64, Option<Value>)>,
    /// What searches see.
    searched: BTreeMap<String, Value>,
    /// By id of an item: the status that it is answered with, and how many times.
    faults: HashMap<String, (u16, usize)>,
    /// The status that whole requests are answered with.
    down: Option<u16>,
    pub(super) bulks: usize,
    pub(super) headers: Vec<HeaderMap>,
}

#[derive(Clone, Default)]
pub(super) struct Server(Arc<Mutex<Index>>);

impl Server {
    /// Starts it. It ends with the runtime.
    pub(super) async fn start() -> (Self, SocketAddr) {
        let server = Self::default();
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let router = Router::new().fallback(answer).with_state(server.clone());
        tokio::spawn(async move { axum::serve(listener, router).await });
        (server, address)
    }

    pub(super) fn index(&self) -> MutexGuard<'_, Index> {
        self.0.lock().unwrap()
    }

    /// The next items of this id are answered with this status.
    pub(super) fn fail(&self, id: &str, status: u16, times: usize) {
        self.index().faults.insert(id.to_owned(), (status, times));
    }

    /// All requests are answered with this status.
    pub(super) fn down(&self, status: Option<u16>) {
        self.index().down = status;
    }

    /// Time passes, and deleted versions are forgotten.
    pub(super) fn forget_deletes(&self) {
        self.index().docs.retain(|_, (_, document)| document.is_some());
    }
}

fn error(status: u16, kind: &str) -> Response {
    let body = json!({ "error": { "type": kind, "reason": kind }, "status": status });
    (StatusCode::from_u16(status).unwrap(), body.to_string()).into_response()
}

fn json(body: &Value) -> Response {
    body.to_string().into_response()
}

async fn answer(State(server): State<Server>, method: Method, uri: Uri, headers: HeaderMap, body: Bytes) -> Response {
    let mut index = server.index();
    index.headers.push(headers.clone());
    if let Some(status) = index.down {
        return error(status, "down");
    }
    let path = uri.path().strip_prefix("/names").expect("the index of the tests");
    match (method.as_str(), path) {
        ("PUT", "" | "-000001") if index.created.is_some() => error(400, "resource_already_exists_exception"),
        ("PUT", "" | "-000001") => {
            index.created = Some((format!("names{path}"), serde_json::from_slice(&body).unwrap()));
            json(&json!({ "acknowledged": true }))
        }
        ("POST", "/_bulk") if headers["content-type"] == "application/x-ndjson" => {
            index.bulk(&body, uri.query() == Some("require_alias=true"))
        }
        _ if !index.is_there() => error(404, "index_not_found_exception"),
        ("GET", "") => {
            let (name, created) = index.created.as_ref().unwrap();
            json(&json!({ name: created }))
        }
        ("POST", "/_refresh") => {
            index.refresh();
            json(&json!({ "_shards": { "failed": 0 } }))
        }
        ("POST", "/_search") => index.search(&serde_json::from_slice(&body).unwrap()),
        ("GET", document) if document.starts_with("/_doc/") => {
            let encoded = format!("id={}", &document["/_doc/".len()..]);
            let id = form_urlencoded::parse(encoded.as_bytes()).next().unwrap().1.into_owned();
            match index.docs.get(&id) {
                Some((version, Some(source))) => json(&json!({ "_id": id, "_version": version, "_source": source })),
                _ => error(404, "not_found"),
            }
        }
        other => error(400, &format!("{other:?}")),
    }
}

impl Index {
    fn refresh(&mut self) {
        let documents = self.docs.iter().filter_map(|(id, (_, document))| Some((id.clone(), document.clone()?)));
        self.searched = documents.collect();
    }

    fn is_alias(&self) -> bool {
        self.created.as_ref().is_some_and(|(_, created)| created["aliases"].get("names").is_some())
    }

    /// Whether there is an index or an alias of the name that the tests use.
    fn is_there(&self) -> bool {
        self.is_alias() || self.created.as_ref().is_some_and(|(name, _)| name == "names")
    }

    fn bulk(&mut self, body: &[u8], requires_alias: bool) -> Response {
        self.bulks += 1;
        let text = std::str::from_utf8(body).unwrap();
        if !text.ends_with('\n') {
            return error(400, "illegal_argument_exception: the bulk request must be terminated by a newline");
        }
        let mut lines = text.lines();
        let mut actions = Vec::new();
        while let Some(line) = lines.next() {
            let Ok(Value::Object(action)) = serde_json::from_str(line) else {
                return error(400, "malformed action line");
            };
            let Some((verb, meta)) = action.iter().next().filter(|_| action.len() == 1) else {
                return error(400, "malformed action line");
            };
            let (Some(id), Some(version), Some(kind)) =
                (meta["_id"].as_str(), meta["version"].as_u64(), meta["version_type"].as_str())
            else {
                return error(400, "malformed action line");
            };
            let over = match kind {
                "external" => 0,
                "external_gte" => 1,
                _ => return error(400, "malformed action line"),
            };
            let document = match verb.as_str() {
                "delete" => None,
                "index" => match lines.next().map(serde_json::from_str::<Value>) {
                    Some(Ok(document)) => Some(document),
                    _ => return error(400, "malformed document"),
                },
                _ => return error(400, "malformed action line"),
            };
            actions.push((verb.clone(), id.to_owned(), version, version + over, document));
        }
        // A delete has an external version, and requires no alias whatever the request says.
        let is_rejected = requires_alias && actions.iter().any(|(.., document)| document.is_some());
        if !self.is_there() && !is_rejected {
            self.created = Some(("names".to_owned(), json!({ "aliases": {}, "mappings": {} })));
        }
        let mut items = Vec::new();
        for (verb, id, version, above, document) in actions {
            let (status, error) = match requires_alias && document.is_some() && !self.is_alias() {
                true => (404, Some("index_not_found_exception")),
                false => self.apply(&id, version, above, document),
            };
            let mut item = json!({ "_index": "names", "_id": id, "status": status });
            if let Some(error) = error {
                item["error"] = json!({ "type": error, "reason": status });
            }
            items.push(json!({ verb: item }));
        }
        json(&json!({ "took": 1, "errors": true, "items": items }))
    }

    /// Applies an action. Returns its status, and the type of the error if it is one: a document that is not there to be deleted is none.
    fn apply(&mut self, id: &str, version: u64, above: u64, document: Option<Value>) -> (u16, Option<&'static str>) {
        if let Some((status, times)) = self.faults.get_mut(id).filter(|(_, times)| *times > 0) {
            *times -= 1;
            return (*status, Some("failed"));
        }
        let Some((_, created)) = &self.created else { return (404, Some("index_not_found_exception")) };
        let known = &created["mappings"]["properties"];
        if created["mappings"]["dynamic"] == "strict"
            && let Some(members) = document.as_ref().and_then(Value::as_object)
            && members.keys().any(|name| known.get(name).is_none())
        {
            return (400, Some("strict_dynamic_mapping_exception"));
        }
        let before = self.docs.get(id);
        if before.is_some_and(|(stored, _)| *stored >= above) {
            return (409, Some("version_conflict_engine_exception"));
        }
        let was_there = before.is_some_and(|(_, document)| document.is_some());
        let status = match (&document, was_there) {
            (None, false) => 404,
            (Some(_), false) => 201,
            _ => 200,
        };
        self.docs.insert(id.to_owned(), (version, document));
        (status, None)
    }

    fn search(&self, body: &Value) -> Response {
        let mut found: Vec<(f64, Vec<Value>, &Value)> = Vec::new();
        for document in self.searched.values() {
            let Some(score) = score(&body["query"], document) else { continue };
            let sort = body["sort"].as_array().unwrap().iter().map(|by| {
                let (field, _) = by.as_object().unwrap().iter().next().unwrap();
                if field == "_score" { json!(score) } else { document[field].clone() }
            });
            found.push((score, sort.collect(), document));
        }
        let order = |a: &[Value], b: &[Value]| {
            let mut fields = body["sort"].as_array().unwrap().iter().zip(a.iter().zip(b));
            let unequal = fields.find_map(|(by, (a, b))| {
                let order = match (a.as_f64(), b.as_f64()) {
                    (Some(a), Some(b)) => a.total_cmp(&b),
                    _ => a.as_str().unwrap().cmp(b.as_str().unwrap()),
                };
                let is_descending = by.as_object().unwrap().values().next().unwrap() == "desc";
                Some(if is_descending { order.reverse() } else { order }).filter(|order| order.is_ne())
            });
            unequal.unwrap_or(std::cmp::Ordering::Equal)
        };
        found.sort_by(|a, b| order(&a.1, &b.1));
        if let Some(after) = body["search_after"].as_array() {
            found.retain(|(_, sort, _)| order(sort, after).is_gt());
        }
        let size = usize::try_from(body["size"].as_u64().unwrap()).unwrap();
        let hits = found
            .into_iter()
            .take(size)
            .map(|(score, sort, source)| json!({ "_score": score, "_source": source, "sort": sort }));
        json(&json!({ "timed_out": false, "hits": { "hits": hits.collect::<Vec<_>>() } }))
    }
}

/// The score of a document for a query; `None` if it does not match.
fn score(query: &Value, document: &Value) -> Option<f64> {
    let (kind, what) =
        query.as_object().filter(|query| query.len() == 1).and_then(|query| query.iter().next()).unwrap();
    let list = |of: &Value| of.as_array().cloned().unwrap_or_default();
    let field = || {
        let (field, test) = what.as_object().unwrap().iter().next().unwrap();
        let values = match &document[field] {
            Value::Array(values) => values.clone(),
            Value::Null => Vec::new(),
            value => vec![value.clone()],
        };
        (values, test.clone())
    };
    let any = |matches: &dyn Fn(&str, &str) -> bool| {
        let (values, test) = field();
        let wanted = test["value"].as_str().unwrap();
        values.iter().any(|value| matches(value.as_str().unwrap(), wanted)).then_some(1.0)
    };
    match kind.as_str() {
        "bool" => {
            let mut sum = 0.0;
            for must in list(&what["must"]) {
                sum += score(&must, document)?;
            }
            for filter in list(&what["filter"]) {
                score(&filter, document)?;
            }
            let should = list(&what["should"]);
            let matching = should.iter().filter_map(|query| score(query, document)).collect::<Vec<_>>();
            match what.get("minimum_should_match") {
                Some(_) if matching.is_empty() => None,
                _ => Some(sum + matching.iter().sum::<f64>()),
            }
        }
        "dis_max" => list(&what["queries"]).iter().filter_map(|query| score(query, document)).max_by(f64::total_cmp),
        "constant_score" => score(&what["filter"], document).map(|_| what["boost"].as_f64().unwrap()),
        "term" => any(&|value, wanted| value == wanted),
        "prefix" => any(&|value, wanted| value.starts_with(wanted)),
        "wildcard" => {
            any(&|value, wanted| wildcard(&wanted.chars().collect::<Vec<_>>(), &value.chars().collect::<Vec<_>>()))
        }
        "terms" => {
            let (values, test) = field();
            values.iter().any(|value| list(&test).contains(value)).then_some(1.0)
        }
        "range" => {
            let (values, test) = field();
            (values[0].as_u64() < test["lt"].as_u64()).then_some(1.0)
        }
        other => panic!("the query {other} is unknown here"),
    }
}

fn wildcard(pattern: &[char], text: &[char]) -> bool {
    match pattern {
        [] => text.is_empty(),
        ['*', rest @ ..] => (0..=text.len()).any(|skipped| wildcard(rest, &text[skipped..])),
        ['?', rest @ ..] => !text.is_empty() && wildcard(rest, &text[1..]),
        ['\\', sign, rest @ ..] | [sign, rest @ ..] => text.first() == Some(sign) && wildcard(rest, &text[1..]),
    }
}
