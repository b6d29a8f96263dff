//! Rejects arrays in place of objects: serde also reads a struct from an array of its fields in order, which no client
//! intends and which bypasses the check for unknown fields. The wrapper covers a deserializer and all that it hands out.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, EnumAccess, Error, MapAccess, SeqAccess, Visitor};

/// Deserializes as the wrapped value does, except that a struct is only read from an object.
pub(crate) struct Strict<T>(pub(crate) T);

macro_rules! forward {
    ($($method:ident)*) => {$(
        fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
            self.0.$method(Strict(visitor))
        }
    )*};
}

impl<'de, D: Deserializer<'de>> Deserializer<'de> for Strict<D> {
    type Error = D::Error;

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        _fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, D::Error> {
        self.0.deserialize_map(Strict(visitor))
    }

    forward! {
        deserialize_any deserialize_bool deserialize_i8 deserialize_i16 deserialize_i32 deserialize_i64 deserialize_u8
        deserialize_u16 deserialize_u32 deserialize_u64 deserialize_f32 deserialize_f64 deserialize_char deserialize_str
        deserialize_string deserialize_bytes deserialize_byte_buf deserialize_option deserialize_unit deserialize_seq
        deserialize_map deserialize_identifier deserialize_ignored_any
    }

    fn deserialize_unit_struct<V: Visitor<'de>>(self, name: &'static str, visitor: V) -> Result<V::Value, D::Error> {
        self.0.deserialize_unit_struct(name, Strict(visitor))
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(self, name: &'static str, visitor: V) -> Result<V::Value, D::Error> {
        self.0.deserialize_newtype_struct(name, Strict(visitor))
    }

    fn deserialize_tuple<V: Visitor<'de>>(self, len: usize, visitor: V) -> Result<V::Value, D::Error> {
        self.0.deserialize_tuple(len, Strict(visitor))
    }

    fn deserialize_tuple_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        len: usize,
        visitor: V,
    ) -> Result<V::Value, D::Error> {
        self.0.deserialize_tuple_struct(name, len, Strict(visitor))
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, D::Error> {
        self.0.deserialize_enum(name, variants, Strict(visitor))
    }
}

macro_rules! visit {
    ($($method:ident($value:ty))*) => {$(
        fn $method<E: Error>(self, value: $value) -> Result<V::Value, E> {
            self.0.$method(value)
        }
    )*};
}

impl<'de, V: Visitor<'de>> Visitor<'de> for Strict<V> {
    type Value = V::Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.expecting(f)
    }

    visit! {
        visit_bool(bool) visit_i64(i64) visit_i128(i128) visit_u64(u64) visit_u128(u128) visit_f64(f64) visit_str(&str)
        visit_borrowed_str(&'de str) visit_string(String) visit_bytes(&[u8]) visit_byte_buf(Vec<u8>)
    }

    fn visit_none<E: Error>(self) -> Result<V::Value, E> {
        self.0.visit_none()
    }

    fn visit_unit<E: Error>(self) -> Result<V::Value, E> {
        self.0.visit_unit()
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<V::Value, D::Error> {
        self.0.visit_some(Strict(deserializer))
    }

    fn visit_newtype_struct<D: Deserializer<'de>>(self, deserializer: D) -> Result<V::Value, D::Error> {
        self.0.visit_newtype_struct(Strict(deserializer))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, access: A) -> Result<V::Value, A::Error> {
        self.0.visit_seq(Strict(access))
    }

    fn visit_map<A: MapAccess<'de>>(self, access: A) -> Result<V::Value, A::Error> {
        self.0.visit_map(Strict(access))
    }

    // No request holds a variant with data.
    fn visit_enum<A: EnumAccess<'de>>(self, access: A) -> Result<V::Value, A::Error> {
        self.0.visit_enum(access)
    }
}

