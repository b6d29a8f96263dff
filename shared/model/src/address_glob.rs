use std::{collections::HashMap, fmt, hash, str::FromStr};

use crate::{Address, MAX_ADDRESS_BYTES};

/// A pattern that matches addresses, for the grants of tokens and for filters.
///
/// `*` matches any characters, including `/` and `:`; `?` matches one. A pattern without `:`, `*` and `?` is an address
/// without its branch: `mydb` means `mydb:main`.
#[derive(Clone)]
pub struct AddressGlob {
    text: String,
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
                return invalid("no address contains `@`, `%`, `#`, `\\` or a control character");
            }
            if text.matches(':').count() > 1 {
                return invalid("no address contains more than one `:`");
            }
            return Ok(Self { text: text.to_owned() });
        }
        match Address::parse(text) {
            Ok(address) => Ok(Self { text: address.as_str().to_owned() }),
            Err(error) => invalid(&error.to_string()),
        }
    }

    /// Returns whether an address matches the pattern.
    pub fn matches(&self, address: &Address) -> bool {
        is_match(&self.text, address.as_str())
    }

    /// Returns whether the pattern matches one address alone, which is its text.
    pub fn is_exact(&self) -> bool {
        !self.text.contains(['*', '?'])
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

/// Whether a text matches a pattern, in time that grows with their lengths and not with their product: callers choose both.
fn is_match(pattern: &str, text: &str) -> bool {
    let Some((first, rest)) = pattern.split_once('*') else {
        return prefix(pattern, text).is_some_and(str::is_empty);
    };
    let (middle, last) = rest.rsplit_once('*').unwrap_or(("", rest));
    // The ends are compared first: most patterns of a long list match few addresses.
    let Some(mut text) = prefix(first, text).and_then(|text| before_suffix(text, last)) else { return false };
    for part in middle.split('*') {
        match after(part, text) {
            Some(rest) => text = rest,
            None => return false,
        }
    }
    true
}

/// Returns what follows a part without `*` at the begin of a text.
fn prefix<'a>(part: &str, text: &'a str) -> Option<&'a str> {
    let mut letters = text.chars();
    part.chars()
        .all(|wanted| letters.next().is_some_and(|letter| wanted == '?' || wanted == letter))
        .then_some(letters.as_str())
}

/// Returns what precedes a part without `*` at the end of a text.
fn before_suffix<'a>(text: &'a str, part: &str) -> Option<&'a str> {
    let mut letters = text.chars();
    part.chars()
        .rev()
        .all(|wanted| letters.next_back().is_some_and(|letter| wanted == '?' || wanted == letter))
        .then_some(letters.as_str())
}

/// Returns what follows a part without `*`, from where it first occurs in a text.
fn after<'a>(part: &str, text: &'a str) -> Option<&'a str> {
    if !part.contains('?') {
        return text.find(part).map(|at| &text[at + part.len()..]);
    }
    // Shift-And: bit `i` of `state` says that the text so far ends with the first `i + 1` characters of the part.
    let length = part.chars().count();
    let words = length.div_ceil(64);
    let mut any = vec![0_u64; words];
    let mut masks: HashMap<char, Vec<u64>> = HashMap::new();
    for (i, wanted) in part.chars().enumerate() {
        let mask = if wanted == '?' { &mut any } else { masks.entry(wanted).or_insert_with(|| vec![0; words]) };
        mask[i / 64] |= 1 << (i % 64);
    }
    let mut state = vec![0_u64; words];
    for (at, letter) in text.char_indices() {
        let mask = masks.get(&letter);
        let mut carry = 1;
        for (i, word) in state.iter_mut().enumerate() {
            let next = *word >> 63;
            *word = ((*word << 1) | carry) & (any[i] | mask.map_or(0, |mask| mask[i]));
            carry = next;
        }
        if state[(length - 1) / 64] >> ((length - 1) % 64) & 1 == 1 {
            return Some(&text[at + letter.len_utf8()..]);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use std::{sync::mpsc, thread, time::Duration};

    use proptest::prelude::*;
    use wildmatch::WildMatch;

    use super::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(4_000))]
        #[test]
        fn patterns_match_as_ever(pattern in "[abü*?]{0,12}", text in "[abü]{0,16}", long in 0_usize..3) {
            // Parts that are longer than a word of bits, too.
            let (fill, filler) = ("ab".repeat(long * 40), "?b".repeat(long * 40));
            let (pattern, text) = (pattern.replacen('a', &filler, 1), text.replacen('a', &fill, 1));
            prop_assert_eq!(is_match(&pattern, &text), WildMatch::new(&pattern).matches(&text), "{} {}", pattern, text);
        }
    }

    #[test]
    fn no_pattern_takes_long() {
        let address = Address::parse(&"a".repeat(950)).unwrap();
        let patterns = [
            format!("*{}b*", "a".repeat(600)),
            format!("*{}?b*", "a".repeat(600)),
            format!("{}b*", "*a".repeat(400)),
            format!("{}b*", "*?a".repeat(300)),
            format!("*{}b*", "?".repeat(600)),
        ];
        let (done, is_done) = mpsc::channel();
        thread::spawn(move || {
            for pattern in patterns {
                let glob = AddressGlob::parse(&pattern).unwrap();
                for _ in 0..2_000 {
                    assert!(!glob.matches(&address));
                }
            }
            done.send(()).unwrap();
        });
        // Quadratic, it took ten minutes.
        is_done.recv_timeout(Duration::from_secs(120)).unwrap();
    }

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
