//! Every integer of every request at its limits, and what is none in its place, on every backend. What there is to try is read from the
//! OpenAPI document and from GraphQL's schema, so a new parameter or member is tried as well. After each write that is applied, and after
//! all numbers in one place, a plain push works and the service is well.

use std::collections::BTreeMap;

use async_graphql::parser::{
    parse_schema,
    types::{FieldDefinition, InputValueDefinition, TypeKind, TypeSystemDefinition},
};
use http::Method;
use nameservice_tests::{backends::Place, prelude::*};

use super::{
    Alike, Failure,
    compare::problem,
    places::{Request, Step},
    requests::NUMBERS,
};

/// Stands for the integer that is tried.
const MARK: i64 = 987_654_321;
/// The backends; files are left out of the rest of an operation once they have been asked for something that they lack.
const PLACES: [Place; 3] = [Place::Memory, Place::DynamoDb, Place::Directory];

/// The record that the nth integer is tried on.
fn address_of(n: usize) -> String {
    format!("i{n}:main")
}

/// One integer: what is sent, with the [`MARK`] in its place.
struct Integer {
    name: String,
    request: Request,
}

/// The OpenAPI document.
struct Document(Value);

impl Document {
    fn of_the_service() -> Self {
        Self(json!(nameservice_cli::routes::document()))
    }

    fn resolved<'a>(&'a self, schema: &'a Value) -> &'a Value {
        match schema["$ref"].as_str() {
            Some(reference) => self.resolved(self.0.pointer(reference.trim_start_matches('#')).unwrap()),
            None => schema,
        }
    }

    /// The alternatives of a schema that are not `null`.
    fn alternatives<'a>(&'a self, schema: &'a Value) -> Vec<&'a Value> {
        let schema = self.resolved(schema);
        let several = ["oneOf", "anyOf", "allOf"].into_iter().find_map(|several| schema[several].as_array());
        match several {
            Some(several) => {
                several.iter().flat_map(|one| self.alternatives(one)).filter(|one| one["type"] != "null").collect()
            }
            None => vec![schema],
        }
    }

    /// The paths of the integers in a schema: names, `[]` for an item, `{}` for a member of any name, and `|n` for an
    /// alternative.
    fn integers(&self, schema: &Value) -> Vec<Vec<String>> {
        let alternatives = self.alternatives(schema);
        let several = alternatives.len() > 1;
        let mut found = Vec::new();
        for (at, schema) in alternatives.into_iter().enumerate() {
            let mut paths = Vec::new();
            let mut below = |step: &str, schema: &Value| {
                paths.extend(self.integers(schema).into_iter().map(|path| [vec![step.to_owned()], path].concat()));
            };
            for (name, member) in schema["properties"].as_object().into_iter().flatten() {
                below(name, member);
            }
            if schema["additionalProperties"].is_object() {
                below("{}", &schema["additionalProperties"]);
            }
            if schema["items"].is_object() {
                below("[]", &schema["items"]);
            }
            if is_of(schema, "integer") {
                paths.push(Vec::new());
            }
            let prefix = if several { vec![format!("|{at}")] } else { Vec::new() };
            found.extend(paths.into_iter().map(|path| [prefix.clone(), path].concat()));
        }
        found
    }

    /// A value of a schema that holds the [`MARK`] at a path, with what is required beside it.
    fn sample(&self, schema: &Value, name: &str, path: Option<&[String]>, address: &str) -> Value {
        let alternatives = self.alternatives(schema);
        let (schema, path) = match path {
            Some([first, rest @ ..]) if first.starts_with('|') => {
                (alternatives[first[1..].parse::<usize>().unwrap()], Some(rest))
            }
            path => (alternatives[0], path),
        };
        let next = path.and_then(<[String]>::first).map(String::as_str);
        let rest = path.and_then(|path| path.get(1..));
        if is_of(schema, "object") || schema["properties"].is_object() {
            let mut members = Object::new();
            let required = |name: &str| schema["required"].as_array().is_some_and(|all| all.contains(&json!(name)));
            for (name, member) in schema["properties"].as_object().into_iter().flatten() {
                let is_next = next == Some(name);
                if is_next || required(name) || name == "id" {
                    members.insert(name.clone(), self.sample(member, name, rest.filter(|_| is_next), address));
                }
            }
            if next == Some("{}") {
                let key = if name == "graphs" { "g" } else { address };
                members.insert(key.to_owned(), self.sample(&schema["additionalProperties"], "", rest, address));
            }
            // In files, a head and an index have ids of their own kinds.
            let is_index = name == "index"
                || schema["properties"]["rev"].is_object()
                || schema["properties"]["graphs"].is_object();
            if let Some(id) = members.get_mut("id").filter(|_| !is_index) {
                *id = json!(cid(2).as_str());
            }
            if name == "payload" {
                members.insert("state".to_owned(), "ready".into());
            }
            return members.into();
        }
        if is_of(schema, "array") {
            let items = next.map(|_| self.sample(&schema["items"], name, rest, address));
            return items.into_iter().collect();
        }
        match name {
            _ if is_of(schema, "integer") => json!(if path.is_some() { MARK } else { 1 }),
            _ if is_of(schema, "boolean") => json!(false),
            _ if schema["enum"].is_array() => schema["enum"][0].clone(),
            "id" => json!(index_cid(2).as_str()),
            "address" => json!(address),
            "name" if schema["pattern"].is_null() => json!(address.split(':').next()),
            "branch" => json!("b"),
            "source" => json!("main"),
            _ => match &schema["example"] {
                Value::Null => json!("x"),
                example => example.clone(),
            },
        }
    }

