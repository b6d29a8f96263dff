//! Paths of requests.

/// Escapes a path. The gateway hands it over decoded, a function URL as it was sent: an escape that is there stays
/// (no address holds a `%`, so nothing is lost), a lone `%` is escaped.
pub fn escape_path(path: &str) -> String {
    let bytes = path.as_bytes();
    let is_escape = |i: usize| bytes.get(i + 1..i + 3).is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit));
    let mut text = String::with_capacity(path.len() + 1);
    if !path.starts_with('/') {
        text.push('/');
    }
    for (i, byte) in bytes.iter().enumerate() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'/' | b':' | b'-' | b'.' | b'_' | b'~' => {
                text.push(char::from(*byte));
            }
            b'%' if is_escape(i) => text.push('%'),
            byte => text.push_str(&format!("%{byte:02X}")),
        }
    }
    text
}
