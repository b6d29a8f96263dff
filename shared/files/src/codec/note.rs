//! A note of what the format has no members for: remembered calls, the fencing token, times of writing.
//!
//! The note is one term of a file's `@context`, an IRI that nothing else uses. Fluree accepts any context, interprets
//! none, and keeps it whenever it rewrites the main file of a ledger, where an unknown member would be dropped. Every
//! write changes the note, so no two files that this crate writes have equal bytes (or, in a bucket, equal ETags).

use nameservice_model::{Lease, Object, RecordAttribute, RecordAttributes};
use serde_json::{Value, json};
use uuid::Uuid;

const TERM: &str = "nameservice";
const PREFIX: &str = "urn:nameservice:1?";

/// What is noted in one file.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Note {
    /// When the record was created, epoch seconds.
    pub(crate) created: Option<i64>,
    /// When this file was written by this crate, epoch milliseconds.
    pub(crate) updated: Option<i64>,
    /// The attributes of the record that have no members of their own.
    pub(crate) attributes: RecordAttributes,
    /// The last fencing token that was issued.
    pub(crate) token: i64,
    /// The calls that the concerns remember, in the order of `ConcernKind::ALL`.
    pub(crate) calls: [Vec<String>; 4],
    /// Of an index: how many times its `t` was indexed again.
    pub(crate) rev: i64,
    /// The index that `rev` belongs to.
    pub(crate) rev_of: Option<String>,
    /// Of a graph source: the watermark of its status.
    pub(crate) status_v: Option<i64>,
    /// Of a graph source: the metadata of its status.
    pub(crate) status_meta: Option<Object>,
    /// Of a graph source: its lease.
    pub(crate) lease: Option<Lease>,
    /// Of a graph source: the watermark of its config.
    pub(crate) config_v: Option<i64>,
}

/// The text of an attribute that is true. Any other value is JSON.
const TRUE: &str = "1";
/// The names of the remembered calls.
const CALLS: [&str; 4] = ["head", "index", "status", "config"];

/// Returns the attributes that have no members of their own.
fn noted() -> impl Iterator<Item = RecordAttribute> {
    use RecordAttribute::{Dependencies, SourceBranch, SourceType};
    let has_member = |attribute| matches!(attribute, SourceType | Dependencies | SourceBranch);
    RecordAttribute::ALL.iter().copied().filter(move |attribute| !has_member(*attribute))
}

impl Note {
    /// Reads the note of a context; an empty one if there is none.
    pub(crate) fn of(context: &Value) -> Self {
        let text = match context {
            Value::Object(terms) => terms.get(TERM),
            Value::Array(contexts) => contexts.iter().find_map(|context| context.get(TERM)),
            _ => None,
        };
        let query = text.and_then(Value::as_str).and_then(|text| text.strip_prefix(PREFIX));
        let mut note = Self::default();
        for (name, value) in form_urlencoded::parse(query.unwrap_or_default().as_bytes()) {
            match &*name {
                "created" => note.created = value.parse().ok(),
                "updated" => note.updated = value.parse().ok(),
                "token" => note.token = value.parse().unwrap_or(0),
                "rev" => note.rev = value.parse().unwrap_or(0),
                "rev_of" => note.rev_of = Some(value.into_owned()),
                "status_v" => note.status_v = value.parse().ok(),
                "status_meta" => note.status_meta = serde_json::from_str(&value).ok(),
                "lease" => note.lease = serde_json::from_str(&value).ok(),
                "config_v" => note.config_v = value.parse().ok(),
                name => {
                    if let Some(i) = CALLS.iter().position(|concern| *concern == name) {
                        note.calls[i] = value.split('.').map(str::to_owned).collect();
                    } else if let Some(attribute) = noted().find(|attribute| attribute.as_str() == name) {
                        let json = if value == TRUE { Ok(Value::Bool(true)) } else { serde_json::from_str(&value) };
                        note.attributes.set(attribute, json.unwrap_or_default());
                    }
                }
            }
        }
        note
    }

