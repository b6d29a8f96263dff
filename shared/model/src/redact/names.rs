//! Which names are those of secrets.

/// What makes a name a secret wherever it occurs in it, in any case and however its words are joined.
const SECRET_PARTS: [&str; 32] = [
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
    "sessionid",
    "sessid",
    "idrsa",
    "idecdsa",
    "ided25519",
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
pub(super) const LABELS: [&str; 17] = [
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

/// The members of an object that hold a value, beside one that holds its type.
pub(super) const VALUES: [&str; 6] = ["value", "val", "@value", "text", "data", "content"];

/// Whether a text is the name of a secret, as options and variables are named: `--password`, `DB_PASSWORD`.
pub(super) fn is_secret_label(text: &str) -> bool {
    let is_name = |c: char| {
        c.is_alphanumeric() || matches!(c, '-' | '_' | '.' | ' ' | '/' | '#' | ':' | '=' | '$' | '[' | ']' | '{' | '}')
    };
    text.len() <= 128 && text.chars().all(is_name) && is_secret(text)
}

/// Whether a text is the option of a secret, without its value: `--password`, `-password`, `--password=`.
pub(super) fn is_option(text: &str) -> bool {
    text.starts_with('-') && is_entry_name(text)
}

/// Whether an entry of a list is the name of a secret, without its value: at most three words, as `shared access key`.
pub(super) fn is_entry_name(text: &str) -> bool {
    text.split_whitespace().count() <= 3 && !text.trim_end_matches('=').contains('=') && is_secret_label(text)
}

/// Whether a text is an option, and not the value of the one before it.
pub(super) fn is_next_option(text: &str) -> bool {
    text.strip_prefix("--").is_some_and(|name| name.starts_with(|c: char| c.is_ascii_alphabetic()))
}

/// Whether a number under this name is a secret, too.
pub(super) fn is_password(name: &str) -> bool {
    let words = words(name);
    words.iter().any(|word| ["pin", "otp", "pwd", "pass", "passcode"].contains(&word.as_str()))
        || ["password", "passwd", "passphrase", "secret", "apikey"].iter().any(|part| words.concat().contains(part))
}

pub(super) fn is_secret(name: &str) -> bool {
    // A number at the end counts: `DB_PASS1`, `refreshToken2`.
    let whole = words(name).concat();
    let words = words(name.trim_end_matches(|c: char| c.is_ascii_digit()));
    let joined = words.concat();
    if PLAIN_NAMES.iter().any(|plain| joined.ends_with(plain)) {
        return false;
    }
    let singular = joined.strip_suffix('s').unwrap_or(&joined);
    if SECRET_PARTS.iter().any(|part| whole.contains(part)) {
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
#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::redact::{REDACTED, tests::redacted};

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
            "tls.key",
            "session_id",
            "JSESSIONID",
            "PHPSESSID",
            "id_rsa",
            "id_ed25519",
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
}
