//! Finds the nameservice that a Fluree server uses, from its connection file.

use std::{collections::HashMap, path::PathBuf, time::Duration};

use serde_json::{Map, Value};

/// The table that Fluree uses if the file names none.
const DEFAULT_TABLE: &str = "fluree-nameservice";

/// The nameservice that a connection file names.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FlureePlace {
    /// The files in the directory of the index storage.
    Directory(PathBuf),
    /// The files of a bucket.
    S3 {
        /// The bucket.
        bucket: String,
        /// The prefix of its keys.
        prefix: String,
        /// The URL of an S3 outside AWS.
        endpoint: Option<String>,
    },
    /// A table of DynamoDB.
    DynamoDb {
        /// The name of the table.
        table: String,
        /// The region; by default, that of the environment.
        region: Option<String>,
        /// The URL of a DynamoDB outside AWS.
        endpoint: Option<String>,
        /// How long an operation may take.
        timeout: Option<Duration>,
    },
}

/// The reason why a connection file names no nameservice that can be opened.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the connection file names no nameservice: {0}")]
pub struct InvalidFlureeConfig(String);

impl InvalidFlureeConfig {
    /// Returns the error with this reason.
    pub fn new(reason: impl Into<String>) -> Self {
        Self(reason.into())
    }
}

type Found<T> = Result<T, InvalidFlureeConfig>;

fn none<T>(reason: impl Into<String>) -> Found<T> {
    Err(InvalidFlureeConfig(reason.into()))
}

/// Returns the nameservice that Fluree would use with this connection file (JSON-LD). `variable` looks up the values
/// that the file takes from the environment.
pub fn fluree_place(json: &str, variable: impl Fn(&str) -> Option<String>) -> Found<FlureePlace> {
    let document: Value = serde_json::from_str(json).or_else(|error| none(format!("it is not JSON: {error}")))?;
    let Some(graph) = document.get("@graph").and_then(Value::as_array) else {
        return none("it has no `@graph`: without one, Fluree keeps its nameservice in memory or beside its data");
    };
    let config = Config { nodes: nodes(graph), variable: &variable };
    config.place()
}

struct Config<'a> {
    nodes: Vec<Map<String, Value>>,
    variable: &'a dyn Fn(&str) -> Option<String>,
}

type Node = Map<String, Value>;

