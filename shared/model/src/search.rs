use std::fmt;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use strum::{AsRefStr, Display, EnumString, IntoStaticStr};

use crate::{Address, AddressGlob, Cursor, Limit, Page, RecordKind, Result, UnknownName, Visible, redact};

/// The longest text that can be searched for, in bytes.
pub const MAX_SEARCH_BYTES: usize = 256;
/// The most words of a search.
pub const MAX_SEARCH_WORDS: usize = 8;
/// How much of a configuration is searchable, in bytes of its values.
pub const MAX_SEARCHED_CONFIG_BYTES: usize = 4 * 1024;

/// The words of a search, in lower case: 1 to [`MAX_SEARCH_WORDS`], none of them empty.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SearchWords(Vec<String>);

/// The error for text that cannot be searched for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidSearch {
    /// It has no words.
    #[error("has no words: name what to search for")]
    Empty,
    /// It is too long.
    #[error("has more than {MAX_SEARCH_BYTES} bytes")]
    TooLong,
    /// It has too many words.
    #[error("has more than {MAX_SEARCH_WORDS} words")]
    TooManyWords,
}

impl SearchWords {
    /// Parses the text of a search: words are separated by white space, and case is ignored.
    pub fn parse(text: &str) -> std::result::Result<Self, InvalidSearch> {
        if text.len() > MAX_SEARCH_BYTES {
            return Err(InvalidSearch::TooLong);
        }
        let folded = fold(text);
        let mut words: Vec<String> = folded.split_whitespace().map(str::to_owned).collect();
        words.sort_unstable();
        words.dedup();
        match words.len() {
            0 => Err(InvalidSearch::Empty),
            1..=MAX_SEARCH_WORDS => Ok(Self(words)),
            _ => Err(InvalidSearch::TooManyWords),
        }
    }

    /// Returns the words.
    pub fn words(&self) -> &[String] {
        &self.0
    }
}

impl fmt::Display for SearchWords {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.join(" "))
    }
}

/// Returns a text in the form that is searched: in lower case, without control characters.
pub fn fold(text: &str) -> String {
    let visible = |letter: char| if letter.is_control() { ' ' } else { letter };
    text.chars().map(visible).flat_map(char::to_lowercase).collect()
}

/// Returns the searchable text of a configuration: its texts (folded by [`fold`]) and numbers, separated by spaces; at
/// most [`MAX_SEARCHED_CONFIG_BYTES`]. One with secrets has none: what some callers see redacted, nobody searches.
pub fn searched_config(config: &Value) -> String {
    let mut shown = config.clone();
    redact(&mut shown);
    let mut text = String::new();
    if shown != *config {
        return text;
    }
    collect(config, &mut text);
    if text.len() > MAX_SEARCHED_CONFIG_BYTES {
        text.truncate(text.floor_char_boundary(MAX_SEARCHED_CONFIG_BYTES));
    }
    text
}

fn collect(value: &Value, text: &mut String) {
    if text.len() > MAX_SEARCHED_CONFIG_BYTES {
        return;
    }
    let mut add = |value: &str| {
        if !text.is_empty() {
            text.push(' ');
        }
        text.push_str(value);
    };
    match value {
        Value::String(value) => add(&fold(value)),
        Value::Number(value) => add(&value.to_string()),
        Value::Array(values) => values.iter().for_each(|value| collect(value, text)),
        Value::Object(members) => members.values().for_each(|value| collect(value, text)),
        Value::Null | Value::Bool(_) => {}
    }
}

/// Selects the records of a search: those that contain every word and pass every filter.
#[derive(Clone, Debug)]
pub struct SearchQuery {
    /// The words. Each of them is in the address, the type, the state, or a value of the configuration.
    pub words: SearchWords,
    /// Only this kind.
    pub kind: Option<RecordKind>,
    /// Only graph sources of this type.
    pub source_type: Option<String>,
    /// Only records in this state.
    pub state: Option<String>,
    /// The maximum number.
    pub limit: Limit,
    /// The cursor of the page before.
    pub cursor: Option<Cursor>,
}

impl SearchQuery {
    /// Returns the query for these words, without filters.
    pub fn new(words: SearchWords) -> Self {
        Self { words, kind: None, source_type: None, state: None, limit: Limit::default(), cursor: None }
    }
}

