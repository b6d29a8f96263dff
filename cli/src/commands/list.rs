//! `list` and `snapshot`: pages, followed to their end.

use serde_json::{Value, json};

use super::Session;
use crate::{
    args::{KindArg, ListArgs},
    client::Request,
    failure::Failure,
    output,
};

/// The most that the service puts on a page.
const MAX_PAGE: u64 = 1_000;

/// What pages added up to.
pub(super) struct Pages {
    pub(super) items: Vec<Value>,
    /// Where to go on, if the limit came before the end.
    pub(super) cursor: Option<String>,
    /// The last page, for what it tells besides.
    pub(super) last: Value,
}

/// Reads pages until there are `limit` items, or no more.
pub(super) async fn follow(
    session: &Session,
    member: &str,
    limit: Option<u64>,
    mut cursor: Option<String>,
    request: impl Fn() -> Request,
) -> Result<Pages, Failure> {
    let mut items = Vec::new();
    loop {
        let left = limit.map_or(MAX_PAGE, |limit| limit.saturating_sub(items.len() as u64));
        let page = request().query("limit", Some(left.min(MAX_PAGE))).query("cursor", cursor.as_deref());
        let mut page = session.send(page).await?;
        if let Some(Value::Array(found)) = page.get_mut(member).map(Value::take) {
            items.extend(found);
        }
        cursor = page["cursor"].as_str().map(str::to_owned);
        let enough = limit.is_some_and(|limit| items.len() as u64 >= limit);
        if cursor.is_none() || enough {
            return Ok(Pages { items, cursor, last: page });
        }
    }
}

pub(super) async fn list(session: &Session, args: ListArgs) -> Result<(), Failure> {
    let request = || {
        let kind = args.kind.map(|kind| match kind {
            KindArg::Ledger => "ledger",
            KindArg::GraphSource => "graph_source",
        });
        Request::get("records")
            .query("kind", kind)
            .query("name", args.name.as_deref())
            .query("source_type", args.source_type.as_deref())
            .query("state", args.state.as_deref())
            .query("retracted", args.retracted)
            .query("view", args.full.then_some("full"))
    };
    let pages = follow(session, "records", args.limit, args.cursor.clone(), request).await?;
    show(session, pages, |_| {})
}

pub(super) async fn snapshot(session: &Session) -> Result<(), Failure> {
    let pages = follow(session, "records", None, None, || Request::get("snapshot")).await?;
    let position = pages.last["position"].clone();
    show(session, pages, |answer| answer["position"] = position)
}

fn show(session: &Session, pages: Pages, complete: impl FnOnce(&mut Value)) -> Result<(), Failure> {
    let more = pages.cursor.is_some();
    let mut answer = json!({"records": pages.items});
    if let Some(cursor) = pages.cursor {
        answer["cursor"] = cursor.into();
    }
    complete(&mut answer);
    let records = answer["records"].as_array().map(Vec::as_slice).unwrap_or_default();
    session.output.answer(&answer, || match (records, more) {
        ([], _) => "no records".into(),
        (records, false) => output::records(records),
        (records, true) => format!("{}\n… and more", output::records(records)),
    })
}