    /// Adds the note to a context.
    pub(crate) fn put_into(&self, context: &mut Value) {
        let term = Value::from(self.text());
        match context {
            Value::Object(terms) => {
                terms.insert(TERM.to_owned(), term);
            }
            Value::Array(contexts) => {
                let place = contexts.iter_mut().find(|context| context.get(TERM).is_some());
                match place.and_then(Value::as_object_mut) {
                    Some(terms) => {
                        terms.insert(TERM.to_owned(), term);
                    }
                    None => contexts.push(json!({ TERM: term })),
                }
            }
            other => *other = json!([other.take(), { TERM: term }]),
        }
    }

    fn text(&self) -> String {
        let mut query = form_urlencoded::Serializer::for_suffix(String::from(PREFIX), PREFIX.len());
        let mut put = |name: &str, value: Option<String>| {
            if let Some(value) = value {
                query.append_pair(name, &value);
            }
        };
        // A JSON value can always be serialized.
        let json = |value: Result<String, serde_json::Error>| value.unwrap_or_default();
        put("write", Some(Uuid::new_v4().simple().to_string()));
        put("created", self.created.map(|at| at.to_string()));
        put("updated", self.updated.map(|at| at.to_string()));
        for attribute in noted() {
            put(
                attribute.as_str(),
                self.attributes.get(attribute).map(|value| match value {
                    Value::Bool(true) => TRUE.to_owned(),
                    value => value.to_string(),
                }),
            );
        }
        put("token", (self.token > 0).then(|| self.token.to_string()));
        for (name, calls) in CALLS.iter().zip(&self.calls) {
            put(name, (!calls.is_empty()).then(|| calls.join(".")));
        }
        put("rev", (self.rev > 0).then(|| self.rev.to_string()));
        put("rev_of", self.rev_of.clone());
        put("status_v", self.status_v.map(|v| v.to_string()));
        put("status_meta", self.status_meta.as_ref().map(|meta| json(serde_json::to_string(meta))));
        put("lease", self.lease.as_ref().map(|lease| json(serde_json::to_string(lease))));
        put("config_v", self.config_v.map(|v| v.to_string()));
        query.finish()
    }
}

/// The context that Fluree writes.
pub(crate) fn context() -> Value {
    json!({ "f": "https://ns.flur.ee/db#" })
}

#[cfg(test)]
mod tests {
    use nameservice_model::LeaseName;

    use super::*;

    #[test]
    fn a_note_is_read_as_it_was_put_into_any_context() {
        let note = Note {
            created: Some(5),
            updated: Some(5_001),
            attributes: RecordAttributes { protected: true, ..RecordAttributes::default() },
            token: 3,
            calls: [vec!["ab".into(), "cd".into()], vec![], vec!["ef".into()], vec![]],
            rev: 1,
            rev_of: Some("bafy".into()),
            status_v: Some(2),
            status_meta: json!({"a b": [1, "&=?"]}).as_object().cloned(),
            lease: Some(Lease {
                name: LeaseName::INDEX,
                holder: "ä&=".into(),
                target_t: None,
                acquired_at: 1,
                expires_at: 2,
                refreshed_at: None,
            }),
            config_v: Some(4),
        };
        for mut context in [context(), json!("https://ns.flur.ee/"), json!([{"f": "x"}]), json!(null)] {
            let before = context.clone();
            note.put_into(&mut context);
            assert_eq!(Note::of(&context), note, "{context}");
            if let Some(terms) = before.as_object() {
                assert!(terms.iter().all(|(name, iri)| context[name] == *iri));
            }
            let once = context.to_string().len();
            note.put_into(&mut context);
            assert_eq!((Note::of(&context), context.to_string().len()), (note.clone(), once), "it is replaced");
        }
        assert_eq!(Note::of(&json!({"nameservice": 1})), Note::default());
    }
}
