//! `search`: the records that contain all words of a text.

use clap::Args;
use nameservice_api::Hits;
use nameservice_model::RecordKind;
use serde_json::Value;

use crate::{client::Request, failure::Failure, options::record_kind, output, session::Session};

/// `search`
#[derive(Debug, Args)]
pub struct SearchArgs {
    /// What to search for: each word is a part of the address, the type, the state or a value of the configuration
    #[arg(value_name = "WORD", required = true)]
    pub words: Vec<String>,
    /// Only this kind
    #[arg(long, value_parser = record_kind())]
    pub kind: Option<RecordKind>,
    /// Only graph sources of this type
    #[arg(long, value_name = "TYPE")]
    pub source_type: Option<String>,
    /// Only records in this state
    #[arg(long)]
    pub state: Option<String>,
    /// The maximum number of records
    #[arg(long, value_name = "N", default_value = "20", value_parser = clap::value_parser!(u64).range(1..=1000))]
    pub limit: u64,
    /// Continue where an earlier search ended
    #[arg(long)]
    pub cursor: Option<String>,
}

pub(crate) async fn search(session: &Session, args: SearchArgs) -> Result<(), Failure> {
    let request = Request::get("search")
        .query("q", Some(args.words.join(" ")))
        .query("kind", args.kind)
        .query("source_type", args.source_type.as_deref())
        .query("state", args.state.as_deref())
        .query("limit", Some(args.limit))
        .query("cursor", args.cursor.as_deref());
    let answer = session.send::<Hits>(request).await?;
    let hits: &[Value] = answer.json["hits"].as_array().map_or(&[], Vec::as_slice);
    session.output.answer(&answer.json, || match (hits, &answer.cursor) {
        ([], _) => "nothing found".into(),
        (hits, None) => output::hits(hits),
        (hits, Some(cursor)) => format!("{}\n… and more: --cursor {cursor}", output::hits(hits)),
    })
}
