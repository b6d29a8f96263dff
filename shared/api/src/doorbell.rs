//! The doorbell of the change feed: a channel of AppSync Events for each record, whose events announce a new position.
//!
//! A ring may be lost, delayed or duplicated. A reader keeps the position up to which it has read the feed, and on each ring and
//! after each connection reads what follows it: `GET /v1/changes?after=`.

use nameservice_model::Address;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::changes::Change;

/// The maximum number of segments after the namespace of a channel. The last is the branch.
const MAX_SEGMENTS: usize = 4;
/// The longest segment, in characters.
const MAX_SEGMENT: usize = 50;
/// How many bytes of a digest fit into a segment after its mark: 192 bits.
const DIGEST_BYTES: usize = (MAX_SEGMENT - 2) / 2;

/// An event of a channel.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Ring {
    /// The position of the newest change of the record, as the publisher knows it.
    pub position: u64,
    /// That change, if it is short. Changes before it may have had no ring of their own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub change: Option<Change>,
}

/// Returns the channel of a record: `/<namespace>/<name>/<branch>`, with up to three segments of the name. The third holds the
/// rest of a longer name.
///
/// AppSync allows letters, digits, and `-` within a segment. Any other byte, and `Z`, is `Z` and two hexadecimal digits; an empty
/// segment is `Z`. A segment that is then longer than 50 characters is replaced by `ZH` and the first 192 bits of the SHA-256 of
/// the original. So two addresses never have the same channel, unless two such digests are equal.
pub fn channel(namespace: &str, address: &Address) -> String {
    let mut channel = format!("/{namespace}");
    for part in address.name().splitn(MAX_SEGMENTS - 1, '/').chain([address.branch()]) {
        channel.push('/');
        channel.push_str(&segment(part));
    }
    channel
}

fn segment(part: &str) -> String {
    let last = part.len().saturating_sub(1);
    let mut segment = String::with_capacity(part.len());
    for (i, byte) in part.bytes().enumerate() {
        match byte {
            b'0'..=b'9' | b'a'..=b'z' | b'A'..=b'Y' => segment.push(char::from(byte)),
            b'-' if i > 0 && i < last => segment.push('-'),
            _ => segment.push_str(&format!("Z{byte:02X}")),
        }
    }
    if segment.is_empty() {
        segment.push('Z');
    }
    if segment.len() > MAX_SEGMENT {
        let digest = Sha256::digest(part.as_bytes());
        segment = format!("ZH{}", base16ct::lower::encode_string(&digest[..DIGEST_BYTES]));
    }
    segment
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(address: &str) -> String {
        channel("names", &Address::stored(address))
    }

    /// The address of a channel without digests.
    fn decoded(channel: &str) -> String {
        let segments: Vec<String> = channel.split('/').skip(2).map(unescaped).collect();
        let (branch, name) = segments.split_last().unwrap();
        format!("{}:{branch}", name.join("/"))
    }

    fn unescaped(segment: &str) -> String {
        let (mut bytes, mut rest) = (Vec::new(), if segment == "Z" { "" } else { segment });
        while let Some(first) = rest.bytes().next() {
            let (byte, length) = match first {
                b'Z' => (u8::from_str_radix(&rest[1..3], 16).unwrap(), 3),
                byte => (byte, 1),
            };
            bytes.push(byte);
            rest = &rest[length..];
        }
        String::from_utf8(bytes).unwrap()
    }

    /// Whether AppSync accepts a channel (`[A-Za-z0-9](?:[A-Za-z0-9\-]{0,48}[A-Za-z0-9])?`, five segments).
    fn is_allowed(channel: &str) -> bool {
        let segments: Vec<&str> = channel.split('/').skip(1).collect();
        let fits = |segment: &&str| {
            (1..=50).contains(&segment.len())
                && segment.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
                && !segment.starts_with('-')
                && !segment.ends_with('-')
        };
        (2..=5).contains(&segments.len()) && segments.iter().all(fits)
    }

    #[test]
    fn the_channels_of_the_documentation() {
        for (address, channel) in [
            ("mydb:main", "/names/mydb/main"),
            ("tenant/a/books:main", "/names/tenant/a/books/main"),
            ("tenant/a/books/2026:main", "/names/tenant/a/booksZ2F2026/main"),
            ("my_db:feature/x", "/names/myZ5Fdb/featureZ2Fx"),
            ("Zoo:v1.2", "/names/Z5Aoo/v1Z2E2"),
            ("-a-b-:main", "/names/Z2Da-bZ2D/main"),
            ("b\u{fc}cher:main", "/names/bZC3ZBCcher/main"),
        ] {
            assert_eq!(of(address), channel);
        }
        let long = format!("{}:main", "x".repeat(51));
        assert_eq!(of(&long), "/names/ZH3ecd502af72c4cf4414ffb5c7eb7bdf2471bb7defa6bab58/main");
    }

    /// Every name and branch over a small alphabet that includes the awkward characters.
    #[test]
    fn no_two_addresses_share_a_channel() {
        let alphabet = ["a", "Z", "H", "-", "/", "2", "_"];
        let mut texts = vec![String::new()];
        let mut from = 0;
        for _ in 0..4 {
            let to = texts.len();
            for i in from..to {
                for letter in alphabet {
                    let longer = format!("{}{letter}", texts[i]);
                    texts.push(longer);
                }
            }
            from = to;
        }
        assert_eq!(texts.len(), 1 + 7 + 49 + 343 + 2401);
        for text in &texts {
            for address in [format!("{text}:main"), format!("a:{text}"), format!("a/{text}:{text}")] {
                let channel = of(&address);
                assert!(is_allowed(&channel), "{address} {channel}");
                assert_eq!(decoded(&channel), address, "{channel}");
            }
        }
    }

    #[test]
    fn a_long_segment_is_a_digest_that_no_escape_can_be() {
        let names = ["x".repeat(50), "x".repeat(51), "x".repeat(900), "_".repeat(16), "_".repeat(17), "_".repeat(300)];
        let mut channels = Vec::new();
        for name in &names {
            for address in [format!("{name}:main"), format!("a/b/{name}:main"), format!("a/b/c/{name}:main")] {
                let channel = of(&address);
                assert!(is_allowed(&channel), "{channel}");
                channels.push(channel);
            }
        }
        let of_digests = channels.iter().filter(|channel| channel.contains("/ZH")).count();
        assert_eq!(of_digests, 3 * 4 + 1 + 1, "of the longer ones, and of `c/…` with the two that just fit");
        channels.sort();
        channels.dedup();
        assert_eq!(channels.len(), 18);
    }
}