impl<'de, A: SeqAccess<'de>> SeqAccess<'de> for Strict<A> {
    type Error = A::Error;

    fn next_element_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>, A::Error> {
        self.0.next_element_seed(Strict(seed))
    }

    fn size_hint(&self) -> Option<usize> {
        self.0.size_hint()
    }
}

impl<'de, A: MapAccess<'de>> MapAccess<'de> for Strict<A> {
    type Error = A::Error;

    fn next_key_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>, A::Error> {
        self.0.next_key_seed(seed)
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, A::Error> {
        self.0.next_value_seed(Strict(seed))
    }

    fn size_hint(&self) -> Option<usize> {
        self.0.size_hint()
    }
}

impl<'de, S: DeserializeSeed<'de>> DeserializeSeed<'de> for Strict<S> {
    type Value = S::Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<S::Value, D::Error> {
        self.0.deserialize(Strict(deserializer))
    }
}

/// How deep a text may be nested: serde_json's limit.
const MAX_DEPTH: usize = 128;

/// Where a valid JSON text has what would not be read as it is written, and why: a member that occurs twice, or a number
/// that would change. `None` if there is nothing of the kind.
pub fn changed(text: &str) -> Option<(String, String)> {
    let mut scan = Scan { text, at: 0, path: Vec::new() };
    scan.value().err()
}

/// Whether a number of JSON or GraphQL has the same value once it is read.
pub fn is_kept(number: &str) -> bool {
    number.parse::<i64>().is_ok()
        || number.parse::<u64>().is_ok()
        || number.parse::<f64>().is_ok_and(|read| {
            // Some serializers print the shortest text that reads as the same number, others 17 digits.
            let texts = || [format!("{read:e}"), format!("{read:.16e}")];
            read.is_finite() && texts().iter().any(|text| decimal(number) == decimal(text))
        })
}

/// A number as its digits, without zeros at their ends, and the power of ten of the last one.
fn decimal(number: &str) -> Option<(bool, String, i64)> {
    let (is_negative, number) = number.strip_prefix('-').map_or((false, number), |rest| (true, rest));
    let (mantissa, exponent) = number.split_once(['e', 'E']).unwrap_or((number, "0"));
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let digits = format!("{whole}{fraction}");
    let kept = digits.trim_end_matches('0');
    let power = i64::try_from(digits.len() - kept.len()).ok()?.checked_sub(i64::try_from(fraction.len()).ok()?)?;
    match kept.trim_start_matches('0') {
        "" => Some((false, String::new(), 0)),
        kept => Some((is_negative, kept.to_owned(), exponent.parse::<i64>().ok()?.checked_add(power)?)),
    }
}

/// Reads a text that was found to be valid JSON.
struct Scan<'a> {
    text: &'a str,
    at: usize,
    /// The names and numbers that lead to the value.
    path: Vec<String>,
}

impl<'a> Scan<'a> {
    fn peek(&mut self) -> u8 {
        let rest = self.text.as_bytes().get(self.at..).unwrap_or_default();
        self.at += rest.iter().take_while(|byte| byte.is_ascii_whitespace()).count();
        self.text.as_bytes().get(self.at).copied().unwrap_or_default()
    }

    fn error(&self, reason: &str) -> (String, String) {
        let mut path = String::new();
        for part in &self.path {
            if !path.is_empty() && !part.starts_with('[') {
                path.push('.');
            }
            path.push_str(part);
        }
        (path, reason.to_owned())
    }

    fn value(&mut self) -> Result<(), (String, String)> {
        if self.path.len() > MAX_DEPTH {
            return Err((String::new(), format!("is nested more than {MAX_DEPTH} levels deep")));
        }
        match self.peek() {
            b'{' => self.members(),
            b'[' => self.entries(),
            b'"' => {
                self.string();
                Ok(())
            }
            _ => {
                let rest = &self.text[self.at..];
                let word = &rest[..rest
                    .find(|c: char| !c.is_ascii_alphanumeric() && !matches!(c, '+' | '-' | '.'))
                    .unwrap_or(rest.len())];
                self.at += word.len().max(1);
                let is_number = word.starts_with(|c: char| c == '-' || c.is_ascii_digit());
                match is_number && !is_kept(word) {
                    true => Err(self.error("is a number that would not be kept exactly: send it as a string")),
                    false => Ok(()),
                }
            }
        }
    }

