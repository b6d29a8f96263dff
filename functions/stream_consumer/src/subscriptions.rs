//! GraphQL subscriptions: AppSync passes on what a mutation returns, so each change is published by a mutation. Like a ring of the
//! [`Doorbell`](crate::Doorbell), it is a hint: its position shows what a reader has missed, which is in the feed.

use std::collections::BTreeMap;

use nameservice_api::changes::Change as Shape;
use nameservice_dynamo::variable;
use nameservice_model::Change;
use nameservice_signer::Signer;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::{
    GRAPHQL,
    appsync::{self, Endpoint, HintError, Hints},
};

/// Subscribers get the members that the mutation selects, so it selects all. There is one mutation per request, without an alias:
/// AppSync does not pass on what a mutation returns under an alias (<https://github.com/aws-amplify/amplify-js/issues/3213>).
const MUTATION: &str = "mutation Publish($change: ChangeInput!) { publishChange(change: $change) { \
    position address kind sourceType concern change watermark previous payload payloadOmitted occurredAt recordedAt } }";

/// Publishes changes to an AppSync API, for its subscribers. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Subscriptions {
    endpoint: Endpoint,
}

/// `ChangeInput` of the schema (`infra/modules/graphql/changes.graphql`).
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ChangeInput {
    position: u64,
    address: String,
    kind: String,
    source_type: Option<String>,
    concern: String,
    change: String,
    watermark: i64,
    previous: Option<i64>,
    /// The payload as text, since AppSync takes JSON as text.
    payload: Option<String>,
    payload_omitted: bool,
    occurred_at: String,
    recorded_at: String,
}

#[derive(Deserialize)]
struct Published {
    data: Option<Data>,
    errors: Option<Vec<Value>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Data {
    publish_change: Option<Value>,
}

impl Subscriptions {
    /// Returns the subscriptions of the API at a URL (`https://HOST/graphql`).
    pub fn new(url: &str, signer: Option<Signer>) -> Result<Self, HintError> {
        Self::over(appsync::client()?, url, signer)
    }

    /// Returns the publisher of subscriptions over another HTTP client.
    pub fn over(http: reqwest::Client, url: &str, signer: Option<Signer>) -> Result<Self, HintError> {
        Ok(Self { endpoint: Endpoint::new(http, url, signer)? })
    }

    /// Returns the subscriptions that the environment of the function names; `None` if it names none.
    pub(crate) fn deployed() -> Result<Option<Self>, HintError> {
        variable(GRAPHQL).map(|url| Self::new(&url, appsync::signer())).transpose()
    }

    /// Publishes each change once: the changes of a record in the order of their positions, each after the answer to the previous one;
    /// different records concurrently, so that a batch has enough time. Takes at most a second; if that was not enough, nothing is
    /// published for half a minute.
    pub async fn publish(&self, changes: &[Change]) -> Hints {
        let by_position: BTreeMap<u64, &Change> = changes
            .iter()
            // Rows whose names are not valid addresses are never visible over GraphQL.
            .filter(|change| change.address.is_well_formed())
            .map(|change| (change.position, change))
            .collect();
        let mut places: BTreeMap<&str, usize> = BTreeMap::new();
        let mut sequences: Vec<Vec<Vec<u8>>> = Vec::new();
        for change in by_position.into_values() {
            let place = *places.entry(change.address.as_str()).or_insert(sequences.len());
            if place == sequences.len() {
                sequences.push(Vec::new());
            }
            sequences[place].push(body(change));
        }
        self.endpoint.post(sequences, is_taken).await
    }
}

fn body(change: &Change) -> Vec<u8> {
    json!({ "query": MUTATION, "variables": { "change": ChangeInput::from(change) } }).to_string().into_bytes()
}

fn is_taken(answer: &[u8]) -> bool {
    serde_json::from_slice::<Published>(answer).is_ok_and(|Published { data, errors }| {
        errors.is_none_or(|errors| errors.is_empty()) && data.is_some_and(|data| data.publish_change.is_some())
    })
}

impl From<&Change> for ChangeInput {
    fn from(change: &Change) -> Self {
        // Enum values are the names of the wire in capitals.
        let value_of = |word: &str| word.to_ascii_uppercase();
        let shape = Shape::from(change);
        Self {
            position: shape.position,
            address: shape.address,
            kind: value_of(change.identity.kind.as_str()),
            source_type: shape.source_type,
            concern: value_of(change.part.as_str()),
            change: value_of(change.kind.as_str()),
            watermark: shape.watermark,
            previous: shape.previous,
            payload: shape.payload.map(|payload| payload.to_string()),
            payload_omitted: shape.payload_omitted,
            occurred_at: shape.occurred_at,
            recorded_at: shape.recorded_at,
        }
    }
}
