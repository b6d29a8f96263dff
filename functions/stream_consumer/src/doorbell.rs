//! The doorbell: a channel of AppSync Events for each record, for readers that wait. Rings are hints. One that is lost is counted and
//! never delivered again: readers read the feed after each connection, and a later ring makes up for it.

use std::collections::BTreeMap;

use nameservice_api::{
    changes::Change as Shape,
    doorbell::{Ring, channel},
};
use nameservice_dynamo::variable;
use nameservice_model::Change;
use nameservice_signer::Signer;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::{
    DOORBELL, NAMESPACE,
    appsync::{self, Endpoint, HintError, Hints},
};

/// The longest event, in bytes: AppSync counts one operation for each 5 KB.
const MAX_EVENT_BYTES: usize = 4 * 1024;

/// Rings for readers of AppSync Events. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Doorbell {
    endpoint: Endpoint,
    namespace: String,
}

#[derive(Deserialize)]
struct Published {
    #[serde(default)]
    failed: Vec<Value>,
}

impl Doorbell {
    /// Returns the doorbell of a namespace that events are published to at a URL (`https://HOST/event`).
    pub fn new(url: &str, namespace: impl Into<String>, signer: Option<Signer>) -> Result<Self, HintError> {
        Self::over(appsync::client()?, url, namespace, signer)
    }

    /// Returns the doorbell over another HTTP client.
    pub fn over(
        http: reqwest::Client,
        url: &str,
        namespace: impl Into<String>,
        signer: Option<Signer>,
    ) -> Result<Self, HintError> {
        Ok(Self { endpoint: Endpoint::new(http, url, signer)?, namespace: namespace.into() })
    }

    /// Returns the doorbell that the environment of the function names; `None` if it names none.
    pub(crate) fn deployed() -> Result<Option<Self>, HintError> {
        let (Some(url), Some(namespace)) = (variable(DOORBELL), variable(NAMESPACE)) else { return Ok(None) };
        Self::new(&url, namespace, appsync::signer()).map(Some)
    }

    /// Rings once for each record that changed, with its newest change. Takes at most a second; if that was not enough, it
    /// does not ring for half a minute.
    pub async fn ring(&self, changes: &[Change]) -> Hints {
        let mut newest: BTreeMap<&str, &Change> = BTreeMap::new();
        for change in changes {
            let known = newest.entry(change.address.as_str()).or_insert(change);
            if known.position < change.position {
                *known = change;
            }
        }
        let rings = newest.into_values().map(|change| vec![self.body(change)]).collect();
        self.endpoint.post(rings, is_taken).await
    }

    fn body(&self, change: &Change) -> Vec<u8> {
        let body = json!({ "channel": channel(&self.namespace, &change.address), "events": [event(change)] });
        body.to_string().into_bytes()
    }
}

fn is_taken(answer: &[u8]) -> bool {
    serde_json::from_slice::<Published>(answer).is_ok_and(|published| published.failed.is_empty())
}

/// Returns the text of an event, without the change if that is long.
fn event(change: &Change) -> String {
    let whole = json!(Ring { position: change.position, change: Some(Shape::from(change)) }).to_string();
    if whole.len() <= MAX_EVENT_BYTES {
        return whole;
    }
    json!(Ring { position: change.position, change: None }).to_string()
}
