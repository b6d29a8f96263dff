//! Secrets in texts: JSON inside of a text, elements of XML, options, tokens.

use serde_json::Value;

use super::{
    LABELS, REDACTED, is_secret_label,
    named::without_named,
    names::{is_next_option, is_option},
    redact,
    urls::without_user_info,
};

/// What is a secret in any text, and how many characters follow it at least: more if a word may begin so.
const TOKEN_PREFIXES: [(&str, usize); 26] = [
    ("bearer ", 8),
    ("basic ", 8),
    ("eyj", 8),
    ("akia", 8),
    ("asia", 8),
    ("ghp_", 8),
    ("gho_", 8),
    ("ghu_", 8),
    ("ghs_", 8),
    ("ghr_", 8),
    ("github_pat_", 8),
    ("xoxb-", 8),
    ("xoxp-", 8),
    ("xapp-", 8),
    ("sk_live_", 8),
    ("sk_test_", 8),
    ("rk_live_", 8),
    ("glpat-", 8),
    ("hvs.", 20),
    ("sk-", 20),
    ("aiza", 30),
    ("hf_", 30),
    ("npm_", 30),
    ("dapi", 30),
    ("pypi-", 30),
    ("sg.", 40),
];

/// Returns a text without the secrets in it; `None` if there are none.
pub(super) fn redacted_text(text: &str) -> Option<String> {
    if text.contains("PRIVATE KEY-----") {
        return Some(REDACTED.to_owned());
    }
    if text.trim_start().starts_with(['{', '[', '"'])
        && let Ok(mut inner) = serde_json::from_str::<Value>(text)
    {
        let before = inner.clone();
        redact(&mut inner);
        return (inner != before).then(|| inner.to_string());
    }
    let mut out = text.to_owned();
    let steps = [
        within_json,
        within_escapes,
        without_elements,
        without_user_info,
        without_options,
        without_named,
        without_tokens,
    ];
    for replace in steps {
        if let Some(redacted) = replace(&out) {
            out = redacted;
        }
    }
    (out != text).then_some(out)
}

/// Redacts each object and array of JSON inside of a text.
fn within_json(text: &str) -> Option<String> {
    let (mut out, mut rest, mut found) = (String::new(), text, false);
    while let Some(at) = rest.find(['{', '[']) {
        let (before, json) = rest.split_at(at);
        out.push_str(before);
        let mut values = serde_json::Deserializer::from_str(json).into_iter::<Value>();
        let value = values.next().and_then(Result::ok);
        // A bracket that begins no JSON.
        let end = if value.is_some() { values.byte_offset() } else { 1 };
        let mut redacted = value.clone();
        redacted.iter_mut().for_each(redact);
        match redacted {
            Some(redacted) if value.as_ref() != Some(&redacted) => {
                found = true;
                out.push_str(&redacted.to_string());
            }
            _ => out.push_str(&json[..end]),
        }
        rest = &json[end..];
    }
    out.push_str(rest);
    found.then_some(out)
}

/// Redacts what is written with the escapes of JSON inside of a text, as it is without them: `{\"password\":\"x\"}`.
fn within_escapes(text: &str) -> Option<String> {
    if !text.contains("\\\"") {
        return None;
    }
    let (mut out, mut found) = (String::new(), false);
    let (mut begin, mut is_escaped) = (0, false);
    let mut quotes: Vec<usize> = Vec::new();
    for (at, byte) in text.bytes().enumerate() {
        if byte == b'"' && !is_escaped {
            quotes.push(at);
        }
        is_escaped = byte == b'\\' && !is_escaped;
    }
    for end in quotes.into_iter().chain([text.len()]) {
        let part = &text[begin..end];
        match redacted_escaped(part) {
            Some(redacted) => {
                found = true;
                out.push_str(&redacted);
            }
            None => out.push_str(part),
        }
        out.push_str(&text[end..(end + 1).min(text.len())]);
        begin = end + 1;
    }
    found.then_some(out)
}

/// Redacts a text as it is without its escapes. Returns it with them.
fn redacted_escaped(text: &str) -> Option<String> {
    if !text.contains("\\\"") {
        return None;
    }
    let quoted = format!("\"{text}\"");
    if let Ok(plain) = serde_json::from_str::<String>(&quoted) {
        let redacted = Value::String(redacted_text(&plain)?).to_string();
        return redacted.strip_prefix('"')?.strip_suffix('"').map(str::to_owned);
    }
    // Other escapes, or none: only quotes and backslashes are read.
    let (mut plain, mut letters) = (String::new(), text.chars().peekable());
    while let Some(letter) = letters.next() {
        let escaped = if letter == '\\' { letters.next_if(|next| matches!(next, '"' | '\\')) } else { None };
        plain.push(escaped.unwrap_or(letter));
    }
    Some(redacted_text(&plain)?.replace('\\', "\\\\").replace('"', "\\\""))
}