impl Config<'_> {
    fn place(&self) -> Found<FlureePlace> {
        let mut connections = self.nodes.iter().filter(|node| has_type(node, "Connection"));
        let (Some(connection), None) = (connections.next(), connections.next()) else {
            return none("it must have exactly one node of `@type` Connection");
        };
        let Some(index) = self.refers(connection, "indexStorage")? else {
            return none("its connection has no `indexStorage` that the file describes");
        };
        if !index.contains_key("s3Bucket") {
            // As in Fluree, the publisher is then ignored.
            return match self.text(&index, "filePath")? {
                Some(path) => Ok(FlureePlace::Directory(path.into())),
                None => none("its index storage and its nameservice are in memory, which no other process can reach"),
            };
        }
        match self.refers(connection, "primaryPublisher")? {
            None => Ok(self.table(DEFAULT_TABLE.to_owned(), &Node::new())?),
            Some(publisher) => match self.text(&publisher, "dynamodbTable")? {
                Some(table) => self.table(table, &publisher),
                None => match self.refers(&publisher, "storage")? {
                    Some(storage) => self.bucket(&storage),
                    None => none("its primary publisher is neither a DynamoDB table nor a storage"),
                },
            },
        }
    }

    fn table(&self, table: String, publisher: &Node) -> Found<FlureePlace> {
        let timeout = match self.text(publisher, "dynamodbTimeoutMs")? {
            None => None,
            Some(text) => match text.parse() {
                Ok(ms) if ms > 0 => Some(Duration::from_millis(ms)),
                _ => return none(format!("`dynamodbTimeoutMs` is `{text}`, and not a number of milliseconds")),
            },
        };
        Ok(FlureePlace::DynamoDb {
            table,
            region: self.text(publisher, "dynamodbRegion")?,
            endpoint: self.text(publisher, "dynamodbEndpoint")?,
            timeout,
        })
    }

    fn bucket(&self, storage: &Node) -> Found<FlureePlace> {
        let Some(bucket) = self.text(storage, "s3Bucket")? else {
            return none("the storage of its publisher is not S3, which Fluree does not support");
        };
        if storage.contains_key("AES256Key") {
            return none("the storage of its publisher encrypts its objects");
        }
        Ok(FlureePlace::S3 {
            bucket,
            prefix: self.text(storage, "s3Prefix")?.unwrap_or_default().trim_end_matches('/').to_owned(),
            endpoint: self.text(storage, "s3Endpoint")?,
        })
    }

    /// The node that a member refers to; `None` if there is none.
    fn refers(&self, node: &Node, member: &str) -> Found<Option<Node>> {
        let value = match node.get(member) {
            Some(Value::Array(values)) => values.first(),
            value => value,
        };
        let id = match value {
            None | Some(Value::Null) => return Ok(None),
            Some(Value::String(id)) => id,
            Some(Value::Object(inline)) => match inline.get("@id").and_then(Value::as_str) {
                Some(id) => id,
                None => return Ok(Some(local(inline))),
            },
            Some(_) => return none(format!("`{member}` refers to no node")),
        };
        Ok(self.nodes.iter().find(|node| node.get("@id").and_then(Value::as_str) == Some(id)).cloned())
    }

    /// The text of a member, from the environment if the member says so.
    fn text(&self, node: &Node, member: &str) -> Found<Option<String>> {
        let plain = |value: &Value| match value {
            Value::String(text) => Some(text.clone()),
            Value::Number(number) => Some(number.to_string()),
            _ => None,
        };
        let value = match node.get(member) {
            Some(Value::Array(values)) => values.first(),
            value => value,
        };
        let members = match value {
            None | Some(Value::Null) => return Ok(None),
            Some(Value::Object(members)) => local(members),
            Some(value) => match plain(value) {
                Some(text) => return Ok(Some(text)),
                None => return none(format!("`{member}` is neither a text nor a number")),
            },
        };
        if let Some(value) = members.get("@value") {
            return Ok(plain(value));
        }
        let named = |name: &str| members.get(name).and_then(Value::as_str);
        let variables = [named("envVar"), named("javaProp")];
        let set = variables.into_iter().flatten().find_map(|name| (self.variable)(name));
        match set.or_else(|| members.get("defaultVal").and_then(plain)) {
            Some(text) => Ok(Some(text)),
            None => {
                let names: Vec<&str> = variables.into_iter().flatten().collect();
                none(format!("`{member}` comes from the environment ({}), which does not have it", names.join(", ")))
            }
        }
    }
}

fn has_type(node: &Node, name: &str) -> bool {
    let is = |value: &Value| value.as_str().is_some_and(|kind| local_name(kind) == name);
    match node.get("@type") {
        Some(Value::Array(types)) => types.iter().any(is),
        Some(value) => is(value),
        None => false,
    }
}

/// The nodes of a graph, and those inside them.
fn nodes(graph: &[Value]) -> Vec<Node> {
    graph.iter().filter_map(Value::as_object).map(local).collect()
}

/// Returns the node with names of the vocabulary in their short form.
fn local(node: &Node) -> Node {
    let names: HashMap<&String, &Value> = node.iter().collect();
    names.into_iter().map(|(name, value)| (local_name(name).to_owned(), value.clone())).collect()
}

