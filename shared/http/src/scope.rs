//! What a caller may do.

/// What an operation needs. Each includes those before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Scope {
    /// Follow Fluree's events.
    Events,
    /// Look at records.
    Read,
    /// Create, push, retract, restore.
    Write,
    /// Purge, drop, reset, overwrite.
    Admin,
}

impl Scope {
    /// Those that a token can name.
    pub(crate) const NAMED: [Self; 3] = [Self::Read, Self::Write, Self::Admin];

    /// The name in a token.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Events | Self::Read => "nameservice:read",
            Self::Write => "nameservice:write",
            Self::Admin => "nameservice:admin",
        }
    }
}
