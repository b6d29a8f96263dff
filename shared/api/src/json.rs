//! Reads JSON and names the field that is wrong.

use serde::de::DeserializeOwned;

use crate::{
    Invalid,
    strict::{self, Strict},
};

/// Reads a body.
pub fn from_slice<T: DeserializeOwned>(text: &[u8]) -> Result<T, Invalid> {
    let value = from_slice_at("", text)?;
    match std::str::from_utf8(text).ok().and_then(strict::changed) {
        Some((field, reason)) => Err(Invalid::body(&field, reason)),
        None => Ok(value),
    }
}

/// Reads the JSON value of the field `at` of the body. Errors name fields inside it with that prefix.
pub fn from_slice_at<T: DeserializeOwned>(at: &str, text: &[u8]) -> Result<T, Invalid> {
    // Nearly every body is valid, so the path to an error is only tracked in a second pass.
    let mut json = serde_json::Deserializer::from_slice(text);
    if let Ok(value) = T::deserialize(Strict(&mut json))
        && json.end().is_ok()
    {
        return Ok(value);
    }
    let mut json = serde_json::Deserializer::from_slice(text);
    let value = serde_path_to_error::deserialize(Strict(&mut json)).map_err(|error| {
        let mut reason = error.inner().to_string();
        if !error.inner().is_data() {
            return Invalid::body(at, reason);
        }
        // If the text is valid JSON, the field says more than line and column.
        if let Some(end) = reason.rfind(" at line ") {
            reason.truncate(end);
        }
        let reason = plain(&reason);
        let field = field(&error.path().to_string(), &reason);
        let field = if at.is_empty() || field.is_empty() { format!("{at}{field}") } else { format!("{at}.{field}") };
        Invalid::body(&field, reason)
    })?;
    json.end().map_err(|error| Invalid::body("", error))?;
    Ok(value)
}

/// Returns serde's sentence without the names of Rust's types.
fn plain(reason: &str) -> String {
    let Some((found, expected)) = reason.split_once(", expected ") else { return reason.to_owned() };
    let expected = match expected {
        "i64" | "u64" | "u32" | "i32" | "usize" => "a whole number",
        "f64" => "a number",
        "a string" | "a borrowed string" => "a string",
        "a boolean" => "true or false",
        "a map" | "map" => "an object",
        "a sequence" | "sequence" => "an array",
        expected if expected.starts_with("struct ") => "an object",
        expected => expected,
    };
    // serde shows such a number as it was rounded.
    if expected == "a whole number" && found.starts_with("invalid type: floating point") {
        return "expected a whole number, written without fraction and exponent".to_owned();
    }
    format!("{found}, expected {expected}")
}

/// Returns the field that is wrong. serde's path ends above a field that is missing, unknown or repeated: then its
/// message, "missing field `t`", contains the name.
pub fn field(path: &str, reason: &str) -> String {
    let path = if path == "." { "" } else { path };
    let named = ["missing field `", "unknown field `", "duplicate field `"]
        .iter()
        .find_map(|start| reason.strip_prefix(start))
        .and_then(|rest| rest.split('`').next());
    match named {
        Some(name) if path.is_empty() || path == name => name.to_owned(),
        Some(name) if !path.ends_with(&format!(".{name}")) => format!("{path}.{name}"),
        _ => path.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::requests::{ConfigPush, HeadPush};

    const ID: &str = "bafybeigdyrzt5sfp7udm7hu76uh7y26nf3efuylqabf3oclgtqy55fbzdi";

    #[test]
    fn no_watermark_is_read_from_a_number_that_is_written_otherwise_than_a_whole_one() {
        for number in [
            "1.0",
            "-0",
            "9007199254740991.0",
            "9007199254740993.0",
            "1152921504606846976.0",
            "9223372036854775807.0",
            "18446744073709551616",
            "1e2",
            "1E0",
            "1.5",
        ] {
            for (body, field) in [
                (format!(r#"{{"new": {{"id": "{ID}", "t": {number}}}}}"#), "new.t"),
                (
                    format!(r#"{{"expected": {{"id": "{ID}", "t": {number}}}, "new": {{"id": "{ID}", "t": 2}}}}"#),
                    "expected.t",
                ),
            ] {
                let problem = from_slice::<HeadPush>(body.as_bytes()).unwrap_err();
                assert_eq!(problem.field, field, "{body}: {problem:?}");
                let reason = problem.to_string();
                assert!(reason.contains("expected a whole number, written without fraction and exponent"), "{reason}");
            }
        }
        for number in ["1e400", "-1e400", "NaN", "Infinity", "+1", "01", "1.", ".5", "0x1"] {
            let body = format!(r#"{{"new": {{"id": "{ID}", "t": {number}}}}}"#);
            assert!(from_slice::<HeadPush>(body.as_bytes()).is_err(), "{number}");
        }
    }

    #[test]
    fn a_number_of_a_payload_is_kept_or_rejected_by_its_place() {
        let read = |number: &str| {
            let body = format!(r#"{{"expected": {{"v": 1}}, "new": {{"payload": {{"a": [{number}]}}}}}}"#);
            from_slice::<ConfigPush>(body.as_bytes())
        };
        for number in ["9007199254740993", "9007199254740992.0", "1152921504606846976", "31.245270191439438", "0.3"] {
            let push: Value = json!(read(number).unwrap());
            let kept = push["new"]["payload"]["a"][0].to_string();
            assert_eq!(kept.trim_end_matches(".0"), number.trim_end_matches(".0"));
        }
        for number in ["9007199254740993.0", "1152921504606846976.0", "9223372036854775807.0", "1180591620717411303424"]
        {
            let problem = read(number).unwrap_err();
            assert_eq!(problem.field, "new.payload.a[0]", "{number}");
            assert!(problem.to_string().contains("would not be kept exactly"), "{problem}");
        }
    }
}