    /// The integers of one operation.
    fn of(&self, path: &str, method: &str, operation: &Value) -> Vec<Integer> {
        let parameters: Vec<&Value> =
            operation["parameters"].as_array().into_iter().flatten().map(|of| self.resolved(of)).collect();
        let verb = Method::from_bytes(method.to_uppercase().as_bytes()).unwrap();
        let body = &operation["requestBody"]["content"]["application/json"]["schema"];
        let mut found: Vec<Integer> = Vec::new();
        let given = |name: &str, address: &str| match name {
            "concern" => "status".to_owned(),
            "name" => "index_lock".to_owned(),
            "address" => address.to_owned(),
            _ => "x".to_owned(),
        };
        let fixed = |address: &str, also: Option<&str>| {
            // A watermark goes with a concern.
            let concern = also.filter(|name| *name == "min_v").map(|_| "concern");
            let needed = parameters.iter().filter(|parameter| {
                let name = parameter["name"].as_str();
                parameter["in"] == "query" && name != also && (parameter["required"] == true || name == concern)
            });
            let query: Vec<_> = needed
                .map(|parameter| {
                    let name = parameter["name"].as_str().unwrap();
                    let is_integer = is_of(self.resolved(&parameter["schema"]), "integer");
                    format!("{name}={}", if is_integer { "1".to_owned() } else { given(name, address) })
                })
                .collect();
            (path.replace("{address}", address), query.join("&"))
        };
        let joined = |path: String, query: &str| if query.is_empty() { path } else { format!("{path}?{query}") };
        for parameter in &parameters {
            let (name, place) = (parameter["name"].as_str().unwrap(), parameter["in"].as_str().unwrap());
            if !is_of(self.resolved(&parameter["schema"]), "integer") {
                continue;
            }
            let address = address_of(found.len());
            let (to, query) = fixed(&address, Some(name));
            let mut request = match place {
                "query" => {
                    let query = [query, format!("{name}={MARK}")].into_iter().filter(|part| !part.is_empty());
                    Request::new(verb.clone(), joined(to, &query.collect::<Vec<_>>().join("&")))
                }
                "header" => {
                    let named = match name.to_lowercase().as_str() {
                        "last-event-id" => "last-event-id",
                        other => panic!("{other} is a new header with an integer"),
                    };
                    Request::new(verb.clone(), joined(to, &query)).with_header(named, MARK.to_string())
                }
                other => panic!("an integer in {other}"),
            };
            if !body.is_null() {
                request = request.with_body(self.sample(body, "", None, &address));
            }
            found.push(Integer { name: format!("{method} {path} {name}"), request });
        }
        if !body.is_null() {
            let mut members = self.integers(body);
            // What files lack comes last.
            members.sort_by_key(|path| path.contains(&"graphs".to_owned()));
            for member in members {
                let address = address_of(found.len());
                let (to, query) = fixed(&address, None);
                // Fluree's refs name the operation in their path.
                let operations: &[&str] = if path.ends_with("refs/{address}") { &["/commit", "/index"] } else { &[""] };
                for operation in operations {
                    let mut body = self.sample(body, "", Some(&member), &address);
                    if *operation == "/index" {
                        let text = body.to_string().replace(cid(2).as_str(), index_cid(2).as_str());
                        body = serde_json::from_str(&text).unwrap();
                    }
                    let request =
                        Request::new(verb.clone(), joined(format!("{to}{operation}"), &query)).with_body(body);
                    found.push(Integer { name: format!("{method} {path} {}", member.join(".")), request });
                }
            }
        }
        found
    }
}

