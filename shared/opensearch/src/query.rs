//! The query of a search, and the conversion of its answer.
//!
//! A hit's score is the sum over the words of how well each matches, so that sorting by score is sorting by rank.

use nameservice_model::{Address, Hit, Page, RecordKind, Result, SearchField, SearchQuery, Visible, Within, fold};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::document::{Document, END};

/// The score of a word that matches best. A match that is worse by one rank scores one less.
const BEST: u16 = 7;

/// Returns the body of a `_search` for at most `size` hits after a hit.
pub(crate) fn body(query: &SearchQuery, within: Option<&Within>, size: usize, after: Option<&Value>) -> Value {
    let must: Vec<Value> = query.words.words().iter().map(|word| of_word(word)).collect();
    let mut filter = Vec::new();
    let mut only = |field: &str, value: Option<String>| {
        filter.extend(value.map(|value| json!({ "term": { field: { "value": value } } })));
    };
    only("kind", query.kind.map(|kind| kind.as_str().to_owned()));
    only("type_text", query.source_type.as_deref().map(fold));
    only("state_text", query.state.as_deref().map(fold));
    filter.extend(within.map(of_addresses));
    let mut body = json!({
        "size": size,
        "track_total_hits": false,
        "query": { "bool": { "must": must, "filter": filter } },
        "sort": [{ "_score": "desc" }, { "kind": "asc" }, { "address": "asc" }],
    });
    if let Some(after) = after {
        body["search_after"] = after.clone();
    }
    body
}

/// Scores a word by its best match.
fn of_word(word: &str) -> Value {
    let scores = |fit: u16, queries: Vec<Value>| {
        let query = json!({ "bool": { "should": queries, "minimum_should_match": 1 } });
        json!({ "constant_score": { "filter": query, "boost": BEST - fit } })
    };
    let term = |field: &str| json!({ "term": { field: { "value": word } } });
    let prefix = |field: &str, text: String| json!({ "prefix": { field: { "value": text } } });
    let inside = |field: &str| json!({ "wildcard": { field: { "value": format!("*{}*", escaped(word)) } } });
    let segment = ['/', ':', END].map(|bound| prefix("starts", format!("{word}{bound}")));
    json!({ "dis_max": { "queries": [
        scores(0, vec![term("whole")]),
        scores(1, segment.to_vec()),
        scores(2, vec![prefix("starts", word.to_owned())]),
        scores(3, vec![prefix("words", word.to_owned())]),
        scores(4, vec![inside("text")]),
        scores(5, vec![inside("type_text"), inside("state_text")]),
        scores(6, vec![inside("config_text")]),
    ] } })
}

/// Filters the query by the addresses that the caller may see, so that nothing else is counted, ranked or paged over.
fn of_addresses(within: &Within) -> Value {
    let addresses: Vec<&str> = within.addresses.iter().map(Address::as_str).collect();
    let mut should = vec![json!({ "terms": { "address": addresses } })];
    // Globs and wildcard queries have the same two metacharacters.
    should.extend(within.globs.iter().map(|glob| json!({ "wildcard": { "address": { "value": glob.as_str() } } })));
    json!({ "bool": { "should": should, "minimum_should_match": 1 } })
}

/// Escapes the metacharacters of a wildcard query in a word.
fn escaped(word: &str) -> String {
    let mut escaped = String::with_capacity(word.len());
    for letter in word.chars() {
        if matches!(letter, '*' | '?' | '\\') {
            escaped.push('\\');
        }
        escaped.push(letter);
    }
    escaped
}

/// Returns the `search_after` values for the cursor of a query.
pub(crate) fn search_after(query: &SearchQuery) -> Option<Value> {
    let cursor = query.cursor.as_ref()?;
    Some(json!([score(query, cursor.rank().unwrap_or(0)), cursor.kind().as_str(), cursor.after()]))
}

/// Rank and score of a hit add up to this.
fn most(query: &SearchQuery) -> u16 {
    BEST * u16::try_from(query.words.words().len()).unwrap_or(u16::MAX / BEST)
}

fn score(query: &SearchQuery, rank: u16) -> u16 {
    most(query).saturating_sub(rank)
}

#[derive(Debug, Deserialize)]
pub(crate) struct Answer {
    pub(crate) hits: Hits,
    #[serde(default)]
    pub(crate) timed_out: bool,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Hits {
    pub(crate) hits: Vec<Found>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Found {
    #[serde(rename = "_source")]
    pub(crate) source: Document,
    #[serde(default)]
    pub(crate) sort: Vec<Value>,
}

/// Returns the hits of an answer to a query for one more than the page has.
pub(crate) fn page(query: &SearchQuery, visible: Visible<'_>, found: Vec<Found>) -> Result<Page<Hit>> {
    let limit = query.limit.get();
    let more = found.len() > limit;
    // The cursor names the last hit that the caller may see.
    let mut cursor = None;
    let mut items = Vec::new();
    for found in found.into_iter().take(limit) {
        let score = found.sort.first().and_then(Value::as_f64).unwrap_or_default();
        let rank = most(query).saturating_sub(score.round() as u16);
        let Some(hit) = hit(query, &found.source, rank) else { continue };
        if visible(&hit.address) {
            cursor = Some(hit.cursor());
            items.push(hit);
        }
    }
    Ok(Page { items, cursor: cursor.filter(|_| more) })
}

fn hit(query: &SearchQuery, document: &Document, rank: u16) -> Option<Hit> {
    let kind: RecordKind = document.kind()?;
    let texts = [&document.text, &document.type_text, &document.state_text, &document.config_text];
    let mut is_matched = [false; 4];
    for word in query.words.words() {
        // The first field that contains the word.
        if let Some(at) = texts.iter().position(|text| text.contains(word.as_str()))
            && let Some(is_matched) = is_matched.get_mut(at)
        {
            *is_matched = true;
        }
    }
    let matched = SearchField::ALL.into_iter().zip(is_matched).filter(|(_, is)| *is).map(|(field, _)| field).collect();
    Some(Hit {
        address: Address::parse(&document.address).ok()?,
        kind,
        retracted: document.retracted,
        source_type: document.source_type.clone(),
        state: document.state.clone(),
        matched,
        rank,
    })
}
