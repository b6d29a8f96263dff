use std::fmt;

use uuid::Uuid;

/// Names one call that writes, so that its second arrival is recognised.
///
/// Every push stores it in the item and finds it there again among the last four
/// (contract §4); two calls with the same id are the same call.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RequestId(String);

impl RequestId {
    /// Takes an id that the caller has made: a hash of everything that makes the call what it is.
    pub fn new(id: impl Into<String>) -> Self {
        Self(id.into())
    }

    /// The text that is stored.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// What a write knows of the call that it serves.
#[derive(Clone, Debug)]
pub struct Call {
    /// The identity of the call.
    pub request_id: RequestId,
}

impl Call {
    /// A call under an id of the caller's making: repeating it with the same id does not apply twice.
    pub fn with_id(request_id: RequestId) -> Self {
        Self { request_id }
    }

    /// A call like no other.
    pub fn fresh() -> Self {
        Self::with_id(RequestId::new(Uuid::new_v4().simple().to_string()))
    }
}
