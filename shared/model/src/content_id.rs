use std::{fmt, str::FromStr, sync::Arc};

use cid::{Cid, Version};
use serde::{Deserialize, Serialize};

/// The name of immutable content: a CIDv1 in base32-lower text (`bafy…`, `bafk…`).
///
/// A parsed id is canonical: decoding and encoding it again gives the same text. All clones share one text.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ContentId(Arc<str>);

/// The error for text that is not a content id.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not a content id (a CIDv1 in base32-lower text, `bafy…`): {reason}")]
pub struct InvalidContentId {
    text: String,
    reason: String,
}

impl InvalidContentId {
    /// Returns the error for a JSON value that is not a string.
    pub(crate) fn not_a_text(value: &serde_json::Value) -> Self {
        Self { text: value.to_string().chars().take(80).collect(), reason: "it must be a string".into() }
    }
}

impl ContentId {
    /// Parses a CIDv1 in base32-lower text.
    pub fn parse(text: &str) -> Result<Self, InvalidContentId> {
        let invalid = |reason: String| InvalidContentId { text: text.chars().take(80).collect(), reason };
        if text.len() > 512 {
            return Err(invalid(format!("it has {} bytes", text.len())));
        }
        let cid = Cid::try_from(text).map_err(|error| invalid(error.to_string()))?;
        if cid.version() != Version::V1 {
            return Err(invalid("it is a CIDv0".into()));
        }
        if cid.to_string() != text {
            return Err(invalid(format!("its base32-lower form is `{cid}`")));
        }
        Ok(Self(Arc::from(text)))
    }

    /// Returns a stored id, unchecked: what another program stored must stay readable.
    pub fn stored(text: impl Into<Arc<str>>) -> Self {
        Self(text.into())
    }

    /// Returns the text, shared with the id.
    pub fn shared(&self) -> Arc<str> {
        self.0.clone()
    }

    /// Returns the codec of the content, as multicodec numbers it; `None` if what is stored is no content id.
    pub fn codec(&self) -> Option<u64> {
        Cid::try_from(&*self.0).ok().map(|cid| cid.codec())
    }

    /// Returns the text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ContentId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for ContentId {
    type Err = InvalidContentId;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::parse(text)
    }
}

impl TryFrom<String> for ContentId {
    type Error = InvalidContentId;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        Self::parse(&text)
    }
}

impl TryFrom<&str> for ContentId {
    type Error = InvalidContentId;

    fn try_from(text: &str) -> Result<Self, Self::Error> {
        Self::parse(text)
    }
}

impl AsRef<str> for ContentId {
    fn as_ref(&self) -> &str {
        self.as_str()
    }
}

impl Serialize for ContentId {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for ContentId {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::parse(&text).map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SAMPLE: &str = "bafybeigdyrzt5sfp7udm7hu76uh7y26nf3efuylqabf3oclgtqy55fbzdi";

    #[test]
    fn only_canonical_base32_lower_cidv1_is_accepted() {
        assert_eq!(ContentId::parse(SAMPLE).unwrap().as_str(), SAMPLE);
        for (text, reason) in [
            ("", "too short"),
            ("bafybeigdyr...commitCid", ""),
            ("QmYwAPJzv5CZsnA625s3Xf2nemtYgPpHdWEz79ojWKPbdG", "CIDv0"),
            ("zdj7WWeQ43G6JJvLWQWZpyHuAMq6uYWRjkBXFad11vE2LHhQ7", "base32-lower form"),
            (&SAMPLE.to_uppercase(), ""),
            (&format!("{SAMPLE}a"), ""),
            (&"b".repeat(600), "600 bytes"),
        ] {
            let error = ContentId::parse(text).unwrap_err().to_string();
            assert!(error.to_lowercase().contains(&reason.to_lowercase()), "{text}: {error}");
        }
    }

    proptest! {
        #[test]
        fn every_digest_round_trips(digest in any::<[u8; 32]>(), codec in prop_oneof![Just(0x55u64), Just(0x70), Just(0x30_0001)]) {
            let hash = cid::multihash::Multihash::<64>::wrap(0x12, &digest).unwrap();
            let text = Cid::new_v1(codec, hash).to_string();
            let parsed = ContentId::parse(&text).unwrap();
            prop_assert_eq!(parsed.as_str(), text.as_str());
        }

        #[test]
        fn garbage_is_rejected_without_a_panic(text in any::<String>()) {
            if let Ok(id) = ContentId::parse(&text) {
                prop_assert_eq!(Cid::try_from(id.as_str()).unwrap().to_string(), text);
            }
        }
    }
}
