use std::fmt;

use uuid::Uuid;

/// The identity of one write call, by which a repetition of it is recognised.
///
/// It consists of two hashes: the first covers the caller and the idempotency key, the second the rest of the request
/// (method, path, body). Two calls with the same id are the same call. Two calls that share only the first hash are
/// different requests under one key, and the second of them is an error. Every item of a concern remembers the ids of
/// its last four writes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RequestId(String);

impl RequestId {
    /// The length of the first hash in the text, which covers the caller and the key.
    pub const PREFIX_LENGTH: usize = 32;
    /// The length of the second hash.
    const SPAN_LENGTH: usize = 16;

    /// Returns the id made of two hashes: one of the caller and the key, one of the rest of the request. The second
    /// only distinguishes requests under one key, so it is shorter.
    pub fn from_hashes(key: [u8; 16], rest: [u8; 8]) -> Self {
        Self(format!("{:032x}{:016x}", u128::from_be_bytes(key), u64::from_be_bytes(rest)))
    }

    /// Returns an id as it was stored.
    pub fn stored(id: impl Into<String>) -> Self {
        Self(id.into())
    }

    /// Returns the text that is stored.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the hash of the caller and the key.
    pub fn prefix(&self) -> &str {
        self.0.get(..Self::PREFIX_LENGTH).unwrap_or(&self.0)
    }

    /// Returns the trace context of everything that follows from the call, as a W3C `traceparent`: the first hash is
    /// the trace id, the second the id of the parent span. Everyone who reads the id from an item derives the same
    /// context. `None` for a stored id in another format.
    pub fn traceparent(&self) -> Option<String> {
        let is_hash = |hash: &str| {
            hash.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f')) && hash.bytes().any(|byte| byte != b'0')
        };
        let (trace, span) = self.0.split_at_checked(Self::PREFIX_LENGTH)?;
        let is_ours = span.len() == Self::SPAN_LENGTH && is_hash(trace) && is_hash(span);
        is_ours.then(|| format!("00-{trace}-{span}-01"))
    }

    /// Returns whether a stored id belongs to another request under the same key.
    pub fn shares_key_with(&self, stored: &str) -> bool {
        stored != self.0 && stored.starts_with(self.prefix())
    }
}

impl fmt::Display for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl AsRef<str> for RequestId {
    fn as_ref(&self) -> &str {
        self.as_str()
    }
}

/// The context of a write: the call that it serves.
#[derive(Clone, Debug)]
pub struct Call {
    /// The identity of the call.
    pub request_id: RequestId,
    /// Whether it may store ids that Fluree's engine cannot read, and create ledgers that Fluree would not create, in a place that
    /// is shared with Fluree: for administrators.
    pub allow_foreign: bool,
}

impl Call {
    /// Returns a call with this id. A call that is repeated with the same id is applied once.
    pub fn with_id(request_id: RequestId) -> Self {
        Self { request_id, allow_foreign: false }
    }

    /// Returns the same call, which may store ids that Fluree's engine cannot read, and create ledgers that it would not create.
    #[must_use]
    pub const fn allowing_foreign(mut self, allow: bool) -> Self {
        self.allow_foreign = allow;
        self
    }

    /// Returns a call with a new random id.
    pub fn fresh() -> Self {
        let (rest, _) = Uuid::new_v4().as_u64_pair();
        Self::with_id(RequestId::from_hashes(*Uuid::new_v4().as_bytes(), rest.to_be_bytes()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_under_one_key_share_the_prefix_only() {
        let one = RequestId::from_hashes([0; 16], [1; 8]);
        let two = RequestId::from_hashes([0; 16], [2; 8]);
        let other = RequestId::from_hashes([1; 16], [1; 8]);
        assert_eq!(one.as_str(), "000000000000000000000000000000000101010101010101");
        assert_eq!(one.prefix(), two.prefix());
        assert!(one.shares_key_with(two.as_str()) && !one.shares_key_with(one.as_str()));
        assert!(!one.shares_key_with(other.as_str()) && !one.shares_key_with("-"));
        assert_ne!(Call::fresh().request_id.prefix(), Call::fresh().request_id.prefix());
    }

    #[test]
    fn an_id_of_ours_is_the_context_of_a_trace_and_nothing_else_is() {
        let id = RequestId::from_hashes([0xab; 16], [1; 8]);
        assert_eq!(id.traceparent().unwrap(), format!("00-{}-{}-01", "ab".repeat(16), "01".repeat(8)));
        assert!(Call::fresh().request_id.traceparent().is_some());
        let zero = RequestId::from_hashes([0; 16], [1; 8]);
        for stored in ["", "-", zero.as_str(), &id.as_str()[1..], &id.as_str().to_uppercase(), &"ä".repeat(24)] {
            assert_eq!(RequestId::stored(stored).traceparent(), None, "{stored}");
        }
    }
}
