//! Strong entity tags: a hash over the bytes of a representation.

use axum::http::{HeaderMap, HeaderName, HeaderValue, header};
use sha2::{Digest, Sha256};

/// Names one representation.
#[derive(Clone, Debug)]
pub struct ETag(String);

impl ETag {
    /// The tag of these bytes.
    pub fn of(representation: &[u8]) -> Self {
        Self(format!("\"{}\"", base16ct::lower::encode_string(&Sha256::digest(representation))))
    }

    /// Returns the tag as a header.
    pub fn header(&self) -> (HeaderName, HeaderValue) {
        // Hexadecimal digits in quotes are a header value.
        (header::ETAG, HeaderValue::try_from(&self.0).unwrap_or(HeaderValue::from_static("\"\"")))
    }

    /// Whether `If-None-Match` lists it: `*`, or any of the tags, weak or not (RFC 9110 §13.1.2).
    pub fn is_in(&self, headers: &HeaderMap) -> bool {
        headers
            .get_all(header::IF_NONE_MATCH)
            .iter()
            .filter_map(|value| value.to_str().ok())
            .flat_map(|list| list.split(','))
            .map(str::trim)
            .any(|tag| tag == "*" || tag.strip_prefix("W/").unwrap_or(tag) == self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_are_compared_weakly_in_lists() {
        let tag = ETag::of(b"a");
        let headers = |value: &str| HeaderMap::from_iter([(header::IF_NONE_MATCH, value.parse().unwrap())]);
        for seen in [tag.0.clone(), format!("W/{}", tag.0), format!("\"x\", {}", tag.0), "*".to_owned()] {
            assert!(tag.is_in(&headers(&seen)), "{seen}");
        }
        assert!(!tag.is_in(&headers("\"x\"")) && !tag.is_in(&HeaderMap::new()));
    }
}
