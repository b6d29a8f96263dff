//! `POST /v1/changes/compare`: compares many records in one request with what the caller knows of them.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use axum::{
    Json,
    extract::State,
    http::HeaderValue,
    response::{IntoResponse as _, Response},
};
use nameservice_http::{
    Problem, Route,
    extract::{Allowed, Body, Read},
    freshness::POSITION,
    page,
    shapes::{Config, Head, Index, Kind, Status, requests},
};
use nameservice_model::{self as model, Address, ChangeFeed, ContentId, NameService, RecordKind};
use serde::{Deserialize, Deserializer, Serialize};
use utoipa::ToSchema;
use utoipa_axum::routes;

nameservice_http::rejections!(READS TAKES_BODY; InvalidAddress PayloadTooLarge);

const MAX_SUBSCRIPTIONS: usize = 1000;
/// How many records are read, and held, together.
const READ_TOGETHER: usize = 100;

/// What the caller knows of the records that it follows.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct Subscriptions {
    /// By address, at most 1,000, each record once: `mydb` and `mydb:main` are the same.
    subscriptions: BTreeMap<String, Subscription>,
}

/// What the caller knows of a record. A concern is compared if its watermark or its id is given. If none is given, the
/// whole record is returned.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct Subscription {
    /// The kind that it must be.
    kind: Option<Kind>,
    /// The type of graph source that it must be.
    source_type: Option<String>,
    /// The `t` of the head.
    #[schema(format = "uint64")]
    commit_t: Option<u64>,
    /// The commit; null for none.
    #[serde(default, deserialize_with = "present")]
    #[schema(value_type = Option<String>, nullable)]
    commit_id: Option<Option<String>>,
    /// The `t` of the index.
    #[schema(format = "uint64")]
    index_t: Option<u64>,
    /// The index root, which also shows that the same `t` was indexed again; null for none.
    #[serde(default, deserialize_with = "present")]
    #[schema(value_type = Option<String>, nullable)]
    index_id: Option<Option<String>>,
    /// The `v` of the status.
    #[schema(format = "uint64")]
    status_v: Option<u64>,
    /// The `v` of the config.
    #[schema(format = "uint64")]
    config_v: Option<u64>,
}

/// Distinguishes `null` from an absent field, which stays `None`.
fn present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Option<String>>, D::Error> {
    Option::deserialize(deserializer).map(Some)
}

/// The differences between the records and what the caller knows of them.
#[derive(Serialize, ToSchema)]
struct Comparison {
    /// By full address, the current values of the concerns that have moved. Records in which nothing has moved are left
    /// out.
    changed: BTreeMap<String, Moved>,
    /// The addresses with no record, with none that the caller may see, or with one of another kind or type.
    unknown: Vec<String>,
    /// The records that are retracted; absent if there are none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    retracted: Vec<String>,
    /// The position of the change feed before the records were read: continue from here with `/v1/changes`.
    position: u64,
}

/// The concerns of a record that have moved, forward or, after a reset, back.
#[derive(Serialize, ToSchema)]
struct Moved {
    #[serde(skip_serializing_if = "Option::is_none")]
    head: Option<Head>,
    #[serde(skip_serializing_if = "Option::is_none")]
    index: Option<Index>,
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<Status>,
    #[serde(skip_serializing_if = "Option::is_none")]
    config: Option<Config>,
}

/// Compare known watermarks
///
/// For clients that keep watermarks rather than a position of the feed. Returns the concerns of at most 1,000 records
/// whose watermark or id differs from the given one. Each record is read consistently, after the position.
#[utoipa::path(
    post,
    path = "/v1/changes/compare",
    tag = "changes",
    request_body = Subscriptions,
    responses((status = OK, description = "The concerns that have changed", body = Comparison), Rejections),
    security(("bearer" = [])),
)]
async fn change_compare(
    State(names): State<Arc<dyn NameService>>,
    State(feed): State<Arc<dyn ChangeFeed>>,
    caller: Allowed<Read>,
    Body(document): Body<Subscriptions>,
) -> Result<Response, Problem> {
    let subscriptions = document.checked()?;
    // Taken before the records are read, so that changes made meanwhile follow it.
    let position = feed.position().await?;
    let mut compared = Comparison { changed: BTreeMap::new(), unknown: Vec::new(), retracted: Vec::new(), position };
    let mut budget = page::Budget::default();
    let mut unknown: BTreeSet<&Address> = subscriptions.keys().collect();
    let visible: Vec<Address> = subscriptions.keys().filter(|address| caller.sees(address)).cloned().collect();
    for together in visible.chunks(READ_TOGETHER) {
        for record in names.lookup_all(together).await? {
            let Some((address, known)) = subscriptions.get_key_value(&record.address) else { continue };
            if !known.is_about(&record) {
                continue;
            }
            unknown.remove(address);
            let is_retracted = record.retracted;
            if let Some(moved) = known.moved(caller.shown(record)) {
                // One record is always included: it could not be requested in smaller parts.
                if !budget.admits(&(address.as_str(), &moved))? && subscriptions.len() > 1 {
                    return Err(too_large());
                }
                compared.changed.insert(address.as_str().to_owned(), moved);
            }
            if is_retracted {
                compared.retracted.push(address.as_str().to_owned());
            }
        }
    }
    compared.unknown = unknown.into_iter().map(|address| address.as_str().to_owned()).collect();
    if !budget.admits(&(&compared.unknown, &compared.retracted))? && subscriptions.len() > 1 {
        return Err(too_large());
    }
    let mut response = Json(compared).into_response();
    // This POST only reads, so the answer does not include later writes.
    if feed.is_immediate() {
        response.headers_mut().insert(POSITION, HeaderValue::from(position));
    }
    Ok(response)
}

