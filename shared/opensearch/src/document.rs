//! The document of a record.

use nameservice_model::{Record, RecordKind, StatusPayload, fold, searched_config};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::REMEMBERED;

/// Ends the text of an address in `starts`, so that a search can match its end.
pub(crate) const END: char = '\u{2}';
/// The maximum number of entries in `starts`, and in `words`, of one address.
const MAX_STARTS: usize = 64;

/// The searchable text of a record, and what a hit shows of it, without secrets.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Document {
    /// `name:branch`.
    pub address: String,
    /// `ledger` or `graph_source`.
    pub kind: String,
    /// The type of a graph source.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source_type: Option<String>,
    /// Its state.
    pub state: String,
    /// Soft-deleted.
    pub retracted: bool,
    /// The version: a position of the feed that the document includes, or more.
    pub position: u64,
    /// The address, folded.
    pub text: String,
    /// The texts that name the record in full, folded: the address, and for a `main` branch also the name.
    pub whole: Vec<String>,
    /// The folded address from the beginning of each segment onwards, with `END` appended.
    pub starts: Vec<String>,
    /// The folded address from the beginning of each word within a segment onwards.
    pub words: Vec<String>,
    /// The type, folded.
    pub type_text: String,
    /// The state, folded.
    pub state_text: String,
    /// The searchable text of the configuration, folded.
    pub config_text: String,
}

impl Document {
    /// Returns the document of a record that was read at this position of the feed or later.
    pub fn of(record: &Record, position: u64) -> Self {
        let text = fold(record.address.as_str());
        let mut whole = vec![text.clone()];
        whole.extend(text.strip_suffix(":main").map(str::to_owned));
        let (mut starts, mut words) = (vec![format!("{text}{END}")], Vec::new());
        let mut before = None;
        for (at, letter) in text.char_indices() {
            match before {
                Some('/' | ':') if starts.len() < MAX_STARTS => starts.push(format!("{}{END}", tail(&text, at))),
                Some(before) if is_break(before) && words.len() < MAX_STARTS => words.push(tail(&text, at).to_owned()),
                _ => {}
            }
            before = Some(letter);
        }
        let source_type = record.source_type.clone();
        let state =
            record.status.payload.as_ref().map_or(StatusPayload::READY, |status| status.state.as_str()).to_owned();
        let config = record.config.payload.as_ref();
        Self {
            address: record.address.as_str().to_owned(),
            kind: record.kind.as_str().to_owned(),
            retracted: record.retracted,
            position,
            whole,
            starts,
            words,
            type_text: source_type.as_deref().map(fold).unwrap_or_default(),
            state_text: fold(&state),
            config_text: config.map(searched_config).unwrap_or_default(),
            text,
            source_type,
            state,
        }
    }

    /// Returns the kind; `None` for a document that this crate has not written.
    pub(crate) fn kind(&self) -> Option<RecordKind> {
        self.kind.parse().ok()
    }
}

fn tail(text: &str, at: usize) -> &str {
    text.get(at..).unwrap_or_default()
}

/// Whether a word begins after this letter.
fn is_break(letter: char) -> bool {
    letter.is_ascii() && !letter.is_ascii_alphanumeric()
}

/// Returns the settings and the mapping of the index.
pub fn mapping() -> Value {
    let keyword = json!({ "type": "keyword" });
    let shown = json!({ "type": "keyword", "index": false, "doc_values": false });
    json!({
        "settings": { "index": { "gc_deletes": format!("{}s", REMEMBERED.as_secs()) } },
        "mappings": {
            "dynamic": "strict",
            "properties": {
                "address": keyword,
                "kind": keyword,
                "source_type": shown,
                "state": shown,
                "retracted": { "type": "boolean" },
                "position": { "type": "long" },
                "text": keyword,
                "whole": keyword,
                "starts": keyword,
                "words": keyword,
                "type_text": keyword,
                "state_text": keyword,
                "config_text": keyword,
            },
        },
    })
}
