//! Every integer of every request at its limits: no answer is a failure, and afterwards the service still works.

use std::sync::Arc;

use http_body_util::BodyExt as _;
use nameservice_cli::{routes, serve};
use nameservice_embedded::{Embedded, Options};
use nameservice_http::{App, Auth};
use nameservice_tests::service::{Http, client};

use super::*;

const NUMBERS: [&str; 14] = [
    "0",
    "1",
    "2147483648",
    "9007199254740991",
    "9007199254740992",
    "9223372036854775807",
    "9223372036854775808",
    "18446744073709551616",
    "-1",
    "1.5",
    "1e400",
    "1e-400",
    "+5",
    "text",
];

/// The integers of a schema, by their paths: `*` is any member, `[]` any entry.
fn integers(document: &Value, schema: &Value, path: &[String], found: &mut Vec<Vec<String>>) {
    let at = |part: &str| [path, &[part.to_owned()]].concat();
    if let Some(name) = schema["$ref"].as_str().and_then(|name| name.rsplit('/').next()) {
        return integers(document, &document["components"]["schemas"][name], path, found);
    }
    if schema["type"].to_string().contains("integer") && !found.contains(&path.to_vec()) {
        found.push(path.to_vec());
    }
    for of in ["oneOf", "anyOf", "allOf"] {
        let choices = schema[of].as_array().into_iter().flatten();
        choices.for_each(|choice| integers(document, choice, path, found));
    }
    for (name, member) in schema["properties"].as_object().into_iter().flatten() {
        integers(document, member, &at(name), found);
    }
    if schema["additionalProperties"].is_object() {
        integers(document, &schema["additionalProperties"], &at("*"), found);
    }
    if schema["items"].is_object() {
        integers(document, &schema["items"], &at("[]"), found);
    }
}

/// Sets a value at a path, and makes what is missing on the way.
fn set(value: &mut Value, path: &[String], to: Value) {
    let Some((part, rest)) = path.split_first() else { return *value = to };
    let next = match part.as_str() {
        "[]" => &mut value[0],
        "*" if value.as_object().is_none_or(|members| members.is_empty()) => {
            *value = json!({ "g": {} });
            &mut value["g"]
        }
        "*" => value.as_object_mut().unwrap().values_mut().next().unwrap(),
        name => {
            if !value.is_object() {
                *value = json!({});
            }
            &mut value[name]
        }
    };
    set(next, rest, to);
}

/// A valid body of a route.
fn body(path: &str) -> Value {
    let (head, index) = (commit(5), root(5));
    match path {
        "/v1/branches" => json!({ "name": "odd", "branch": "b", "source": "main", "at": commit(1) }),
        "/v1/changes/compare" => json!({ "subscriptions": { "odd": {} } }),
        "/v1/graph-sources/{address}" => json!({ "source_type": "f:X", "config": {} }),
        "/v1/heads/{address}" => json!({ "new": head }),
        "/v1/indexes/{address}" => json!({ "new": index }),
        "/v1/configs/{address}" => json!({ "expected": { "v": 0 }, "new": { "payload": { "a": 1 } } }),
        "/v1/statuses/{address}" => json!({ "expected": { "v": 1 }, "new": { "payload": { "state": "x" } } }),
        "/v1/leases/{address}" => json!({ "name": "index_lock", "holder": "h" }),
        "/v1/ledgers" => json!({ "address": "odd2", "head": head }),
        "/v1/resets/{address}" => json!({ "head": head, "index": index }),
        "/v1/transactions" => json!({ "operations": [{ "op": "push_index", "address": "odd", "new": index }] }),
        "/fluree/nameservice/refs/{address}" => json!({ "expected": null, "new": head }),
        other => panic!("{other} has integers, and no body here"),
    }
}

