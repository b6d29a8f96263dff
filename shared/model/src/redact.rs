use serde_json::Value;

/// The text that replaces a secret.
pub const REDACTED: &str = "[redacted]";

/// Words that make a member a secret, anywhere in its name.
const SECRET_WORDS: [&str; 17] = [
    "password",
    "passwd",
    "pwd",
    "passphrase",
    "secret",
    "secrets",
    "token",
    "credential",
    "credentials",
    "apikey",
    "authorization",
    "bearer",
    "auth",
    "sas",
    "signature",
    "cookie",
    "jwt",
];
/// Pairs of adjacent words that make a member a secret.
const SECRET_PAIRS: [(&str, &str); 9] = [
    ("api", "key"),
    ("access", "key"),
    ("account", "key"),
    ("private", "key"),
    ("secret", "key"),
    ("shared", "key"),
    ("signing", "key"),
    ("encryption", "key"),
    ("connection", "string"),
];

/// Replaces what looks like a secret: the texts under a member whose name says so (`password`, `clientSecret`,
/// `api_key`, everything inside `credentials`), and the password inside a URL. Numbers and flags stay: a
/// `max_token` is a limit.
pub fn redact(value: &mut Value) {
    match value {
        Value::Object(members) => {
            for (name, value) in members {
                if is_secret(name) { redact_all(value) } else { redact(value) }
            }
        }
        Value::Array(values) => values.iter_mut().for_each(redact),
        Value::String(text) => {
            if let Some(redacted) = without_password(text) {
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
            members.iter_mut().filter(|(name, _)| *name != "type").for_each(|(_, value)| redact_all(value));
        }
        Value::Array(values) => values.iter_mut().for_each(redact_all),
        Value::String(text) => *text = REDACTED.to_owned(),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

fn is_secret(name: &str) -> bool {
    let words = words(name);
    words.iter().any(|word| SECRET_WORDS.contains(&word.as_str()))
        || words.windows(2).any(|pair| SECRET_PAIRS.contains(&(&pair[0], &pair[1])))
}

/// Returns the words of a name, in lower case: `clientSecret`, `client_secret` and `client-secret` are two words, and
/// so is the last one of `http://example.org/ns#clientSecret`.
fn words(name: &str) -> Vec<String> {
    let mut words: Vec<String> = vec![String::new()];
    let mut after_small = false;
    for letter in name.chars() {
        let begins = !letter.is_alphanumeric() || (letter.is_uppercase() && after_small);
        if begins && words.last().is_some_and(|word| !word.is_empty()) {
            words.push(String::new());
        }
        if let Some(word) = words.last_mut().filter(|_| letter.is_alphanumeric()) {
            word.extend(letter.to_lowercase());
        }
        after_small = letter.is_lowercase() || letter.is_numeric();
    }
    words
}

/// Returns `scheme://user:password@host` and `…?password=…&…` without the password; `None` if there is none.
fn without_password(text: &str) -> Option<String> {
    let (scheme, rest) = text.split_once("://")?;
    let (authority, path) = rest.split_at(rest.find(['/', '?', '#', ';']).unwrap_or(rest.len()));
    let hidden = authority.rsplit_once('@').and_then(|(login, host)| {
        let (user, _) = login.split_once(':')?;
        Some(format!("{user}:{REDACTED}@{host}"))
    });
    let mut found = hidden.is_some();
    let (path, query) = path.split_once(['?', ';']).map_or((path, None), |(path, query)| (path, Some(query)));
    let mut out = format!("{scheme}://{}{path}", hidden.as_deref().unwrap_or(authority));
    if let Some(query) = query {
        let begins = rest.len() - query.len() - 1;
        out.push_str(&rest[begins..=begins]);
        let mut query = query;
        loop {
            let (parameter, more) = query.split_at(query.find(['&', ';']).unwrap_or(query.len()));
            match parameter.split_once('=') {
                Some((name, _)) if is_secret(name) => {
                    found = true;
                    out.push_str(&format!("{name}={REDACTED}"));
                }
                _ => out.push_str(parameter),
            }
            let Some(separator) = more.chars().next() else { break };
            out.push(separator);
            query = &more[separator.len_utf8()..];
        }
    }
    found.then_some(out)
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
            "client_secret",
            "CLIENT_SECRET",
            "clientSecret",
            "api-key",
            "apiKey",
            "aws_access_key",
            "token",
            "authToken",
            "connectionString",
            "http://example.org/ns#token",
            "privateKey",
        ] {
            assert_eq!(redacted(json!({"a": [{ name: "x" }]})), json!({"a": [{ name: REDACTED }]}), "{name}");
        }
        for name in
            ["tokenizer", "key", "keys", "author", "primaryKey", "max_tokens", "passage", "partition_key", "state"]
        {
            assert_eq!(redacted(json!({ name: "x" })), json!({ name: "x" }), "{name}");
        }
        assert_eq!(
            redacted(json!({"credentials": {"type": "basic", "user": "u", "list": ["a"], "ttl": 60}, "max_token": 5})),
            json!({"credentials": {"type": "basic", "user": REDACTED, "list": [REDACTED], "ttl": 60}, "max_token": 5})
        );
    }

    #[test]
    fn passwords_are_found_inside_urls() {
        for (url, shown) in [
            ("postgres://u:p@db:5432/x", "postgres://u:[redacted]@db:5432/x"),
            (
                "jdbc:postgresql://db/x?user=u&password=p&ssl=1",
                "jdbc:postgresql://db/x?user=u&password=[redacted]&ssl=1",
            ),
            ("jdbc:sqlserver://db:1;user=u;password=p;a=b", "jdbc:sqlserver://db:1;user=u;password=[redacted];a=b"),
            ("https://example.org/a?b=c", "https://example.org/a?b=c"),
            ("s3://bucket/a@b:c", "s3://bucket/a@b:c"),
        ] {
            assert_eq!(redacted(json!({ "url": url })), json!({ "url": shown }));
        }
    }

    proptest! {
        #[test]
        fn any_text_survives(text in "\\PC{0,60}", url in "[a-z]{1,4}://[a-zü:@/?;&=]{0,30}") {
            redact(&mut json!({ &text: &url, "a": text }));
        }
    }
}
