/// The error for a name that is not a value of an enum.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{name}` is not a {what}: expected one of {expected}")]
pub struct UnknownName {
    what: &'static str,
    name: String,
    expected: String,
}

impl UnknownName {
    /// The error for a name where `what` was expected, one of `names`.
    pub(crate) fn new(what: &'static str, name: &str, names: impl IntoIterator<Item = &'static str>) -> Self {
        let expected = names.into_iter().collect::<Vec<_>>().join(", ");
        Self { what, name: name.chars().take(80).collect(), expected }
    }
}
