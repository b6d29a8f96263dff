use strum::{Display, IntoStaticStr};

/// The severity of a finding of a doctor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Display, IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
#[non_exhaustive]
pub enum Severity {
    /// Information only: data with no other findings is healthy.
    Note,
    /// Harmless today; it costs, misleads, or causes errors later.
    Warning,
    /// It causes wrong answers or wrong rejections.
    Error,
}

impl Severity {
    /// Returns its name.
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

/// Whether a finding can be, or was, repaired.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fix {
    /// Only by hand: [`Finding::mend`] describes how.
    ByHand,
    /// A run with repairs enabled would repair it.
    Possible,
    /// This run has repaired it.
    Done,
    /// This run has not repaired it, because others have written meanwhile. The next run examines it again.
    ChangedMeanwhile,
    /// The repair failed, for this reason.
    Failed(String),
}

/// A single inconsistency in the data of a backend.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Finding {
    /// The kind of the finding. Stable, for programs; each backend lists its own.
    pub code: &'static str,
    /// The severity.
    pub severity: Severity,
    /// The address of the record, as it is stored; `None` if the finding is not about a single record.
    pub address: Option<String>,
    /// What is wrong, as a sentence for an operator.
    pub what: String,
    /// How to repair it: what the repair does, or what to do by hand.
    pub mend: String,
    /// Whether it can be, or was, repaired.
    pub fix: Fix,
}

impl Finding {
    /// Creates a finding that is not about a single record and is repaired by hand.
    pub fn new(code: &'static str, severity: Severity, what: impl Into<String>, mend: impl Into<String>) -> Self {
        Self { code, severity, address: None, what: what.into(), mend: mend.into(), fix: Fix::ByHand }
    }

    /// Sets the record that it is about.
    #[must_use]
    pub fn at(mut self, address: impl Into<String>) -> Self {
        self.address = Some(address.into());
        self
    }

    /// Sets whether it can be, or was, repaired.
    #[must_use]
    pub fn with_fix(mut self, fix: Fix) -> Self {
        self.fix = fix;
        self
    }

    /// Returns whether it needs attention.
    pub fn is_open(&self) -> bool {
        self.severity > Severity::Note && self.fix != Fix::Done
    }
}
