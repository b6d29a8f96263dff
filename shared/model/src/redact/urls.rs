//! Secrets in URLs.

use std::fmt;

use super::REDACTED;

/// Removes passwords and tokens before the host of each URL, and of forms like `user:password@tcp(host)`.
pub(super) fn without_user_info(text: &str) -> Option<String> {
    let (mut out, mut found) = (String::new(), false);
    for word in text.split_inclusive(char::is_whitespace) {
        found |= push_word(&mut out, word);
    }
    found.then_some(out)
}

/// Appends a word without the logins in it. Returns whether there was one.
fn push_word(out: &mut String, word: &str) -> bool {
    let (mut from, mut found) = (0, false);
    while let Some(at) = word[from..].find('@').map(|i| from + i) {
        if !word[from..at].contains([':', '/']) {
            out.push_str(&word[from..=at]);
            from = at + 1;
            continue;
        }
        let login = Login::read(word, from, at);
        let text = &word[login.begin..at];
        if login.is_secret && !text.is_empty() && text != REDACTED && !text.ends_with(&format!(":{REDACTED}")) {
            found = true;
            out.push_str(&word[from..login.begin]);
            let separator = if !login.has_scheme && text.contains('/') && !text.contains(':') { '/' } else { ':' };
            match text.split_once(separator) {
                // A token in place of a user.
                Some((_, "" | "x-oauth-basic")) => out.push_str(REDACTED),
                Some((user, _)) if !text.starts_with("jdbc:") => out.push_str(&format!("{user}{separator}{REDACTED}")),
                _ => out.push_str(REDACTED),
            }
        } else {
            out.push_str(&word[from..at]);
        }
        out.push('@');
        from = login.end + 1;
    }
    out.push_str(&word[from..]);
    found
}

/// What is before an `@` of a word.
struct Login {
    is_secret: bool,
    has_scheme: bool,
    begin: usize,
    /// The place of its last `@`: a password may hold others.
    end: usize,
}

impl Login {
    /// Reads what is between `from` and the `@` at `at`.
    fn read(word: &str, from: usize, at: usize) -> Self {
        let before = &word[from..at];
        let scheme = before.rfind("://").map(|i| i + 3).or_else(|| before.find("//").map(|i| i + 2));
        let url = scheme.map(|begin| Url::new(word, from + begin, at));
        let ended = url.as_ref().and_then(|url| url.end_before(at));
        match url {
            Some(url) if ended.is_none() => Self::of_url(&url, at),
            _ => Self::without_scheme(word, ended.unwrap_or(from), at),
        }
    }

    fn of_url(url: &Url<'_>, at: usize) -> Self {
        let text = &url.word[url.begin..at];
        // `s3://bucket/a@b` has a path, `pg://u:p/w@h` a password with a slash.
        let is_web = ["http://", "https://"].iter().any(|scheme| url.word[..url.begin].ends_with(scheme));
        let is_secret = text.find(['/', '?', '#']).is_none_or(|end| {
            let port = text[..end].rsplit_once(':').map(|(_, port)| port);
            port.is_some_and(|port| !is_web || !is_port(port))
        });
        let end = if is_secret { url.last_at(at) } else { at };
        Self { is_secret, has_scheme: true, begin: url.begin, end }
    }

    fn without_scheme(word: &str, from: usize, at: usize) -> Self {
        let before = &word[from..at];
        let is_separator = |c: char| is_quote(c) || matches!(c, '<' | '>');
        let near = &word[at + 1..word.floor_char_boundary(at + 1 + 256)];
        let near = &near[..near.find(|c: char| is_separator(c) || c.is_whitespace()).unwrap_or(near.len())];
        let called = near.split_once('(').map_or("", |(name, _)| name);
        // In `user:password@tcp(host)` quotes and commas are part of the password; elsewhere they separate.
        let begin = match !called.is_empty() && called.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
            true => before.find(|c: char| !is_separator(c)),
            false => before.rfind(|c: char| is_separator(c) || c == ',').map(|i| i + 1),
        };
        let begin = from + begin.unwrap_or(0);
        let text = &word[begin..at];
        let host = near.find(['/', '?', '#']).map_or(near, |end| &near[..end]);
        // `mydb:main@t:50` is a moment of a ledger.
        let is_moment = near.split_once(':').is_some_and(|(name, _)| ["t", "iso", "commit", "sha"].contains(&name))
            && !near.contains(['(', '.', '/']);
        // `scott/tiger@db:1521` of Oracle; `org/action@v4` is none.
        let has_port = near.starts_with("//")
            || host
                .split_once(':')
                .is_some_and(|(_, rest)| is_port(rest.split_once(':').map_or(rest, |(port, _)| port)));
        let is_login = match text.split_once('/') {
            Some((_, rest)) if !text.contains(':') => has_port && !rest.contains('/'),
            _ => text.contains(':') && !text.starts_with("mailto:") && !near.is_empty() && !is_moment,
        };
        let is_secret = is_login && (has_port || !text.ends_with(':') || near.contains(['(', '.', '/']));
        let end = if is_secret { host.rfind('@').map_or(at, |i| at + 1 + i) } else { at };
        Self { is_secret, has_scheme: false, begin, end }
    }
}