fn too_large() -> Problem {
    Problem::answer_too_large("compare fewer records at a time")
}

impl Subscriptions {
    fn checked(self) -> Result<BTreeMap<Address, Subscription>, Problem> {
        if self.subscriptions.len() > MAX_SUBSCRIPTIONS {
            return Err(Problem::invalid_body("subscriptions", format!("has more than {MAX_SUBSCRIPTIONS} records")));
        }
        let mut checked = BTreeMap::new();
        for (text, subscription) in self.subscriptions {
            let field = format!("subscriptions.{text}");
            let address = requests::address(&text, &field)?;
            subscription.check(&field)?;
            if checked.contains_key(&address) {
                return Err(Problem::invalid_body(&field, format!("`{address}` is given in two spellings")));
            }
            checked.insert(address, subscription);
        }
        Ok(checked)
    }
}

impl Subscription {
    /// Rejects a head for a graph source, and a type for a ledger.
    fn check(&self, field: &str) -> Result<(), Problem> {
        let kind = self.kind();
        let contradicts = |name: &str, reason: &str| Err(Problem::invalid_body(&format!("{field}.{name}"), reason));
        match kind {
            Some(RecordKind::GraphSource) if self.commit_t.is_some() => {
                contradicts("commit_t", "only ledgers have a head")
            }
            Some(RecordKind::GraphSource) if self.commit_id.is_some() => {
                contradicts("commit_id", "only ledgers have a head")
            }
            Some(RecordKind::Ledger) if self.source_type.is_some() => {
                contradicts("source_type", "only graph sources have a type")
            }
            _ => Ok(()),
        }
    }

    /// The kind that the record must have: the given one, or the one that the given members imply.
    fn kind(&self) -> Option<RecordKind> {
        let has_head = self.commit_t.is_some() || self.commit_id.is_some();
        let implied = has_head.then_some(RecordKind::Ledger);
        let implied = implied.or(self.source_type.is_some().then_some(RecordKind::GraphSource));
        self.kind.or(implied)
    }

    fn is_about(&self, record: &model::Record) -> bool {
        self.kind().is_none_or(|kind| kind == record.kind)
            && self.source_type.as_ref().is_none_or(|source_type| record.source_type.as_ref() == Some(source_type))
    }

    /// Returns the concerns of the record that differ from what is known; `None` if none does.
    fn moved(&self, record: model::Record) -> Option<Moved> {
        let head = Compare { watermark: self.commit_t, id: self.commit_id.as_ref() };
        let index = Compare { watermark: self.index_t, id: self.index_id.as_ref() };
        let status = Compare { watermark: self.status_v, id: None };
        let config = Compare { watermark: self.config_v, id: None };
        let is_nothing_known = [&head, &index, &status, &config].iter().all(|known| known.is_nothing());
        let moved = Moved {
            head: record
                .head
                .filter(|now| is_nothing_known || head.differs(now.v, now.payload.as_ref()))
                .map(Into::into),
            index: Some(record.index)
                .filter(|now| is_nothing_known || index.differs(now.v, now.payload.as_ref().map(|root| &root.id)))
                .map(Into::into),
            status: Some(record.status).filter(|now| is_nothing_known || status.differs(now.v, None)).map(Into::into),
            config: Some(record.config).filter(|now| is_nothing_known || config.differs(now.v, None)).map(Into::into),
        };
        let is_something =
            moved.head.is_some() || moved.index.is_some() || moved.status.is_some() || moved.config.is_some();
        is_something.then_some(moved)
    }
}

/// What is known of a concern.
struct Compare<'a> {
    watermark: Option<u64>,
    id: Option<&'a Option<String>>,
}

impl Compare<'_> {
    fn is_nothing(&self) -> bool {
        self.watermark.is_none() && self.id.is_none()
    }

    fn differs(&self, watermark: i64, id: Option<&ContentId>) -> bool {
        self.watermark.is_some_and(|known| i64::try_from(known) != Ok(watermark))
            || self.id.is_some_and(|known| known.as_deref() != id.map(ContentId::as_str))
    }
}

/// Returns the route of this operation.
pub fn route() -> Route {
    Route::new().routes(routes!(change_compare))
}