/// Where a word of a text ends.
fn word_end(text: &str) -> usize {
    text.find(|c: char| c.is_whitespace() || matches!(c, '"' | '\'' | '<' | '>' | '`')).unwrap_or(text.len())
}

/// Removes the texts of XML elements whose name says that they are secrets, and of `<value>` after such a `<name>`.
fn without_elements(text: &str) -> Option<String> {
    let (mut out, mut rest, mut is_value, mut found) = (String::new(), text, false, false);
    // Where the next closing tag begins. It is looked for once, however many tags are opened before it.
    let mut closing = 0;
    while let Some((before, after)) = rest.split_once('<') {
        let Some((tag, inner)) = after.split_once('>') else { break };
        out.push_str(before);
        out.push('<');
        let shown = without_attributes(tag);
        found |= shown.is_some();
        out.push_str(shown.as_deref().unwrap_or(tag));
        out.push('>');
        rest = inner;
        let name = tag.split(char::is_whitespace).next().unwrap_or_default();
        if name.is_empty() || name.starts_with(['/', '!', '?']) || tag.ends_with('/') {
            continue;
        }
        let begin = text.len() - inner.len();
        if closing < begin {
            closing = inner.find("</").map_or(text.len(), |i| begin + i);
        }
        let content = &text[begin..closing];
        let is_label = LABELS.contains(&name.to_lowercase().as_str());
        if is_secret_label(name) || (is_value && !is_label) {
            found |= !content.is_empty() && content != REDACTED;
            out.push_str(if content.is_empty() { "" } else { REDACTED });
            rest = &inner[content.len()..];
            is_value = false;
        } else if is_label {
            is_value = is_secret_label(content.trim());
        }
    }
    out.push_str(rest);
    found.then_some(out)
}

/// Removes the values of attributes beside one that names a secret: `key="password" value="…"`.
fn without_attributes(tag: &str) -> Option<String> {
    // Each odd part is in quotes, after the name of its attribute.
    let quote = tag.chars().find(|c| matches!(c, '"' | '\''))?;
    let mut parts: Vec<&str> = tag.split(quote).collect();
    let is_label = |before: &str| {
        let name = before.trim_end().trim_end_matches('=').trim_end();
        let name = name.rsplit(char::is_whitespace).next().unwrap_or_default();
        LABELS.contains(&name.to_lowercase().as_str())
    };
    let is_secret = |pair: &[&str]| matches!(pair, [before, value] if is_label(before) && is_secret_label(value));
    if !parts.chunks(2).any(is_secret) {
        return None;
    }
    let mut found = false;
    for pair in parts.chunks_mut(2) {
        if let [before, value] = pair
            && !is_label(before)
            && !value.is_empty()
            && *value != REDACTED
        {
            (*value, found) = (REDACTED, true);
        }
    }
    found.then(|| parts.join(&quote.to_string()))
}

/// Removes the values of options: `--password x`.
fn without_options(text: &str) -> Option<String> {
    let (mut out, mut is_value, mut found) = (String::new(), false, false);
    for word in text.split_inclusive(char::is_whitespace) {
        let shown = word.trim_end();
        if is_value && !shown.is_empty() && !is_next_option(shown) {
            out.push_str(REDACTED);
            out.push_str(&word[shown.len()..]);
            (is_value, found) = (false, true);
            continue;
        }
        out.push_str(word);
        is_value = (is_value && shown.is_empty()) || (is_option(shown));
    }
    found.then_some(out)
}

/// Removes what has the form of a token.
fn without_tokens(text: &str) -> Option<String> {
    let lower = text.to_ascii_lowercase();
    let (mut out, mut from, mut found) = (String::new(), 0, false);
    let begins = |at: usize| text[..at].chars().next_back().is_none_or(|c| !c.is_alphanumeric());
    let mut at = 0;
    while at < text.len() {
        let prefix = TOKEN_PREFIXES.iter().find(|(prefix, _)| lower[at..].starts_with(prefix) && begins(at));
        if let Some((prefix, least)) = prefix {
            let rest = &text[at + prefix.len()..];
            // Where a word may begin so, it may be a path, too. That is decided before the end of the word is searched for: a path may
            // hold many such beginnings.
            let is_path = *least > 8 && rest.bytes().take(*least).any(|byte| byte == b'/');
            let word = if is_path { "" } else { &rest[..word_end(rest)] };
            let end = at + prefix.len() + word.len();
            if word.len() >= *least {
                let keep = if prefix.ends_with(' ') { prefix.len() } else { 0 };
                out.push_str(&text[from..at + keep]);
                out.push_str(REDACTED);
                (from, at, found) = (end, end, true);
                continue;
            }
        }
        at += text[at..].chars().next().map_or(1, char::len_utf8);
    }
    out.push_str(&text[from..]);
    found.then_some(out)
}
