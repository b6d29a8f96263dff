use std::fmt;

use serde_json::Value;

/// The text that replaces a secret.
pub const REDACTED: &str = "[redacted]";

/// What makes a name a secret wherever it occurs in it, in any case and however its words are joined.
const SECRET_PARTS: [&str; 27] = [
    "password",
    "passwd",
    "passwort",
    "passphrase",
    "passcode",
    "secret",
    "credential",
    "apikey",
    "accesskey",
    "accountkey",
    "privatekey",
    "secretkey",
    "sharedkey",
    "signingkey",
    "encryptionkey",
    "masterkey",
    "connectionstring",
    "connstr",
    "authorization",
    "bearer",
    "signature",
    "cookie",
    "authtoken",
    "accesstoken",
    "keymaterial",
    "keypem",
    "keystore",
];
/// What makes a name a secret as a word of it, or as its end.
const SECRET_WORDS: [&str; 23] = [
    "pass", "passes", "pwd", "pw", "auth", "sas", "sig", "jwt", "pat", "pin", "otp", "psk", "dsn", "cred", "creds",
    "token", "nonce", "salt", "passkey", "login", "privkey", "hmac", "pem",
];
/// The words before `key` that make it a secret.
const SECRET_KEYS: [&str; 39] = [
    "api",
    "access",
    "secret",
    "private",
    "priv",
    "encryption",
    "decryption",
    "crypt",
    "signing",
    "sign",
    "master",
    "storage",
    "account",
    "shared",
    "license",
    "service",
    "subscription",
    "ssh",
    "hmac",
    "aes",
    "rsa",
    "tls",
    "ssl",
    "auth",
    "admin",
    "user",
    "client",
    "consumer",
    "deploy",
    "session",
    "app",
    "application",
    "server",
    "root",
    "stripe",
    "openai",
    "security",
    "function",
    "token",
];
/// Names that hold a word of a secret, and say how one is used or something else.
const PLAIN_NAMES: [&str; 12] = [
    "authtype",
    "authmethod",
    "authmode",
    "tokenendpoint",
    "tokenurl",
    "tokenuri",
    "tokentype",
    "loginurl",
    "loginuri",
    "signatureversion",
    "credentialsprovider",
    "secretary",
];
/// The members of an object that hold a name, beside one that holds its value.
const LABELS: [&str; 17] = [
    "@id",
    "label",
    "title",
    "name",
    "key",
    "id",
    "k",
    "property",
    "header",
    "param",
    "parameter",
    "option",
    "variable",
    "env",
    "field",
    "attribute",
    "setting",
];
/// What is a secret in any text, followed by at least [`MIN_TOKEN`] characters that are no space.
const TOKEN_PREFIXES: [&str; 12] =
    ["bearer ", "basic ", "eyj", "akia", "asia", "ghp_", "gho_", "github_pat_", "xoxb-", "xoxp-", "sk_live_", "glpat-"];
const MIN_TOKEN: usize = 8;

