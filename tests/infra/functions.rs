//! Functions, routes and scopes.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::PathBuf,
};

use nameservice_tests::infra::{self, FUNCTIONS};
use serde_json::{Value, json};

use crate::routes::authorization::{as_, guarded, scope};

fn folder(of: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("..").join(of)
}

/// Returns the folders under `functions/`.
pub(super) fn folders() -> BTreeSet<String> {
    let folders = fs::read_dir(folder("functions")).unwrap();
    folders.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

/// Reads a file of a function.
pub(super) fn source(function: &str, file: &str) -> String {
    fs::read_to_string(folder("functions").join(function).join("src").join(file)).unwrap()
}

/// An operation of the OpenAPI document: its route as the gateway names it, the handler, and whether it needs a token.
struct Described {
    route: String,
    handler: String,
    guarded: bool,
}

fn described() -> Vec<Described> {
    let document = json!(nameservice_cli::routes::document());
    let mut all = Vec::new();
    for (path, item) in document["paths"].as_object().unwrap() {
        let operations = item.as_object().unwrap().iter();
        for (method, operation) in operations.filter(|(_, operation)| operation.get("operationId").is_some()) {
            let path = path.replace("{address}", "{address+}").replace("{file}", "{file+}");
            let handler = operation["operationId"].as_str().unwrap();
            let guarded = operation.get("security").is_some_and(|security| *security != Value::Array(Vec::new()));
            // Fluree's routes are served twice and described once.
            let again = path.starts_with("/fluree/").then(|| format!("/v1{path}"));
            for path in [Some(path), again].into_iter().flatten() {
                let route = format!("{} {path}", method.to_uppercase());
                all.push(Described { route, handler: handler.to_owned(), guarded });
            }
        }
    }
    all
}

#[test]
fn every_folder_is_a_function_and_every_function_a_folder() {
    let listed: BTreeSet<String> = FUNCTIONS.keys().cloned().collect();
    assert_eq!(listed, folders());
}

#[test]
fn every_operation_has_its_route_to_its_function() {
    let folders = folders();
    let mut expected: BTreeMap<String, BTreeSet<String>> =
        folders.iter().map(|name| (name.clone(), BTreeSet::new())).collect();
    expected.get_mut("not_found").unwrap().insert("$default".to_owned());
    for operation in described() {
        // The handler is defined in the crate that serves it.
        let defined = format!("async fn {}(", operation.handler);
        let crates: Vec<_> = folders.iter().filter(|name| source(name, "lib.rs").contains(&defined)).collect();
        let [name] = crates[..] else { panic!("{} is defined in {crates:?}", operation.handler) };
        expected.get_mut(name).unwrap().insert(operation.route);
    }
    for (name, routes) in expected {
        let function = &FUNCTIONS[&name];
        let listed: BTreeSet<_> = function.routes.union(&function.url).cloned().collect();
        assert_eq!(listed, routes, "{name}");
    }
}

#[test]
fn what_needs_a_token_asks_for_a_scope_or_checks_it_itself() {
    for operation in described() {
        let (name, function) = FUNCTIONS
            .iter()
            .find(|(_, function)| function.routes.contains(&operation.route) || function.url.contains(&operation.route))
            .unwrap();
        let is_url = function.url.contains(&operation.route);
        assert_eq!(operation.guarded, function.scope.is_some() || function.verifies_tokens, "{name}");
        assert!(!is_url || function.verifies_tokens, "{name}: a function URL has no authorizer");
        assert!(function.scope.is_none() || !function.verifies_tokens, "{name}: one of the two");
    }
    for name in folders() {
        let main = source(&name, "main.rs");
        let streams = main.contains("serve_streaming_url");
        assert_eq!(FUNCTIONS[&name].verifies_tokens, streams || main.contains("serve_function_url"), "{name}");
        assert_eq!(!FUNCTIONS[&name].url.is_empty(), streams, "{name}: answers without an end need a function URL");
    }
}

/// A function may read the archive of the feed exactly if it opens it.
#[test]
fn functions_that_read_the_feed_read_its_archive() {
    for name in folders() {
        let [main, lib] = ["main.rs", "lib.rs"].map(|file| source(&name, file));
        let opens = ["serve_feed(", "serve_streaming_url("].iter().any(|open| main.contains(open))
            || lib.contains("nameservice_lambda::archive()");
        assert_eq!(FUNCTIONS[&name].actions.contains_key("archive"), opens, "{name}");
    }
}

/// The gateway requires the scopes that the service itself requires.
#[tokio::test]
async fn every_route_asks_for_the_scope_that_its_function_needs() {
    let service = guarded().await;
    let stranger = scope("openid");
    for (name, function) in &*FUNCTIONS {
        for route in &function.routes {
            let Some((method, path)) = route.split_once(' ') else { continue };
            let path = path.replace("refs/{address+}", "refs/mydb/init").replace("{address+}", "mydb");
            let path = path.replace("docs/{file+}", "docs/docs.js").replace("{file+}", "app.js");
            let answer = as_(&service, &stranger, method.parse().unwrap(), &path, None).await;
            match (&function.scope, function.verifies_tokens) {
                (Some(scope), _) => {
                    let problem = answer.problem(403, "insufficient-scope");
                    assert_eq!(problem["scope"], format!("nameservice:{scope}"), "{name}");
                }
                (None, true) => drop(answer.problem(403, "insufficient-scope")),
                (None, false) => drop(answer.expect(200)),
            }
        }
    }
}

/// Returns the names of environment variables in a text.
fn variables(text: &str) -> BTreeSet<&str> {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    words.filter(|word| word.starts_with("NAMESERVICE_")).collect()
}

#[test]
fn functions_are_given_the_variables_that_they_read() {
    let given =
        infra::resource("aws_lambda_function", "this").get_blocks("environment").next().unwrap().body.to_string();
    let mut read = String::new();
    for file in ["archive.rs", "emf.rs", "environment.rs", "http.rs"] {
        read.push_str(&fs::read_to_string(folder("shared/lambda/src").join(file)).unwrap());
    }
    // Two functions and the health check share the code that reads these.
    read.push_str(&fs::read_to_string(folder("shared/opensearch/src").join("deployed.rs")).unwrap());
    for name in folders() {
        read.push_str(&source(&name, "lib.rs"));
    }
    assert_eq!(variables(&given), variables(&read));
}
