use std::time::Duration;

use http::Method;
use nameservice_model::{Address, Call};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Serialize;
use uuid::Uuid;

/// All characters but the unreserved ones of RFC 3986.
const ENCODED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');
/// The characters that are encoded at the end of a path: addresses keep `/` and `:`.
const ENCODED_IN_PATH: &AsciiSet = &ENCODED.remove(b'/').remove(b':');

/// One request to the service.
#[derive(Clone, Debug)]
pub struct Request {
    pub(crate) method: Method,
    path: String,
    query: Vec<(&'static str, String)>,
    /// The JSON, or why the value could not be serialized.
    pub(crate) body: Option<Result<Vec<u8>, String>>,
    /// Present on every write, so that it can be repeated.
    pub(crate) idempotency_key: Option<String>,
    pub(crate) last_event_id: Option<u64>,
    /// How long the service is asked to wait before it answers.
    pub(crate) wait: Duration,
}

impl Request {
    /// Returns a read of a path under `/v1/`.
    pub fn get(path: &str) -> Self {
        Self {
            method: Method::GET,
            path: format!("/v1/{path}"),
            query: Vec::new(),
            body: None,
            idempotency_key: None,
            last_event_id: None,
            wait: Duration::ZERO,
        }
    }

    /// Returns a read of a path under `/v1/` that sends a document.
    pub fn query_with(path: &str, document: &impl Serialize) -> Self {
        Self { method: Method::POST, ..Self::get(path) }.body(document)
    }

    /// Returns a write to a path under `/v1/`, under this key or one of its own.
    pub fn write(method: Method, path: &str, key: Option<&str>) -> Self {
        let key = key.map_or_else(|| Uuid::new_v4().simple().to_string(), str::to_owned);
        Self { method, idempotency_key: Some(key), ..Self::get(path) }
    }

    /// Returns the write of a call: repeating the call repeats the same write.
    pub fn of_call(method: Method, path: &str, call: &Call) -> Self {
        let request = Self::write(method, path, Some(call.request_id.as_str()));
        request.query("allow_foreign", call.allow_foreign.then_some(true))
    }

    /// Appends an address to the path.
    #[must_use]
    pub fn at(self, address: &Address) -> Self {
        self.rest(address.as_str())
    }

    /// Appends a text to the path.
    #[must_use]
    pub fn rest(mut self, text: &str) -> Self {
        self.path.push('/');
        self.path.extend(utf8_percent_encode(text, ENCODED_IN_PATH));
        self
    }

    /// Adds a query parameter, if there is a value. The seconds of `wait` extend the deadline of the request.
    #[must_use]
    pub fn query(mut self, name: &'static str, value: Option<impl ToString>) -> Self {
        let Some(value) = value.map(|value| value.to_string()) else { return self };
        if name == "wait" {
            self.wait = Duration::from_secs(value.parse().unwrap_or(0));
        }
        self.query.push((name, value));
        self
    }

    /// Adds a query parameter once for each value.
    #[must_use]
    pub fn queries<T: ToString>(mut self, name: &'static str, values: impl IntoIterator<Item = T>) -> Self {
        self.query.extend(values.into_iter().map(|value| (name, value.to_string())));
        self
    }

    /// Makes a stream of events continue after the event of this id.
    #[must_use]
    pub fn resume(mut self, last_event_id: Option<u64>) -> Self {
        self.last_event_id = last_event_id;
        self
    }

    /// Sends this as JSON.
    #[must_use]
    pub fn body(mut self, body: &impl Serialize) -> Self {
        self.body = Some(serde_json::to_vec(body).map_err(|error| error.to_string()));
        self
    }

    /// Returns the key under which a write is sent.
    pub fn idempotency_key(&self) -> Option<&str> {
        self.idempotency_key.as_deref()
    }

    /// Returns path and query.
    pub fn uri(&self) -> String {
        let mut uri = self.path.clone();
        for (i, (name, value)) in self.query.iter().enumerate() {
            uri.push(if i == 0 { '?' } else { '&' });
            uri.push_str(name);
            uri.push('=');
            uri.extend(utf8_percent_encode(value, ENCODED));
        }
        uri
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_keep_their_slashes_and_colons_and_nothing_else() {
        let address = Address::parse("tenant/größe db:feature/x+y").unwrap();
        let request = Request::get("records").at(&address).query("concerns", Some("head,index")).query("x", None::<u8>);
        assert_eq!(request.uri(), "/v1/records/tenant/gr%C3%B6%C3%9Fe%20db:feature/x%2By?concerns=head%2Cindex");
    }

    #[test]
    fn a_call_is_repeated_under_one_key() {
        let call = Call::fresh();
        let keys: Vec<_> = (0..2).map(|_| Request::of_call(Method::PUT, "heads", &call).idempotency_key).collect();
        assert_eq!(keys[0], keys[1]);
        let other = Request::write(Method::PUT, "heads", None).idempotency_key;
        assert_ne!(keys[0], other);
    }
}
