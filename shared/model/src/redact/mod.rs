//! Secrets in documents: which members and entries hold one. `names` says what a secret is called, `texts`, `named` and `urls` find
//! secrets inside of texts.

mod named;
mod names;
#[cfg(test)]
mod tests;
mod texts;
mod urls;

use serde_json::Value;

pub use self::urls::ShownUrl;
use self::{
    names::{LABELS, VALUES, is_entry_name, is_next_option, is_password, is_secret, is_secret_label},
    texts::redacted_text,
};

/// The text that replaces a secret.
pub const REDACTED: &str = "[redacted]";

/// Replaces what looks like a secret: the texts under a member whose name says so (`password`, `clientSecret`,
/// `api_key`, everything inside `credentials`), the value beside such a name (`{"name": "PASSWORD", "value": …}`), what
/// follows it in a list (`["--password", …]`), and in texts what follows such a name, user info and parameters of URLs,
/// tokens, and the same in JSON inside of a text. In doubt, a text is replaced. Numbers and flags stay, unless they are
/// passwords: a `max_token` is a limit.
pub fn redact(value: &mut Value) {
    match value {
        Value::Object(members) => {
            let is_labelled = members.iter().any(|(name, value)| {
                LABELS.contains(&name.to_lowercase().as_str()) && value.as_str().is_some_and(is_secret_label)
            });
            // `{"type": "password", "value": …}`: other members beside a type may say anything.
            let is_typed = ["type", "kind"]
                .iter()
                .any(|name| members.get(*name).and_then(Value::as_str).is_some_and(is_secret_label));
            let is_key = members.contains_key("kty");
            for (name, value) in members {
                let is_label =
                    LABELS.contains(&name.to_lowercase().as_str()) && value.as_str().is_some_and(is_secret_label);
                // The private parts of a JSON Web Key.
                let is_of_key = is_key && ["k", "d", "p", "q", "dp", "dq", "qi"].contains(&name.as_str());
                let is_of_type = is_typed && VALUES.contains(&name.to_lowercase().as_str());
                if is_secret(name) || is_of_key || is_of_type || (is_labelled && !is_label && name != "type") {
                    if value.is_number() && (is_password(name) || is_labelled || is_of_type) {
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
                let name = value.as_str();
                let is_name = name.is_some_and(is_entry_name);
                if follows && !name.is_some_and(is_next_option) {
                    if value.is_number() {
                        *value = REDACTED.into();
                    }
                    redact_all(value);
                } else {
                    redact(value);
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
