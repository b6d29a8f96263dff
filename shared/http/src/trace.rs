//! The trace that a request belongs to, for logs: from W3C's `traceparent`, or from the X-Ray header of API Gateway.

use axum::http::HeaderMap;

const TRACEPARENT: &str = "traceparent";
const X_RAY: &str = "x-amzn-trace-id";

/// Returns the id of the trace of a request: 32 hexadecimal digits of a `traceparent`, or the root of an X-Ray header.
/// Anything else is arbitrary text of the caller, and is left out.
pub fn trace_id(headers: &HeaderMap) -> Option<&str> {
    let header = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let w3c = header(TRACEPARENT).and_then(|text| text.split('-').nth(1)).filter(|id| id.len() == 32 && is_hex(id));
    w3c.or_else(|| {
        let root = header(X_RAY)?.split(';').find_map(|part| part.trim().strip_prefix("Root="))?;
        Some(root).filter(|root| root.len() == 35 && root.split('-').all(is_hex))
    })
}

fn is_hex(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_trace_is_named_by_either_header_and_by_nothing_that_is_no_id() {
        const ID: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
        const ROOT: &str = "1-67891233-abcdef012345678912345678";
        for (name, value, id) in [
            (TRACEPARENT, format!("00-{ID}-00f067aa0bc902b7-01"), Some(ID)),
            (TRACEPARENT, "00-short-00f067aa0bc902b7-01".into(), None),
            (TRACEPARENT, format!("00-{}-00f067aa0bc902b7-01", "g".repeat(32)), None),
            (TRACEPARENT, ID.into(), None),
            (X_RAY, format!("Self=1-2;Root={ROOT};Sampled=1"), Some(ROOT)),
            (X_RAY, "Root=<script>".into(), None),
        ] {
            let name = axum::http::HeaderName::from_static(name);
            let headers = HeaderMap::from_iter([(name, value.parse().unwrap())]);
            assert_eq!(trace_id(&headers), id, "{value}");
        }
        assert_eq!(trace_id(&HeaderMap::new()), None);
    }
}