    fn members(&mut self) -> Result<(), (String, String)> {
        let mut names = std::collections::HashSet::new();
        self.at += 1;
        while self.peek() == b'"' {
            let raw = self.string();
            let name = match raw.contains('\\') {
                true => serde_json::from_str::<String>(&format!("\"{raw}\"")).unwrap_or_else(|_| raw.to_owned()),
                false => raw.to_owned(),
            };
            self.path.push(name.clone());
            if !names.insert(name) {
                return Err(self.error("appears twice"));
            }
            if self.peek() == b':' {
                self.at += 1;
            }
            self.value()?;
            self.path.pop();
            if self.peek() == b',' {
                self.at += 1;
            }
        }
        self.at += 1;
        Ok(())
    }

    fn entries(&mut self) -> Result<(), (String, String)> {
        self.at += 1;
        let mut index = 0_usize;
        while !matches!(self.peek(), b']' | 0) {
            self.path.push(format!("[{index}]"));
            self.value()?;
            self.path.pop();
            index += 1;
            if self.peek() == b',' {
                self.at += 1;
            }
        }
        self.at += 1;
        Ok(())
    }

    /// Passes a string, and returns what is between its quotes.
    fn string(&mut self) -> &'a str {
        let from = self.at + 1;
        let bytes = self.text.as_bytes();
        let mut end = from;
        while let Some(byte) = bytes.get(end).filter(|byte| **byte != b'"') {
            end += if *byte == b'\\' { 2 } else { 1 };
        }
        let end = end.min(bytes.len());
        self.at = end + 1;
        self.text.get(from..end).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_numbers_that_keep_their_value_are_kept() {
        for kept in [
            "0",
            "-0",
            "0.0",
            "1",
            "-1",
            "1.5",
            "0.1",
            "1.10",
            "1e22",
            "1E+2",
            "1.5e-7",
            "9223372036854775808",
            "18446744073709551615",
            "-9223372036854775808",
            "9007199254740993",
            "123456789.123",
            "0.30000000000000004",
            "0.10000000000000001",
            "100000000000000000000",
            "9007199254740992.0",
            "1152921504606847000.0",
        ] {
            assert!(is_kept(kept), "{kept}");
        }
        for lost in [
            "18446744073709551616",
            "-9223372036854775809",
            "1e-400",
            "1e400",
            "123456789012345678901234567890123456789",
            "0.12345678901234567890123",
            "9007199254740993.5",
            "9007199254740993.0",
            "1152921504606846976.0",
            "9223372036854775807.0",
            "1180591620717411303424",
            "1e99999999999999999999",
        ] {
            assert!(!is_kept(lost), "{lost}");
        }
    }

    #[test]
    fn what_would_change_is_found_by_its_path() {
        for (text, path) in [
            (r#"{"a": {"b": [1, {"c": 1e-400}]}}"#, Some("a.b[1].c")),
            (r#"{"a": 1, "b": 2, "a": 3}"#, Some("a")),
            (r#"{"x": [{"a": 1, "\u0061": 3}]}"#, Some("x[0].a")),
            (r#"[[], 18446744073709551616]"#, Some("[1]")),
            (r#"{"a": "18446744073709551616 \" 1e-400", "b": [true, null, {}], "c": {"a": 1}}"#, None),
            (&"[".repeat(1_000_000), Some("")),
            ("1e-400", Some("")),
            ("{}", None),
            ("", None),
        ] {
            assert_eq!(changed(text).map(|(path, _)| path).as_deref(), path, "{text}");
        }
    }
}
