use std::{fmt, str::FromStr, sync::Arc};

use serde::{Deserialize, Serialize};

/// The longest branch name, in bytes.
pub const MAX_BRANCH_BYTES: usize = 128;
/// The longest address (`name:branch`), in bytes: it fits a DynamoDB sort key with a prefix in front.
pub const MAX_ADDRESS_BYTES: usize = 1_000;

const DEFAULT_BRANCH: &str = "main";

/// The identity of a record, `name:branch`.
///
/// Invariants of a parsed address:
/// - exactly one `:`; `mydb` is read as `mydb:main`;
/// - neither part is blank, nor contains `:` `@` `%` `?` `#` `\` or a control character;
/// - no `/`-separated segment of either part is empty, `.` or `..`;
/// - the branch has at most [`MAX_BRANCH_BYTES`], the whole at most [`MAX_ADDRESS_BYTES`].
///
/// [`Address::stored`] skips these checks, for rows that other programs wrote.
///
/// All clones share one text.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Address(Arc<str>);

/// The error for text that is not an address.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not an address (`name:branch`): {reason}")]
pub struct InvalidAddress {
    text: String,
    reason: String,
}

impl Address {
    /// Parses an address. The branch defaults to `main`.
    pub fn parse(text: &str) -> Result<Self, InvalidAddress> {
        let (name, branch) = text.split_once(':').unwrap_or((text, DEFAULT_BRANCH));
        Self::from_parts(name, branch).map_err(|error| InvalidAddress { text: shortened(text), ..error })
    }

    /// Joins a name and a branch under the same rules.
    pub fn from_parts(name: &str, branch: &str) -> Result<Self, InvalidAddress> {
        let whole = format!("{name}:{branch}");
        let invalid = |reason: String| Err(InvalidAddress { text: shortened(&whole), reason });
        for (part, text) in [("name", name), ("branch", branch)] {
            if let Err(reason) = check_part(part, text) {
                return invalid(reason);
            }
        }
        if branch.len() > MAX_BRANCH_BYTES {
            return invalid(format!("the branch has {} bytes, {MAX_BRANCH_BYTES} are allowed", branch.len()));
        }
        if whole.len() > MAX_ADDRESS_BYTES {
            return invalid(format!("it has {} bytes, {MAX_ADDRESS_BYTES} are allowed", whole.len()));
        }
        Ok(Self(whole.into()))
    }

    /// Returns the address of a stored row, unchecked. Fluree allows names that [`Address::parse`]
    /// rejects; such rows are readable through the library, and never appear over HTTP.
    pub fn stored(pk: impl Into<Arc<str>>) -> Self {
        Self(pk.into())
    }

    /// Returns whether this address satisfies the grammar (always, unless it came from [`Address::stored`]).
    pub fn is_well_formed(&self) -> bool {
        Self::parse(&self.0).is_ok_and(|parsed| parsed == *self)
    }

    /// Returns the whole address, `name:branch`.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the part before the `:`.
    pub fn name(&self) -> &str {
        self.split().0
    }

    /// Returns the part after the `:`.
    pub fn branch(&self) -> &str {
        self.split().1
    }

    /// Returns the address of another branch of the same name.
    pub fn with_branch(&self, branch: &str) -> Result<Self, InvalidAddress> {
        Self::from_parts(self.name(), branch)
    }

    fn split(&self) -> (&str, &str) {
        self.0.rsplit_once(':').unwrap_or((&*self.0, DEFAULT_BRANCH))
    }
}

fn check_part(part: &str, text: &str) -> Result<(), String> {
    if text.trim().is_empty() {
        return Err(format!("the {part} is blank"));
    }
    if let Some(bad) = text.chars().find(|c| matches!(c, ':' | '@' | '%' | '?' | '#' | '\\')) {
        return Err(format!("the {part} contains `{bad}`"));
    }
    if text.chars().any(char::is_control) {
        return Err(format!("the {part} contains a control character"));
    }
    match text.split('/').find(|segment| matches!(*segment, "" | "." | "..")) {
        Some("") => Err(format!("the {part} has an empty segment")),
        Some(segment) => Err(format!("the {part} has a segment `{segment}`")),
        None => Ok(()),
    }
}

/// Shortens text for an error message, which quotes its input but never at full length.
fn shortened(text: &str) -> String {
    const KEPT: usize = 80;
    match text.char_indices().nth(KEPT) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for Address {
    type Err = InvalidAddress;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::parse(text)
    }
}

impl TryFrom<String> for Address {
    type Error = InvalidAddress;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        Self::parse(&text)
    }
}

impl TryFrom<&str> for Address {
    type Error = InvalidAddress;

    fn try_from(text: &str) -> Result<Self, Self::Error> {
        Self::parse(text)
    }
}

impl AsRef<str> for Address {
    fn as_ref(&self) -> &str {
        self.as_str()
    }
}

impl Serialize for Address {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for Address {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::parse(&text).map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn branch_defaults_to_main() {
        let address = Address::parse("mydb").unwrap();
        assert_eq!((address.as_str(), address.name(), address.branch()), ("mydb:main", "mydb", "main"));
    }

    #[test]
    fn slashes_spaces_and_unicode_are_allowed() {
        for text in ["tenant/a/mydb:feature/x", "my db:größe", "a.b:c..d", "日本:支"] {
            assert_eq!(Address::parse(text).unwrap().as_str(), text);
        }
    }

    #[test]
    fn each_rule_is_named_in_its_error() {
        let long_branch = format!("a:{}", "b".repeat(129));
        let long = "a".repeat(996);
        for (text, reason) in [
            ("", "name is blank"),
            (" :main", "name is blank"),
            ("a:", "branch is blank"),
            ("a:\u{a0}", "branch is blank"),
            ("a:b:c", "branch contains `:`"),
            ("a@1:main", "name contains `@`"),
            ("a%2F:main", "name contains `%`"),
            ("a?:main", "name contains `?`"),
            ("a:b#", "branch contains `#`"),
            ("a\\b:main", "name contains `\\`"),
            ("a\u{7}:main", "name contains a control character"),
            ("a:b\u{85}", "branch contains a control character"),
            ("/a:main", "name has an empty segment"),
            ("a//b:main", "name has an empty segment"),
            ("a/:main", "name has an empty segment"),
            ("a/./b:main", "name has a segment `.`"),
            ("a:../b", "branch has a segment `..`"),
            (&long_branch, "branch has 129 bytes, 128 are allowed"),
            (&long, "it has 1001 bytes, 1000 are allowed"),
        ] {
            let error = Address::parse(text).unwrap_err().to_string();
            assert!(error.contains(reason), "{text:?}: {error}");
        }
        assert!(Address::parse(&"a".repeat(995)).is_ok());
        assert!(Address::parse(&format!("a:{}", "b".repeat(128))).is_ok());
    }

    proptest! {
        #[test]
        fn parsing_is_stable_and_splits_where_it_joined(text in "\\PC{0,40}(:\\PC{0,20})?") {
            if let Ok(address) = Address::parse(&text) {
                prop_assert_eq!(&Address::parse(address.as_str()).unwrap(), &address);
                prop_assert_eq!(&Address::from_parts(address.name(), address.branch()).unwrap(), &address);
                prop_assert!(address.is_well_formed());
            }
        }

        #[test]
        fn anything_at_all_is_parsed_or_rejected_in_a_short_sentence(text in any::<String>()) {
            if let Err(error) = Address::parse(&text) {
                prop_assert!(error.to_string().chars().count() < 250);
            }
        }
    }
}
