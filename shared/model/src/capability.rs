use serde::{Deserialize, Serialize};
use strum::{AsRefStr, Display, EnumString, IntoStaticStr};

use crate::UnknownName;

/// A feature that a backend may lack. Operations that need it are then rejected with
/// [`Error::Unsupported`](crate::Error::Unsupported).
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    Hash,
    PartialOrd,
    Ord,
    Serialize,
    Deserialize,
    AsRefStr,
    Display,
    EnumString,
    IntoStaticStr,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case", parse_err_ty = UnknownName, parse_err_fn = Self::unknown)]
#[non_exhaustive]
pub enum Capability {
    /// Leases with fencing tokens.
    Leases,
    /// Index pushes that are valid only under a lease.
    LeasedIndexPushes,
    /// References are counted and enforced in one step with the write that makes or removes them.
    AtomicReferences,
    /// Transactions over several records.
    Transactions,
    /// Indexes of named graphs.
    NamedGraphs,
    /// Addresses of any form that the grammar allows.
    AnyAddress,
    /// Search by words.
    Search,
    /// Writes to records in the file format of an earlier version of Fluree.
    FormerFormats,
    /// Writes that a store accepts only if what they replace is still stored. A place without them accepts no write at all.
    ConditionalWrites,
}

impl Capability {
    /// Every capability.
    pub const ALL: [Self; 9] = [
        Self::Leases,
        Self::LeasedIndexPushes,
        Self::AtomicReferences,
        Self::Transactions,
        Self::NamedGraphs,
        Self::AnyAddress,
        Self::Search,
        Self::FormerFormats,
        Self::ConditionalWrites,
    ];

    /// Returns the name in JSON.
    pub fn as_str(self) -> &'static str {
        self.into()
    }

    fn unknown(name: &str) -> UnknownName {
        UnknownName::new("capability", name, Self::ALL.map(Self::as_str))
    }
}

/// How a write whose answer was lost is recognised when it is repeated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum LostReplies {
    /// Every concern remembers the ids of its last four writes.
    RequestIds,
    /// The concerns remember the ids until another program rewrites the data that holds them; then the stored value decides.
    StoredValues,
}

/// Where the changes of the feed come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum FeedKind {
    /// Every write is a change.
    Stream,
    /// Changes are differences between the stored data and the previous look at it: several writes to one concern by
    /// another program may appear as one change.
    Comparison,
}

/// What a backend can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Capabilities {
    /// Leases with fencing tokens.
    pub leases: bool,
    /// Index pushes that are valid only under a lease.
    pub leased_index_pushes: bool,
    /// References are counted and enforced in one step with the write that makes or removes them. Otherwise they are
    /// checked before it.
    pub atomic_references: bool,
    /// Transactions over several records.
    pub transactions: bool,
    /// Indexes of named graphs.
    pub named_graphs: bool,
    /// Addresses of any form that the grammar allows.
    pub any_address: bool,
    /// Search by words. A service of an earlier version has none.
    #[serde(default)]
    pub search: bool,
    /// How a write whose answer was lost is recognised when it is repeated.
    pub lost_replies: LostReplies,
    /// Where the changes of the feed come from.
    pub feed: FeedKind,
}

impl Capabilities {
    /// The capabilities of a backend that lacks nothing.
    pub const ALL: Self = Self {
        leases: true,
        leased_index_pushes: true,
        atomic_references: true,
        transactions: true,
        named_graphs: true,
        any_address: true,
        search: true,
        lost_replies: LostReplies::RequestIds,
        feed: FeedKind::Stream,
    };

    /// Returns these capabilities without the given ones.
    #[must_use]
    pub fn without(mut self, lacks: &[Capability]) -> Self {
        for lack in lacks {
            match lack {
                Capability::Leases => self.leases = false,
                Capability::LeasedIndexPushes => self.leased_index_pushes = false,
                Capability::AtomicReferences => self.atomic_references = false,
                Capability::Transactions => self.transactions = false,
                Capability::NamedGraphs => self.named_graphs = false,
                Capability::AnyAddress => self.any_address = false,
                Capability::Search => self.search = false,
                Capability::FormerFormats | Capability::ConditionalWrites => {}
            }
        }
        self
    }

    /// Returns whether this capability is included.
    pub const fn has(&self, capability: Capability) -> bool {
        match capability {
            Capability::Leases => self.leases,
            Capability::LeasedIndexPushes => self.leased_index_pushes,
            Capability::AtomicReferences => self.atomic_references,
            Capability::Transactions => self.transactions,
            Capability::NamedGraphs => self.named_graphs,
            Capability::AnyAddress => self.any_address,
            Capability::Search => self.search,
            Capability::FormerFormats => false,
            Capability::ConditionalWrites => true,
        }
    }
}

/// The capabilities of a backend that does not declare any: everything except search.
impl Default for Capabilities {
    fn default() -> Self {
        Self { search: false, ..Self::ALL }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_backend_without_a_capability_has_all_others() {
        let lacks = [Capability::Transactions, Capability::AnyAddress];
        let some = Capabilities::ALL.without(&lacks);
        for capability in Capability::ALL {
            assert_eq!(some.has(capability), Capabilities::ALL.has(capability) && !lacks.contains(&capability));
            assert_eq!(capability.to_string().parse(), Ok(capability));
        }
    }
}