/// A URL in a word, from what follows its scheme.
struct Url<'a> {
    word: &'a str,
    begin: usize,
    /// The quote in front of it.
    quote: Option<char>,
    /// Where its password begins, if it has one.
    password: Option<usize>,
}

impl<'a> Url<'a> {
    /// The URL with an `@` at `at`.
    fn new(word: &'a str, begin: usize, at: usize) -> Self {
        let is_scheme = |c: char| c.is_alphanumeric() || matches!(c, '+' | '-' | '.' | ':' | '_' | '/');
        let before = word[..begin].trim_end_matches(is_scheme);
        let text = &word[begin..at];
        let authority = &text[..text.find(['/', '?', '#']).unwrap_or(text.len())];
        // An address in brackets holds colons.
        let host = if authority.starts_with('[') { authority.find(']').unwrap_or(0) } else { 0 };
        let password = authority[host..].find(':').and_then(|colon| {
            let after = host + colon + 1;
            authority[after..].find(|c: char| !c.is_ascii_digit()).map(|i| begin + after + i)
        });
        Self { word, begin, quote: before.chars().next_back().filter(|c| is_quote(*c)), password }
    }

    /// Where it ends, if that is before this place. In doubt, what follows is its password.
    fn end_before(&self, at: usize) -> Option<usize> {
        let text = &self.word[self.begin..at];
        let mut letters = text.char_indices().map(|(i, letter)| (self.begin + i, letter));
        let is_in_password = |at: usize| self.password.is_some_and(|begin| begin < at);
        letters.find(|(i, letter)| self.is_end(*i, *letter) && !is_in_password(*i)).map(|(i, _)| i)
    }

    /// Whether it ends with this letter: with the quote that is in front of it, too. Another quote, or one that a letter or a
    /// digit follows, is part of it.
    fn is_end(&self, at: usize, letter: char) -> bool {
        let next = self.word[at + letter.len_utf8()..].chars().next();
        matches!(letter, '<' | '>') || (self.quote == Some(letter) && !next.is_some_and(char::is_alphanumeric))
    }

    /// The place of the last `@` before the host, from the one at `at` on.
    fn last_at(&self, at: usize) -> usize {
        let letters = self.word[at + 1..].char_indices().map(|(i, letter)| (at + 1 + i, letter));
        let authority =
            letters.take_while(|(i, letter)| !matches!(letter, '/' | '?' | '#') && !self.is_end(*i, *letter));
        authority.filter(|(_, letter)| *letter == '@').last().map_or(at, |(i, _)| i)
    }
}

fn is_port(text: &str) -> bool {
    text.bytes().all(|digit| digit.is_ascii_digit()) && text.parse::<u16>().is_ok()
}

fn is_quote(letter: char) -> bool {
    matches!(letter, '"' | '\'' | '`')
}

/// A URL for logs, messages and answers: its `Display` leaves out user name and password, also of a text that is no valid
/// URL.
#[derive(Clone, Copy)]
pub struct ShownUrl<'a>(pub &'a str);

impl fmt::Display for ShownUrl<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (scheme, rest) = match self.0.find("://") {
            Some(end) => self.0.split_at(end + 3),
            None => ("", self.0),
        };
        let authority = &rest[..rest.find(['/', '\\', '?', '#']).unwrap_or(rest.len())];
        let is_port = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
        // A password with an unescaped slash looks like a port that is no number.
        let is_cut = !authority.ends_with(']') && authority.rsplit_once(':').is_some_and(|(_, port)| !is_port(port));
        let end = authority.rfind('@').or_else(|| rest.rfind('@').filter(|_| is_cut));
        write!(f, "{scheme}{}", &rest[end.map_or(0, |end| end + 1)..])
    }
}

impl fmt::Debug for ShownUrl<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.to_string(), f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_of_a_url_are_not_shown() {
        for (url, shown) in [
            ("https://ns.example.com/base", "https://ns.example.com/base"),
            ("http://[::1]:8080/a@b?c=d@e", "http://[::1]:8080/a@b?c=d@e"),
            ("http://user:hidden@ns.example.com:8080/base", "http://ns.example.com:8080/base"),
            ("http://hidden@ns.example.com", "http://ns.example.com"),
            ("http://user:hi@dden@ns.example.com?x", "http://ns.example.com?x"),
            ("http://user:hi/dden@ns.example.com/x", "http://ns.example.com/x"),
            ("http://user:hidden@ns.example.com\\x@y", "http://ns.example.com\\x@y"),
            ("user:hidden@ns.example.com", "ns.example.com"),
            ("", ""),
        ] {
            assert_eq!(ShownUrl(url).to_string(), shown, "{url}");
            assert!(!format!("{:?}", ShownUrl(url)).contains("dden"));
        }
    }
}