/// The addresses that a caller may see, as granted by its token.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Within {
    /// Those that match one of these patterns.
    pub globs: Vec<AddressGlob>,
    /// And exactly these addresses.
    pub addresses: Vec<Address>,
}

/// A search index that is kept beside a backend and follows its feed.
#[async_trait]
pub trait SearchIndex: Send + Sync {
    /// Returns a page of the records that contain every word of a search, the best first. `within` names the addresses
    /// that the caller may see, unless it may see all of them; `visible` makes the final decision.
    async fn search(&self, query: &SearchQuery, within: Option<&Within>, visible: Visible<'_>) -> Result<Page<Hit>>;
}

/// A part of a record that can be searched.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    Hash,
    PartialOrd,
    Ord,
    Serialize,
    Deserialize,
    AsRefStr,
    Display,
    EnumString,
    IntoStaticStr,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case", parse_err_ty = UnknownName, parse_err_fn = Self::unknown)]
pub enum SearchField {
    /// The address.
    Address,
    /// The type of a graph source.
    SourceType,
    /// The state.
    State,
    /// A value of the configuration.
    Config,
}

impl SearchField {
    /// Every part.
    pub const ALL: [Self; 4] = [Self::Address, Self::SourceType, Self::State, Self::Config];

    /// Returns the name in JSON.
    pub fn as_str(self) -> &'static str {
        self.into()
    }

    fn unknown(name: &str) -> UnknownName {
        UnknownName::new("part that is searched", name, Self::ALL.map(Self::as_str))
    }
}

/// A record that was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hit {
    /// Its identity.
    pub address: Address,
    /// What it describes.
    pub kind: RecordKind,
    /// Soft-deleted.
    pub retracted: bool,
    /// The type of a graph source.
    pub source_type: Option<String>,
    /// Its state.
    pub state: String,
    /// Where the words were found, in the order of [`SearchField::ALL`].
    pub matched: Vec<SearchField>,
    /// How well it fits: hits come in the order of their ranks, the smallest first, and those of one rank in the order of
    /// lists.
    pub rank: u16,
}

impl Hit {
    /// Returns the cursor of a page that ends with this hit.
    pub fn cursor(&self) -> Cursor {
        Cursor::after_hit(self.kind, self.address.as_str(), self.rank)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn words_are_folded_distinct_and_bounded() {
        assert_eq!(
            SearchWords::parse(" B\u{7}ooks  über\tbooks Ooks ").unwrap().words(),
            ["b", "books", "ooks", "über"]
        );
        assert_eq!(SearchWords::parse(" \u{0} \n"), Err(InvalidSearch::Empty));
        assert_eq!(SearchWords::parse(&"a".repeat(257)), Err(InvalidSearch::TooLong));
        assert_eq!(SearchWords::parse("a b c d e f g h i"), Err(InvalidSearch::TooManyWords));
        assert_eq!(SearchWords::parse("a b c d e f g h").map(|words| words.words().len()), Ok(8));
    }

    #[test]
    fn a_configuration_with_a_secret_is_not_searched() {
        let plain = json!({ "catalog": { "type": "REST", "url": "https://db.example/x?a=b", "retries": 3 }, "tables": ["Orders", null, true] });
        let text = searched_config(&plain);
        for word in ["rest", "db.example", "3", "orders"] {
            assert!(text.contains(word), "{word}: {text}");
        }
        assert!(!text.contains("true") && !text.contains("catalog"), "names and flags are no values: {text}");
        for secret in [
            json!({ "url": "https://u:Hidden@db.example/x" }),
            json!({ "password": "Hidden" }),
            json!([{ "name": "PASSWORD", "value": "Hidden" }]),
        ] {
            let mut config = plain.clone();
            config["more"] = secret;
            assert_eq!(searched_config(&config), "", "{config}");
        }
    }

    #[test]
    fn a_large_configuration_is_searched_up_to_a_bound() {
        let text = searched_config(&json!(vec!["größer"; 2_000]));
        assert!(text.len() <= MAX_SEARCHED_CONFIG_BYTES && text.len() > MAX_SEARCHED_CONFIG_BYTES - 2);
    }
}