async fn ask(client: &Http, url: &str, method: &str, path: &str, body: Option<String>) -> (u16, String) {
    let request =
        Request::builder().method(method).uri(format!("{url}{path}")).header("content-type", "application/json");
    let answer = client.request(request.body(Full::new(body.unwrap_or_default().into())).unwrap()).await.unwrap();
    let status = answer.status().as_u16();
    // A stream of events has no end.
    let is_stream = status == 200 && path.contains("/events");
    let text = if is_stream { Bytes::new() } else { answer.into_body().collect().await.unwrap().to_bytes() };
    (status, String::from_utf8_lossy(&text).into_owned())
}

/// Sends each number as each integer of each request to a service.
pub(crate) async fn at_their_limits(url: &str) {
    let (client, document) = (client(), json!(routes::document()));
    let mut t = 0;
    let mut sent = 0;
    for address in ["plain", "odd"] {
        let (status, text) =
            ask(&client, url, "POST", "/v1/ledgers", Some(json!({ "address": address }).to_string())).await;
        assert_eq!(status, 201, "{text}");
    }
    for (path, operations) in document["paths"].as_object().unwrap() {
        for (method, operation) in operations.as_object().unwrap() {
            let route = if path.starts_with("/fluree") && path.contains("refs") {
                format!("{path}/commit")
            } else {
                path.clone()
            };
            let route = route.replace("{address}", if path.contains("graph-sources") { "source" } else { "odd" });
            let mut requests = Vec::new();
            let parameters = operation["parameters"].as_array().into_iter().flatten();
            for parameter in
                parameters.filter(|p| p["in"] == "query" && p["schema"]["type"].to_string().contains("integer"))
            {
                let name = parameter["name"].as_str().unwrap();
                let more = match name {
                    "min_v" => "&concern=status",
                    "token" => "&name=index_lock&holder=h",
                    _ => "",
                };
                for number in NUMBERS {
                    // `+` is a space in a query.
                    requests.push((format!("{route}?{name}={}{more}", number.replace('+', "%2B")), None, number));
                }
            }
            let mut found = Vec::new();
            let content = operation["requestBody"]["content"].as_object().into_iter().flatten();
            content.for_each(|(_, content)| integers(&document, &content["schema"], &[], &mut found));
            for at in found {
                let mut body = body(path);
                set(&mut body, &at, json!("@@"));
                for number in NUMBERS {
                    requests.push((route.clone(), Some(body.to_string().replace("\"@@\"", number)), number));
                }
            }
            for (path, body, number) in requests {
                let (status, text) = ask(&client, url, &method.to_uppercase(), &path, body.clone()).await;
                let is_designed = status == 503 && text.contains("not-yet");
                assert!(status < 500 || is_designed, "{method} {path} {body:?}: {status} {text}");
                let is_number = number.bytes().all(|byte| byte.is_ascii_digit());
                assert!(is_number || status >= 400, "{method} {path} {body:?}: {status} {text}");
                t += 1;
                sent += 1;
                let push = json!({ "new": { "id": cid(t).as_str(), "t": t } }).to_string();
                let (status, text) = ask(&client, url, "PUT", "/v1/heads/plain", Some(push)).await;
                assert_eq!(status, 200, "after {path} {body:?}: {text}");
            }
        }
    }
    assert!(sent > 400, "{sent}");
    let (status, text) = ask(&client, url, "GET", "/v1/health?deep=true", None).await;
    assert_eq!(status, 200, "{text}");
}

#[tokio::test]
async fn no_number_fails_the_service_over_dynamodb() {
    let service = Service::start().await;
    at_their_limits(service.url()).await;
}

#[tokio::test]
async fn no_number_fails_the_service_over_the_embedded_backend() {
    let names = Embedded::memory(Options::default()).unwrap();
    let app = App::new(Arc::new(names.clone()), Arc::new(names), Auth::Open);
    let service = serve::start(serve::bind(([127, 0, 0, 1], 0).into()).await.unwrap(), app, None).unwrap();
    at_their_limits(&service.url()).await;
}