/// Whether a schema is of this type, or of this type or null.
fn is_of(schema: &Value, kind: &str) -> bool {
    let types = &schema["type"];
    types == kind || types.as_array().is_some_and(|types| types.contains(&json!(kind)))
}

/// A ledger with a head.
fn ledger(address: &str) -> Step {
    let head = json!({ "id": cid(1).as_str(), "t": 1 });
    let create = Request::new(Method::POST, "/v1/ledgers");
    Step::Send(create.with_body(json!({ "address": address, "head": head })))
}

/// What the integer is tried at, the greatest first: what is stored once cannot go back to less.
fn limits() -> impl Iterator<Item = &'static str> {
    NUMBERS.into_iter().rev().filter(|number| !number.is_empty())
}

/// Whether any request may take it: what is written as a whole number. Over GraphQL a negative one is before the first change.
fn may_be_taken(number: &str, request: &Request) -> bool {
    let digits = if request.path == "/graphql" && number != "-0" { number.trim_start_matches('-') } else { number };
    digits.bytes().all(|byte| byte.is_ascii_digit())
}

/// What counts something of a record upwards: after it has reached its limit, too.
fn counting(address: &str, record: &Value) -> Vec<Request> {
    let put = |path: &str, body: Value| Request::new(Method::PUT, format!("/v1/{path}/{address}")).with_body(body);
    let mut new = json!({ "id": index_cid(7).as_str(), "t": record["index"]["t"] });
    if let Some(graphs) = record["index"]["graphs"].as_object() {
        let graphs = graphs.iter().map(|(name, graph)| {
            let graph = json!({ "id": index_cid(8).as_str(), "t": graph["t"].as_i64().unwrap_or(1) });
            (name.clone(), graph)
        });
        new["graphs"] = graphs.collect::<Object>().into();
    }
    let expected = json!({ "id": record["index"]["id"], "t": record["index"]["t"] });
    let lease = json!({ "name": "index_lock", "holder": "h" });
    let counted = |concern: &str| json!({ "v": record[concern]["v"] });
    let mut requests = vec![
        put("indexes", json!({ "expected": expected, "new": new })),
        put("leases", lease),
        put("statuses", json!({ "expected": counted("status"), "new": { "payload": { "state": "ready" } } })),
        put("configs", json!({ "expected": counted("config"), "new": { "payload": { "n": 1 } } })),
        Request::new(Method::POST, format!("/v1/retractions/{address}")).with_body("{}"),
        Request::new(Method::POST, format!("/v1/restorations/{address}")).with_body("{}"),
    ];
    if record["kind"] == "graph_source" {
        requests.push(put("graph-sources", json!({ "source_type": "f:Bm25Index", "config": { "n": 1 } })));
    }
    requests
}

