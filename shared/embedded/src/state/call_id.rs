//! The identities of the calls that a concern remembers.

use std::sync::Arc;

use nameservice_model::RequestId;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

/// How many calls a concern remembers.
const REMEMBERED: usize = 4;
/// How many calls are remembered of an address: its purge, the oldest of each concern, and some of the purge before.
const OF_ADDRESS: usize = 8;
/// The bytes that identify the principal and the idempotency key.
const KEY_BYTES: usize = 16;
const BYTES: usize = 24;

/// A request id in 24 bytes: 16 identify the principal and the idempotency key, 8 the whole request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct CallId([u8; BYTES]);

impl CallId {
    fn key(&self) -> &[u8] {
        &self.0[..KEY_BYTES]
    }

    /// Returns the id as text.
    pub(crate) fn to_text(self) -> String {
        base16ct::lower::encode_string(&self.0)
    }

    /// Reads what [`to_text`](Self::to_text) returned.
    pub(crate) fn from_text(text: &str) -> Option<Self> {
        from_hex(text).map(Self)
    }
}

impl From<&RequestId> for CallId {
    fn from(id: &RequestId) -> Self {
        if let Some(bytes) = from_hex(id.as_str()) {
            return Self(bytes);
        }
        // An id in another form than `RequestId` creates: its hash serves as well.
        let mut bytes = [0; BYTES];
        bytes[..KEY_BYTES].copy_from_slice(&Sha256::digest(id.prefix())[..KEY_BYTES]);
        bytes[KEY_BYTES..].copy_from_slice(&Sha256::digest(id.as_str())[..BYTES - KEY_BYTES]);
        Self(bytes)
    }
}

fn from_hex(text: &str) -> Option<[u8; BYTES]> {
    let mut bytes = [0; BYTES];
    (base16ct::lower::decode(text, &mut bytes).ok()?.len() == BYTES).then_some(bytes)
}

/// The last calls that wrote a concern, the newest first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Ring(Arc<[CallId]>);

impl Default for Ring {
    /// A ring that remembers no call.
    fn default() -> Self {
        Self(Arc::from([]))
    }
}

impl Ring {
    /// Returns a ring that begins with one call. Clones share their memory: all concerns of a new record use the same
    /// ring.
    pub(crate) fn begun_by(id: CallId) -> Self {
        Self(Arc::from([id]))
    }

    /// Returns a ring that remembers these calls, the newest first.
    pub(crate) fn of(calls: impl Iterator<Item = CallId>) -> Self {
        Self(calls.take(REMEMBERED).collect())
    }

    /// Returns a ring of the first of these calls, each of them once: what is remembered of an address.
    pub(crate) fn of_distinct(calls: impl Iterator<Item = CallId>) -> Self {
        let mut distinct = Vec::with_capacity(OF_ADDRESS);
        for call in calls {
            if distinct.len() < OF_ADDRESS && !distinct.contains(&call) {
                distinct.push(call);
            }
        }
        Self(distinct.into())
    }

    /// Returns the calls, the newest first.
    pub(crate) fn iter(&self) -> impl Iterator<Item = CallId> {
        self.0.iter().copied()
    }

    /// Returns the oldest of the calls.
    pub(crate) fn oldest(&self) -> Option<CallId> {
        self.0.last().copied()
    }

    /// Returns how many calls the ring has after another one.
    pub(crate) fn len_after_one_more(&self) -> usize {
        (self.0.len() + 1).min(REMEMBERED)
    }

    /// Returns the calls as text, the newest first.
    pub(crate) fn texts(&self) -> Vec<String> {
        self.iter().map(CallId::to_text).collect()
    }

    /// Remembers a call. If there are more than four, the oldest is forgotten.
    pub(crate) fn remember(&mut self, id: CallId) {
        let kept = &self.0[..self.0.len().min(REMEMBERED - 1)];
        self.0 = std::iter::once(id).chain(kept.iter().copied()).collect();
    }

    /// Returns whether the ring remembers the call.
    pub(crate) fn remembers(&self, id: CallId) -> bool {
        self.0.contains(&id)
    }

    /// Returns whether no other call has written since this one.
    pub(crate) fn ends_with(&self, id: CallId) -> bool {
        self.0.first() == Some(&id)
    }

    /// Returns whether another request was made under the key of this one.
    pub(crate) fn knows_key_of(&self, id: CallId) -> bool {
        self.0.iter().any(|known| known.key() == id.key() && *known != id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(key: u8, rest: u8) -> CallId {
        CallId::from(&RequestId::from_hashes([key; 16], [rest; 8]))
    }

    #[test]
    fn a_ring_remembers_the_last_four() {
        let mut ring = Ring::begun_by(id(0, 0));
        for n in 1..=4 {
            ring.remember(id(n, n));
        }
        assert!(!ring.remembers(id(0, 0)));
        assert!((1..=4).all(|n| ring.remembers(id(n, n))));
        assert!(ring.ends_with(id(4, 4)) && !ring.ends_with(id(3, 3)));
    }

    #[test]
    fn a_key_is_reused_by_another_request_under_it() {
        let ring = Ring::begun_by(id(1, 1));
        assert!(ring.knows_key_of(id(1, 2)));
        assert!(!ring.knows_key_of(id(1, 1)));
        assert!(!ring.knows_key_of(id(2, 1)));
    }

    #[test]
    fn ids_of_any_form_differ_where_their_texts_do() {
        let of = |text: &str| CallId::from(&RequestId::stored(text));
        assert_eq!(of("a"), of("a"));
        assert_ne!(of("a"), of("b"));
        assert_ne!(of(&"0".repeat(48)), of(&"z".repeat(48)));
    }
}