/// Replaces what looks like a secret: the texts under a member whose name says so (`password`, `clientSecret`,
/// `api_key`, everything inside `credentials`), the value beside such a name (`{"name": "PASSWORD", "value": …}`), and in
/// texts what follows such a name, user info and parameters of URLs, tokens, and the same in JSON inside of a text. In
/// doubt, a text is replaced. Numbers and flags stay, unless they are passwords: a `max_token` is a limit.
pub fn redact(value: &mut Value) {
    match value {
        Value::Object(members) => {
            let is_labelled = members.iter().any(|(name, value)| {
                LABELS.contains(&name.to_lowercase().as_str()) && value.as_str().is_some_and(is_secret_label)
            });
            let is_key = members.contains_key("kty");
            for (name, value) in members {
                let is_label =
                    LABELS.contains(&name.to_lowercase().as_str()) && value.as_str().is_some_and(is_secret_label);
                // The private parts of a JSON Web Key.
                let is_of_key = is_key && ["k", "d", "p", "q", "dp", "dq", "qi"].contains(&name.as_str());
                if is_secret(name) || is_of_key || (is_labelled && !is_label && name != "type") {
                    if value.is_number() && (is_password(name) || is_labelled) {
                        *value = REDACTED.into();
                    }
                    redact_all(value);
                } else {
                    redact(value);
                }
            }
        }
        Value::Array(values) => {
            let mut follows = false;
            for value in values {
                let is_name = !follows && value.as_str().is_some_and(is_secret_label);
                match follows {
                    true => redact_all(value),
                    false => redact(value),
                }
                follows = is_name;
            }
        }
        Value::String(text) => {
            if let Some(redacted) = redacted_text(text) {
                *text = redacted;
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// Returns whether [`redact`] has replaced anything in a value.
pub fn is_redacted(value: &Value) -> bool {
    match value {
        Value::String(text) => text.contains(REDACTED),
        Value::Array(values) => values.iter().any(is_redacted),
        Value::Object(members) => members.values().any(is_redacted),
        Value::Null | Value::Bool(_) | Value::Number(_) => false,
    }
}

/// Redacts every text inside a member that is secret as a whole. Only `type` stays readable, as it names a kind of
/// authentication.
fn redact_all(value: &mut Value) {
    match value {
        Value::Object(members) => {
            for (name, value) in members.iter_mut().filter(|(name, _)| *name != "type") {
                if value.is_number() && is_password(name) {
                    *value = REDACTED.into();
                }
                redact_all(value);
            }
        }
        Value::Array(values) => values.iter_mut().for_each(redact_all),
        Value::String(text) => *text = REDACTED.to_owned(),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// Whether a text is the name of a secret, as options and variables are named: `--password`, `DB_PASSWORD`.
fn is_secret_label(text: &str) -> bool {
    let is_name = |c: char| {
        c.is_alphanumeric() || matches!(c, '-' | '_' | '.' | ' ' | '/' | '#' | ':' | '=' | '$' | '[' | ']' | '{' | '}')
    };
    text.len() <= 128 && text.chars().all(is_name) && is_secret(text)
}

/// Whether a number under this name is a secret, too.
fn is_password(name: &str) -> bool {
    let words = words(name);
    words.iter().any(|word| ["pin", "otp", "pwd", "pass", "passcode"].contains(&word.as_str()))
        || ["password", "passwd", "passphrase", "secret", "apikey"].iter().any(|part| words.concat().contains(part))
}

fn is_secret(name: &str) -> bool {
    // A number at the end counts: `DB_PASS1`, `refreshToken2`.
    let words = words(name.trim_end_matches(|c: char| c.is_ascii_digit()));
    let joined = words.concat();
    if PLAIN_NAMES.iter().any(|plain| joined.ends_with(plain)) {
        return false;
    }
    let singular = joined.strip_suffix('s').unwrap_or(&joined);
    if SECRET_PARTS.iter().any(|part| joined.contains(part)) {
        return true;
    }
    let is_word = |word: &str| {
        SECRET_WORDS.contains(&word) || word.strip_suffix('s').is_some_and(|word| SECRET_WORDS.contains(&word))
    };
    // `max_tokens` is a limit.
    let counts = ["max", "min", "num", "n", "count", "limit", "total", "chunk", "stop"];
    let is_count = words.first().is_some_and(|first| counts.contains(&first.as_str()));
    if words.iter().any(|word| is_word(word)) && !(is_count && singular.ends_with("token")) {
        return true;
    }
    // Names whose words are joined: `dbpass`, `usertoken`, `clienttokens`.
    let ends = ["pass", "pwd", "token", "jwt", "dsn"];
    if ends.iter().any(|end| singular.ends_with(end) || joined.ends_with(end)) && !is_count {
        return true;
    }
    // A key is a secret if its name says so: most are names of columns.
    let last = words.last().map_or("", String::as_str);
    let of = match last {
        "key" | "keys" => words.iter().rev().nth(1).map_or("", String::as_str),
        _ => last.strip_suffix("keys").or_else(|| last.strip_suffix("key")).unwrap_or_default(),
    };
    SECRET_KEYS.iter().any(|secret| of.ends_with(secret))
}

/// Returns the words of a name, in lower case: `clientSecret`, `client_secret`, `client-secret` and `CLIENTSecret` are two
/// words, and so is the last one of `http://example.org/ns#clientSecret`.
fn words(name: &str) -> Vec<String> {
    let letters: Vec<char> = name.chars().collect();
    let mut words: Vec<String> = vec![String::new()];
    for (i, letter) in letters.iter().enumerate() {
        let before = i.checked_sub(1).and_then(|i| letters.get(i));
        let after_small = before.is_some_and(|c| c.is_lowercase() || c.is_numeric());
        let ends_capitals =
            before.is_some_and(|c| c.is_uppercase()) && letters.get(i + 1).is_some_and(|c| c.is_lowercase());
        let begins = !letter.is_alphanumeric() || (letter.is_uppercase() && (after_small || ends_capitals));
        if begins && words.last().is_some_and(|word| !word.is_empty()) {
            words.push(String::new());
        }
        if let Some(word) = words.last_mut().filter(|_| letter.is_alphanumeric()) {
            word.extend(letter.to_lowercase());
        }
    }
    words.retain(|word| !word.is_empty());
    words
}

/// Returns a text without the secrets in it; `None` if there are none.
fn redacted_text(text: &str) -> Option<String> {
    if text.contains("PRIVATE KEY-----") {
        return Some(REDACTED.to_owned());
    }
    if text.trim_start().starts_with(['{', '[', '"'])
        && let Ok(mut inner) = serde_json::from_str::<Value>(text)
    {
        let before = inner.clone();
        redact(&mut inner);
        return (inner != before).then(|| inner.to_string());
    }
    let mut out = text.to_owned();
    for replace in [without_elements, without_user_info, without_options, without_named, without_tokens] {
        if let Some(redacted) = replace(&out) {
            out = redacted;
        }
    }
    (out != text).then_some(out)
}

/// Where a word of a text ends.
fn word_end(text: &str) -> usize {
    text.find(|c: char| c.is_whitespace() || matches!(c, '"' | '\'' | '<' | '>' | '`')).unwrap_or(text.len())
}

/// Removes passwords and tokens before the host of each URL, and of forms like `user:password@tcp(host)`.
fn without_user_info(text: &str) -> Option<String> {
    let (mut out, mut rest, mut found) = (String::new(), text, false);
    while let Some(at) = rest.find('@') {
        let (before, after) = rest.split_at(at);
        // The login begins after the scheme, or with the word.
        let after_last = |separators: fn(char) -> bool| {
            before.rfind(separators).map_or(0, |i| i + before[i..].chars().next().map_or(1, char::len_utf8))
        };
        let word = after_last(|c| c.is_whitespace() || matches!(c, '"' | '\'' | '<' | '>' | '`'));
        // A password of a URL may hold commas; without a scheme they separate.
        let scheme = before[word..].rfind("://").map(|i| word + i + 3);
        let word = if scheme.is_some() { word } else { word.max(after_last(|c| c == ',')) };
        let scheme = scheme.or_else(|| before[word..].find("//").map(|i| word + i + 2));
        let login = scheme.unwrap_or(word);
        let text = &before[login..];
        let host = &after[1..];
        let has_path = text.find(['/', '?', '#']);
        let is_login = match scheme {
            // `s3://bucket/a@b` has a path, `pg://u:p/w@h` a password with a slash.
            Some(_) => has_path.is_none_or(|end| {
                let port = text[..end].rsplit_once(':').map(|(_, port)| port);
                port.is_some_and(|port| port.is_empty() || !port.bytes().all(|digit| digit.is_ascii_digit()))
            }),
            None => {
                let is_host = host[..word_end(host)].contains(['(', '.', '/']);
                (text.contains(':') || text.starts_with("jdbc:")) && is_host && !text.starts_with("mailto:")
            }
        };
        if is_login && !text.is_empty() && text != REDACTED && !text.ends_with(&format!(":{REDACTED}")) {
            found = true;
            out.push_str(&before[..login]);
            let separator = if scheme.is_none() && text.contains('/') && !text.contains(':') { '/' } else { ':' };
            match text.split_once(separator) {
                Some((user, _)) if !text.starts_with("jdbc:") => out.push_str(&format!("{user}{separator}{REDACTED}")),
                _ => out.push_str(REDACTED),
            }
        } else {
            out.push_str(before);
        }
        out.push('@');
        // A password may hold `@`: the host begins after the last one.
        let login_end = host[..word_end(host)].split(['/', '?', '#']).next().and_then(|text| text.rfind('@'));
        rest = &host[login_end.filter(|_| is_login).map_or(0, |end| end + 1)..];
    }
    out.push_str(rest);
    found.then_some(out)
}

/// Removes what follows the name of a secret: `password=…`, `Password: …`, `?token=…`, `#access_token=…`.
fn without_named(text: &str) -> Option<String> {
    let (mut out, mut rest, mut found) = (String::new(), text, false);
    let delimiters = |c: char| {
        matches!(c, ';' | '&' | '?' | '#' | ',' | '\n' | '\r' | '"' | '\'' | '{' | '}' | '[' | ']' | '(' | ')')
    };
    while let Some(at) = rest.find(['=', ':']) {
        let (before, after) = rest.split_at(at);
        let value = &after[1..];
        let name = before.trim_end().trim_end_matches(['"', '\'']);
        let name = name.rsplit(delimiters).next().unwrap_or_default().trim();
        let last = name.rsplit(char::is_whitespace).next().unwrap_or_default();
        out.push_str(before);
        out.push_str(&after[..1]);
        rest = value;
        // Of `host=db password=x`, the last word; of `Shared Access Key=x`, all of them.
        let is_named = (is_secret(last) || is_secret(name)) && name.len() <= 128 && !value.starts_with("//");
        if !is_named {
            continue;
        }
        // `password => x` of Ruby, too.
        let trimmed = value.strip_prefix('>').unwrap_or(value).trim_start();
        let space = value.len() - trimmed.len();
        let is_in_json = before.trim_end().ends_with(['"', '\'']);
        let is_in_url =
            out.rsplit(char::is_whitespace).next().is_some_and(|word| word.contains("://") || word.contains('?'));
        let end = match trimmed.chars().next() {
            None => 0,
            // A block of YAML.
            Some('|') => trimmed.len(),
            Some(quote @ ('"' | '\'')) => quoted_end(trimmed, quote),
            Some('{') => braced_end(trimmed),
            Some(_) => match trimmed.find([';', '\n', '\r']) {
                Some(end) => end,
                None if after.starts_with(':') && !is_in_json && !is_in_url => trimmed.len(),
                None if after.starts_with(':') => trimmed.find([',', '}', '"']).unwrap_or(trimmed.len()),
                None => trimmed
                    .find(|c: char| c.is_whitespace() || (is_in_url && matches!(c, '&' | '#' | '"' | '\'')))
                    .unwrap_or(trimmed.len()),
            },
        };
        if end > 0 && &trimmed[..end] != REDACTED {
            found = true;
            out.push_str(&value[..space]);
            out.push_str(REDACTED);
            rest = &trimmed[end..];
        }
    }
    out.push_str(rest);
    found.then_some(out)
}

/// Where a quoted text ends, with the escapes `\\"` and `""`.
fn quoted_end(text: &str, quote: char) -> usize {
    let mut letters = text.char_indices().skip(1).peekable();
    while let Some((at, letter)) = letters.next() {
        let is_next_quote = letters.peek().is_some_and(|(_, next)| *next == quote);
        if letter == '\\' || (letter == quote && is_next_quote) {
            letters.next();
        } else if letter == quote {
            return at + 1;
        }
    }
    text.len()
}

/// Where a text in braces ends: ODBC writes `}` in it as `}}`.
fn braced_end(text: &str) -> usize {
    let mut letters = text.char_indices().peekable();
    while let Some((at, letter)) = letters.next() {
        if letter == '}' && letters.next_if(|(_, next)| *next == '}').is_none() {
            return at + 1;
        }
    }
    text.len()
}

/// Removes the texts of XML elements whose name says that they are secrets, and of `<value>` after such a `<name>`.
fn without_elements(text: &str) -> Option<String> {
    let (mut out, mut rest, mut is_value, mut found) = (String::new(), text, false, false);
    while let Some((before, after)) = rest.split_once('<') {
        let Some((tag, inner)) = after.split_once('>') else { break };
        out.push_str(before);
        out.push('<');
        out.push_str(tag);
        out.push('>');
        rest = inner;
        let name = tag.split(char::is_whitespace).next().unwrap_or_default();
        if name.is_empty() || name.starts_with(['/', '!', '?']) || tag.ends_with('/') {
            continue;
        }
        let content = &inner[..inner.find("</").unwrap_or(inner.len())];
        let is_label = LABELS.contains(&name.to_lowercase().as_str());
        if is_secret_label(name) || (is_value && !is_label) {
            found |= !content.is_empty() && content != REDACTED;
            out.push_str(if content.is_empty() { "" } else { REDACTED });
            rest = &inner[content.len()..];
            is_value = false;
        } else if is_label {
            is_value = is_secret_label(content.trim());
        }
    }
    out.push_str(rest);
    found.then_some(out)
}

/// Removes the values of options: `--password x`.
fn without_options(text: &str) -> Option<String> {
    let (mut out, mut is_value, mut found) = (String::new(), false, false);
    for word in text.split_inclusive(char::is_whitespace) {
        let shown = word.trim_end();
        if is_value && !shown.is_empty() && !shown.starts_with("--") {
            out.push_str(REDACTED);
            out.push_str(&word[shown.len()..]);
            (is_value, found) = (false, true);
            continue;
        }
        out.push_str(word);
        is_value = (is_value && shown.is_empty()) || (shown.starts_with("--") && is_secret_label(shown));
    }
    found.then_some(out)
}

/// Removes what has the form of a token.
fn without_tokens(text: &str) -> Option<String> {
    let lower = text.to_ascii_lowercase();
    let (mut out, mut from, mut found) = (String::new(), 0, false);
    let begins = |at: usize| text[..at].chars().next_back().is_none_or(|c| !c.is_alphanumeric());
    let mut at = 0;
    while at < text.len() {
        let prefix = TOKEN_PREFIXES.iter().find(|prefix| lower[at..].starts_with(**prefix) && begins(at));
        if let Some(prefix) = prefix {
            let end = at + prefix.len() + word_end(&text[at + prefix.len()..]);
            if end - at >= prefix.len() + MIN_TOKEN {
                let keep = if prefix.ends_with(' ') { prefix.len() } else { 0 };
                out.push_str(&text[from..at + keep]);
                out.push_str(REDACTED);
                (from, at, found) = (end, end, true);
                continue;
            }
        }
        at += text[at..].chars().next().map_or(1, char::len_utf8);
    }
    out.push_str(&text[from..]);
    found.then_some(out)
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
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn redacted(mut value: Value) -> Value {
        redact(&mut value);
        value
    }

    #[test]
    fn secrets_are_found_by_the_names_of_members() {
        for name in [
            "password",
            "dbPassword",
            "DBPassword",
            "DB_PASSWORD",
            "passwords",
            "userpasswd",
            "pwd",
            "smtp_pass",
            "dbpass",
            "client_secret",
            "CLIENT_SECRET",
            "clientSecret",
            "clientsecret",
            "secrets",
            "SecretString",
            "api-key",
            "apiKey",
            "apikey",
            "apiKeys",
            "API_KEYS",
            "aws_access_key",
            "accesskey",
            "AccessKeys",
            "masterKey",
            "MASTERKEY",
            "storageKey",
            "subscriptionKey",
            "token",
            "tokens",
            "authToken",
            "AUTHTOKEN",
            "usertoken",
            "refreshTokens",
            "connectionString",
            "ConnectionStrings",
            "http://example.org/ns#token",
            "privateKey",
            "jwt",
            "sas",
            "DSN",
            "X-Auth",
            "setCookie",
            "credential",
            "userCredentials",
            "ssh_key",
            "hmacKeys",
            "refreshToken2",
            "pw1",
            "DB_PASS1",
            "apiKey1",
            "keyMaterial",
            "key_pem",
            "pem",
            "keystore",
            "hmac",
        ] {
            assert_eq!(redacted(json!({"a": [{ name: "x" }]})), json!({"a": [{ name: REDACTED }]}), "{name}");
        }
        for name in [
            "tokenizer",
            "key",
            "keys",
            "author",
            "primaryKey",
            "max_tokens",
            "passage",
            "partition_key",
            "state",
            "sortKeys",
            "keyspace",
            "keyword",
            "name",
            "url",
            "path",
            "type",
            "catalog",
            "public_key",
            "hash_key",
            "chunkTokens",
            "equality_keys",
            "join_key",
            "event_key",
            "shard_key",
            "primary_key",
            "s3_key",
            "auth_type",
            "token_endpoint",
            "login_url",
            "signature_version",
            "credentials_provider",
            "monkey",
            "turkey",
            "hockey",
            "secretary",
        ] {
            assert_eq!(redacted(json!({ name: "x" })), json!({ name: "x" }), "{name}");
        }
        assert_eq!(
            redacted(json!({"credentials": {"type": "basic", "user": "u", "list": ["a"], "ttl": 60}, "max_token": 5})),
            json!({"credentials": {"type": "basic", "user": REDACTED, "list": [REDACTED], "ttl": 60}, "max_token": 5})
        );
        assert_eq!(redacted(json!({"password": 1234, "pin": 99})), json!({"password": REDACTED, "pin": REDACTED}));
    }

    #[test]
    fn no_form_of_a_text_shows_its_secret() {
        for text in [
            "postgres://u:SECRET@db:5432/x",
            "https://SECRET@github.com/o/r.git",
            "pg://u:x@SECRET@db/x",
            "pg://u:SECRET,SECRET@db/x",
            "https://a.example/x, https://u:SECRET@b.example/y",
            "https://SECRET@a.example/x and https://SECRET@b.example",
            "pg://u:SECRET/SECRET@db/x",
            "pg://u:SECRET#SECRET@db/x",
            "see <https://u:SECRET@b.example/y>",
            "https://a.example/cb#access_token=SECRET&state=1",
            "https://a.example/?q=1&api_key=SECRET#x",
            "https://a.example/?TOKEN=SECRET",
            "https://a.example/?X-Amz-Signature=SECRET",
            "https://acc.blob.example/c?sv=1&sig=SECRET",
            "jdbc:sqlserver://db:1;user=u;password=SECRET;a=b",
            "jdbc:oracle:thin:scott/SECRET@//db.example:1521/x",
            "user:SECRET@tcp(127.0.0.1:3306)/db",
            "Server=db;Database=x;User Id=u;Password=SECRET;",
            "Server=db;Pwd={SECRET;SECRET};x=y",
            "Server=db;PWD='SECRET SECRET';x=y",
            "DefaultEndpointsProtocol=https;AccountName=a;AccountKey=SECRET==;EndpointSuffix=core",
            "Endpoint=sb://x/;SharedAccessKeyName=n;SharedAccessKey=SECRET=",
            "Account Name=a;Account Key=SECRET",
            "host=db user=u password=SECRET dbname=x",
            "host=db password = 'SECRET SECRET' dbname=x",
            "export DB_PASSWORD=SECRET",
            "run --token SECRET --password=SECRET".split_once("--token SECRET ").map_or("", |(_, rest)| rest),
            "password: SECRET",
            "run --password SECRET --verbose",
            "run --api-key   SECRET",
            "<a><password>SECRET</password></a>",
            "<p><name>db.password</name><value>SECRET</value></p>",
            "Pwd={a}}SECRET};x=y",
            r#"password="a\"SECRET";x=y"#,
            "Password: a,SECRET",
            "password=SE&SECRET",
            "password=SE#SECRET",
            ":password => SECRET",
            "password: |\n  a\n  SECRET\n",
            "Authorization: Bearer SECRETSECRET",
            "use Bearer SECRETSECRET",
            r#"{"a": {"password": "SECRET"}}"#,
            r#" [{"name": "PASSWORD", "value": "SECRET"}]"#,
            r#"config={"password":"SECRET","a":1}"#,
            r#"{"inner": "{\"clientSecret\": \"SECRET\"}"}"#,
            "-----BEGIN RSA PRIVATE KEY-----\nSECRET\n-----END RSA PRIVATE KEY-----",
            "eyJSECRETSECRET.eyJSECRET.SECRET",
            "it is AKIASECRETSECRET11",
        ] {
            let shown = redacted(json!({ "url": text }))["url"].to_string();
            assert!(!shown.contains("SECRET") && shown.contains(REDACTED), "{text}: {shown}");
        }
    }

    #[test]
    fn a_value_beside_the_name_of_a_secret_is_one() {
        for object in [
            json!({"name": "PASSWORD", "value": "SECRET"}),
            json!({"value": "SECRET", "name": "PASSWORD"}),
            json!({"key": "db.password", "val": ["SECRET"]}),
            json!({"header": "Authorization", "text": {"a": "SECRET"}}),
            json!({"Name": "apiKey", "Value": 5, "x": "SECRET"}),
            json!(["--password", "SECRET", "--verbose"]),
            json!({"@id": "ex:password", "@value": "SECRET"}),
            json!({"kty": "oct", "k": "SECRET"}),
            json!({"kty": "EC", "crv": "P-256", "d": "SECRET"}),
            json!({"label": "Password", "@value": "SECRET"}),
            json!({"title": "client secret", "text": "SECRET"}),
            json!({"name": "$PASSWORD", "value": "SECRET"}),
            json!({"name": "db[password]", "value": "SECRET"}),
            json!({"name": "--password=", "value": "SECRET"}),
            json!([["PASSWORD", "SECRET"], ["a", "b"]]),
        ] {
            let shown = redacted(object.clone()).to_string();
            assert!(!shown.contains("SECRET"), "{object}: {shown}");
        }
        let plain = json!([{"name": "REGION", "value": "eu"}, ["--verbose", "x"]]);
        assert_eq!(redacted(plain.clone()), plain);
    }

    #[test]
    fn what_is_no_secret_stays() {
        for text in [
            "https://example.org/a?b=c",
            "s3://bucket/a@b:c",
            "https://db:5432/a@b",
            "mydb:main@t:50",
            "someone@example.org",
            "f:Bm25Index",
            "select ?s where { ?s ex:name \"x\" }",
            "http://example.org/ns#Person",
            "2026-11-23T12:00:00Z",
            "s3://lake/warehouse/db.table",
            "partition_key=a;sort=b",
        ] {
            assert_eq!(redacted(json!({ "url": text })), json!({ "url": text }));
        }
        for (url, shown) in [
            ("postgres://u:p@db:5432/x", "postgres://u:[redacted]@db:5432/x"),
            (
                "jdbc:postgresql://db/x?user=u&password=p&ssl=1",
                "jdbc:postgresql://db/x?user=u&password=[redacted]&ssl=1",
            ),
            ("jdbc:sqlserver://db:1;user=u;password=p;a=b", "jdbc:sqlserver://db:1;user=u;password=[redacted];a=b"),
        ] {
            assert_eq!(redacted(json!({ "url": url })), json!({ "url": shown }));
        }
    }

    proptest! {
        #[test]
        fn any_text_survives_and_is_redacted_once(text in "\\PC{0,60}", url in "[a-z]{1,4}://[a-zü:@/?;&= '\"{}]{0,30}") {
            let once = redacted(json!({ &text: &url, "a": text }));
            prop_assert!(redacted(once.clone()) == once || is_redacted(&once));
        }
    }

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