/// Tries an integer at every limit. Each step is judged; failures are collected.
async fn try_limits(alike: &mut Alike, n: usize, integer: &Integer, failures: &mut Vec<String>) {
    let address = &address_of(n);
    let mut failed = |number: &str, failure: Failure| {
        let known = failures.iter().any(|other| other.contains(&failure.kind));
        if !known {
            failures.push(format!("== {} at {number}: {}\n{}", integer.name, failure.kind, failure.what));
        }
    };
    let mut is_applied = false;
    for number in limits() {
        let with = |text: &str| text.replace(&MARK.to_string(), number);
        let request = Request {
            // `+` is a space in a query.
            path: integer.request.path.replace(&MARK.to_string(), &number.replace('+', "%2B")),
            headers: integer.request.headers.iter().map(|(name, value)| (*name, with(value))).collect(),
            body: integer.request.body.as_deref().map(with),
            ..integer.request.clone()
        };
        let outcome = async {
            let answer = alike.send(&request).await?;
            let status = answer.status.as_u16();
            // What a reader asks for may not be there yet.
            let is_designed = status == 501 || (problem(&answer) == "not-yet" && !request.is_write());
            let is_rejected = status >= 400 || answer.body["errors"].is_array();
            if status >= 500 && !is_designed || !is_rejected && !may_be_taken(number, &request) {
                let what = format!("{request}\n{} {}", answer.status, answer.body);
                return Err(Failure { kind: format!("{} {status}", request.route()), what });
            }
            let is_applied = request.is_write() && !is_rejected;
            if is_applied {
                alike.is_well().await?;
            }
            Ok(is_applied)
        };
        match outcome.await {
            Ok(applied) => is_applied |= applied,
            Err(failure) => failed(number, failure),
        }
    }
    let counted = async {
        alike.is_well().await?;
        if !is_applied {
            return Ok(());
        }
        let shown = alike.send(&Request::get(format!("/v1/records/{address}"))).await?;
        for request in counting(address, &shown.body) {
            let answer = alike.send(&request).await?;
            if answer.status.is_server_error() {
                let what = format!("{request}\n{} {}", answer.status, answer.body);
                return Err(Failure { kind: format!("{} {}", request.route(), answer.status), what });
            }
            alike.is_well().await?;
        }
        alike.send(&Request::get(format!("/v1/records/{address}"))).await.map(drop)
    };
    if let Err(failure) = counted.await {
        failed("its limit, then counted on", failure);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_integer_of_every_route_at_its_limits_is_answered_alike_and_breaks_nothing() {
    let document = Document::of_the_service();
    let mut failures = Vec::new();
    let mut tried = 0;
    for (path, operations) in document.0["paths"].as_object().unwrap() {
        for (method, operation) in operations.as_object().unwrap() {
            let integers = document.of(path, method, operation);
            if integers.is_empty() {
                continue;
            }
            let mut alike = Alike::start(&PLACES).await;
            for (n, integer) in integers.iter().enumerate() {
                if !path.contains("graph-sources") {
                    alike.step(&ledger(&address_of(n))).await.map_err(|failure| failure.what).unwrap();
                }
                try_limits(&mut alike, n, integer, &mut failures).await;
                tried += 1;
            }
            alike.stop(false).await;
        }
    }
    assert!(tried > 60, "{tried} integers were found");
    assert!(failures.is_empty(), "{} of {tried} integers:\n{}", failures.len(), failures.join("\n"));
}

/// GraphQL's schema: inputs by name, and the fields of objects.
struct Schema {
    inputs: BTreeMap<String, Vec<InputValueDefinition>>,
    objects: BTreeMap<String, Vec<FieldDefinition>>,
}

impl Schema {
    fn of_the_service() -> Self {
        let document = parse_schema(nameservice_graphql::sdl()).unwrap();
        let mut schema = Self { inputs: BTreeMap::new(), objects: BTreeMap::new() };
        for definition in document.definitions {
            let TypeSystemDefinition::Type(definition) = definition else { continue };
            let name = definition.node.name.node.to_string();
            match definition.node.kind {
                TypeKind::InputObject(input) => {
                    let fields = input.fields.into_iter().map(|field| field.node).collect();
                    schema.inputs.insert(name, fields);
                }
                TypeKind::Object(object) => {
                    let fields = object.fields.into_iter().map(|field| field.node).collect();
                    schema.objects.insert(name, fields);
                }
                _ => {}
            }
        }
        schema
    }

    fn named(kind: &str) -> &str {
        kind.trim_matches(|c| matches!(c, '[' | ']' | '!'))
    }

    /// The paths of the integers among arguments, or among the members of an input, and their types.
    fn integers(&self, inputs: &[InputValueDefinition]) -> Vec<(Vec<String>, String)> {
        let mut found = Vec::new();
        for input in inputs {
            let (name, kind) = (input.name.node.to_string(), input.ty.node.to_string());
            let kind = Self::named(&kind);
            if ["Int", "Long"].contains(&kind) {
                found.push((vec![name], kind.to_owned()));
            } else if let Some(inner) = self.inputs.get(kind) {
                let inner = self.integers(inner).into_iter();
                found.extend(inner.map(|(path, kind)| ([vec![name.clone()], path].concat(), kind)));
            }
        }
        found
    }

    /// The arguments, with the [`MARK`] at a path and what is required beside it.
    fn sample(&self, inputs: &[InputValueDefinition], path: Option<&[String]>, address: &str) -> String {
        let next = path.and_then(<[String]>::first).map(String::as_str);
        let mut members = Vec::new();
        for input in inputs {
            let (name, kind) = (input.name.node.as_str(), input.ty.node.to_string());
            let is_next = next == Some(name);
            if !(is_next || kind.ends_with('!') && input.default_value.is_none()) && name != "id" {
                continue;
            }
            let value = match (Self::named(&kind), name) {
                ("Int" | "Long", _) => if is_next { MARK } else { 1 }.to_string(),
                ("JSON", _) => "{state: \"ready\"}".to_owned(),
                ("Boolean", _) => "false".to_owned(),
                (_, "id") => {
                    let is_index = inputs.iter().any(|input| matches!(input.name.node.as_str(), "rev" | "graphs"));
                    format!("\"{}\"", if is_index { index_cid(2) } else { cid(2) })
                }
                (_, "address") => format!("\"{address}\""),
                ("String", _) => "\"index_lock\"".to_owned(),
                (named, _) => match self.inputs.get(named) {
                    Some(inner) => {
                        let rest = path.and_then(|path| path.get(1..)).filter(|_| is_next);
                        let inner = format!("{{{}}}", self.sample(inner, rest, address));
                        if name == "index" { inner.replace(cid(2).as_str(), index_cid(2).as_str()) } else { inner }
                    }
                    None => continue,
                },
            };
            let value = if kind.starts_with('[') { format!("[{value}]") } else { value };
            members.push(format!("{name}: {value}"));
        }
        members.join(", ")
    }

    /// A field with its arguments, and something of what it returns.
    fn call(&self, field: &FieldDefinition, path: Option<&[String]>, address: &str, inner: &str) -> String {
        let arguments: Vec<_> = field.arguments.iter().map(|argument| argument.node.clone()).collect();
        let arguments = self.sample(&arguments, path, address);
        let arguments = if arguments.is_empty() { arguments } else { format!("({arguments})") };
        let is_scalar = ["Int", "Long", "String", "Boolean", "JSON"].contains(&Self::named(&field.ty.node.to_string()));
        let selected = if is_scalar { String::new() } else { format!(" {{ {inner} }}") };
        format!("{}{arguments}{selected}", field.name.node)
    }

    /// Every integer of queries and mutations, at the root and of what a root field returns: in the document, and as a variable.
    fn all(&self) -> Vec<Integer> {
        let arguments = |field: &FieldDefinition| -> Vec<_> {
            field.arguments.iter().map(|argument| argument.node.clone()).collect()
        };
        let mut found = Vec::new();
        let mut push = |name: String, root: &str, kind: &str, call: &dyn Fn(&str) -> String| {
            let mut sent = |name: String, body: &dyn Fn(String) -> Value| {
                let body = body(call(&address_of(found.len())));
                let request = Request::new(Method::POST, "/graphql").with_body(body);
                found.push(Integer { name, request });
            };
            sent(name.clone(), &|call| json!({ "query": format!("{root} {{ {call} }}") }));
            sent(format!("{name} as a variable"), &|call| {
                let document = format!("{root}($n: {kind}!) {{ {} }}", call.replace(&MARK.to_string(), "$n"));
                json!({ "query": document, "variables": { "n": MARK } })
            });
        };
        for (root, kind) in [("Query", "query"), ("Mutation", "mutation")] {
            for field in &self.objects[root] {
                for (path, of) in self.integers(&arguments(field)) {
                    let name = format!("{kind} {}.{}", field.name.node, path.join("."));
                    push(name, kind, &of, &|address| self.call(field, Some(&path), address, "__typename"));
                }
                let returned = self.objects.get(Self::named(&field.ty.node.to_string()));
                for inner in returned.into_iter().flatten() {
                    for (path, of) in self.integers(&arguments(inner)) {
                        let name = format!("{kind} {}.{}", field.name.node, inner.name.node);
                        push(name, kind, &of, &|address| {
                            self.call(field, None, address, &self.call(inner, Some(&path), address, "__typename"))
                        });
                    }
                }
            }
        }
        found
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_integer_of_graphql_at_its_limits_is_answered_alike_and_breaks_nothing() {
    let all = Schema::of_the_service().all();
    assert!(all.len() > 30, "{} integers were found", all.len());
    let mut failures = Vec::new();
    let mut alike = Alike::start(&PLACES).await;
    for (n, integer) in all.iter().enumerate() {
        if alike.sides.len() < PLACES.len() {
            alike.stop(false).await;
            alike = Alike::start(&PLACES).await;
        }
        alike.step(&ledger(&address_of(n))).await.map_err(|failure| failure.what).unwrap();
        try_limits(&mut alike, n, integer, &mut failures).await;
    }
    alike.stop(false).await;
    assert!(failures.is_empty(), "{} of {} integers:\n{}", failures.len(), all.len(), failures.join("\n"));
}
