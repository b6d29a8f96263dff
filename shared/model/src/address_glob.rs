use std::{fmt, hash, str::FromStr};

use wildmatch::WildMatch;

use crate::{Address, MAX_ADDRESS_BYTES};

/// A pattern that matches addresses, for the grants of tokens and for filters.
///
/// `*` matches any characters, including `/` and `:`; `?` matches one. A pattern without `:`, `*` and `?` is an address
/// without its branch: `mydb` means `mydb:main`.
#[derive(Clone)]
pub struct AddressGlob {
    text: String,
    matcher: WildMatch,
}

/// The error for text that is not an address pattern.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not a pattern of addresses: {reason}")]
pub struct InvalidGlob {
    text: String,
    reason: String,
}

impl AddressGlob {
    /// Parses a pattern. One that no address can match is an error.
    pub fn parse(text: &str) -> Result<Self, InvalidGlob> {
        let invalid =
            |reason: &str| Err(InvalidGlob { text: text.chars().take(80).collect(), reason: reason.to_owned() });
        if text.len() > MAX_ADDRESS_BYTES {
            return invalid("it is longer than an address");
        }
        if text.contains(['*', '?']) {
            if text.contains(['@', '%', '#', '\\']) || text.chars().any(char::is_control) {
                return invalid("no address holds `@`, `%`, `#`, `\\` or a control character");
            }
            if text.matches(':').count() > 1 {
                return invalid("no address holds more than one `:`");
            }
            return Ok(Self { matcher: WildMatch::new(text), text: text.to_owned() });
        }
        match Address::parse(text) {
            Ok(address) => Ok(Self { matcher: WildMatch::new(address.as_str()), text: address.as_str().to_owned() }),
            Err(error) => invalid(&error.to_string()),
        }
    }

    /// Returns whether an address matches the pattern.
    pub fn matches(&self, address: &Address) -> bool {
        self.matcher.matches(address.as_str())
    }

    /// Returns the pattern, with the default branch added if none was given.
    pub fn as_str(&self) -> &str {
        &self.text
    }
}

impl FromStr for AddressGlob {
    type Err = InvalidGlob;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::parse(text)
    }
}

impl fmt::Display for AddressGlob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl fmt::Debug for AddressGlob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("AddressGlob").field(&self.text).finish()
    }
}

impl PartialEq for AddressGlob {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl Eq for AddressGlob {}

impl hash::Hash for AddressGlob {
    fn hash<H: hash::Hasher>(&self, state: &mut H) {
        self.text.hash(state);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_crosses_slashes_and_colons_and_a_plain_name_means_main() {
        for (glob, address, matches) in [
            ("tenant/*", "tenant/a:main", true),
            ("tenant/*", "tenant/a/b:c/d", true),
            ("tenant/*", "tenant:main", false),
            ("tenant/*", "my/tenant/a:main", false),
            ("mydb", "mydb:main", true),
            ("mydb", "mydb:dev", false),
            ("mydb:*", "mydb:dev", true),
            ("mydb*", "mydb2:dev", true),
            ("x:dev*", "x:dev/1", true),
            ("x:d?v", "x:dev", true),
            ("x:d?v", "x:deev", false),
            ("*", "anything/at:all", true),
        ] {
            let address = Address::parse(address).unwrap();
            assert_eq!(AddressGlob::parse(glob).unwrap().matches(&address), matches, "{glob} {address}");
        }
    }

    #[test]
    fn what_can_match_nothing_is_rejected() {
        for glob in ["", " ", "a@b", "a@*", "a:b:c", "a:*:c", "a//b", "a\\*", &"a".repeat(1_001)] {
            assert!(AddressGlob::parse(glob).is_err(), "{glob}");
        }
    }
}