fn local_name(name: &str) -> &str {
    match name.starts_with('@') {
        true => name,
        false => name.rsplit(['#', ':']).next().unwrap_or(name),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn place(connection: Value, others: Value) -> Found<FlureePlace> {
        let mut graph = vec![json!({"@id": "connection", "@type": "Connection"})];
        graph[0].as_object_mut().unwrap().extend(connection.as_object().unwrap().clone());
        graph.extend(others.as_array().unwrap().clone());
        let document = json!({"@context": {"@vocab": "https://ns.flur.ee/system#"}, "@graph": graph});
        fluree_place(&document.to_string(), |name| (name == "SET").then(|| "from-env".to_owned()))
    }

    fn s3() -> Value {
        json!({"@id": "s3", "@type": "Storage", "s3Bucket": "data", "s3Prefix": "ns/"})
    }

    #[test]
    fn the_nameservice_is_where_fluree_would_look() {
        let file = json!([{"@id": "disk", "@type": "Storage", "filePath": {"envVar": "UNSET", "defaultVal": "/data"}}]);
        let directory = place(json!({"indexStorage": {"@id": "disk"}, "primaryPublisher": {"@id": "p"}}), file);
        assert_eq!(directory, Ok(FlureePlace::Directory("/data".into())));
        let table =
            |table: &str| FlureePlace::DynamoDb { table: table.into(), region: None, endpoint: None, timeout: None };
        // A publisher that is missing, or is not described, is the table of the default name.
        for connection in [
            json!({"indexStorage": {"@id": "s3"}}),
            json!({"indexStorage": {"@id": "s3"}, "primaryPublisher": {"@id": "nowhere"}}),
        ] {
            assert_eq!(place(connection, json!([s3()])), Ok(table("fluree-nameservice")));
        }
        let both = json!({"indexStorage": {"@id": "s3"}, "primaryPublisher": {"@id": "p"}});
        let publisher = json!({"@id": "p", "@type": "Publisher", "dynamodbTable": {"envVar": "SET"},
            "dynamodbRegion": "eu-central-1", "dynamodbTimeoutMs": 250});
        let expected = FlureePlace::DynamoDb {
            table: "from-env".into(),
            region: Some("eu-central-1".into()),
            endpoint: None,
            timeout: Some(Duration::from_millis(250)),
        };
        assert_eq!(place(both.clone(), json!([s3(), publisher])), Ok(expected));
        let publisher = json!({"@id": "p", "@type": "Publisher", "storage": {"@id": "s3"}});
        let bucket = FlureePlace::S3 { bucket: "data".into(), prefix: "ns".into(), endpoint: None };
        assert_eq!(place(both, json!([s3(), publisher])), Ok(bucket));
        // Full names of the vocabulary are the same.
        let iri = |name: &str| format!("https://ns.flur.ee/system#{name}");
        let document = json!({"@graph": [
            {"@type": iri("Connection"), iri("indexStorage"): {"@id": "d"}},
            {"@id": "d", iri("filePath"): {"@value": "/x"}},
        ]});
        assert_eq!(fluree_place(&document.to_string(), |_| None), Ok(FlureePlace::Directory("/x".into())));
    }

    #[test]
    fn a_file_that_leads_nowhere_says_why() {
        let memory = json!([{"@id": "m", "@type": "Storage"}]);
        let unset = json!([{"@id": "m", "filePath": {"envVar": "UNSET"}}]);
        let odd = json!([s3(), {"@id": "p", "@type": "Publisher"}]);
        for (connection, others, reason) in [
            (json!({}), json!([]), "no `indexStorage`"),
            (json!({"indexStorage": {"@id": "m"}}), memory, "in memory"),
            (json!({"indexStorage": {"@id": "m"}}), unset, "UNSET"),
            (json!({"indexStorage": {"@id": "s3"}, "primaryPublisher": {"@id": "p"}}), odd, "neither"),
            (json!({}), json!([{"@type": "Connection"}]), "exactly one"),
        ] {
            let error = place(connection, others).unwrap_err().to_string();
            assert!(error.contains(reason), "{error}");
        }
        for (text, reason) in [("{", "not JSON"), ("{}", "no `@graph`")] {
            assert!(fluree_place(text, |_| None).unwrap_err().to_string().contains(reason), "{text}");
        }
    }
}
