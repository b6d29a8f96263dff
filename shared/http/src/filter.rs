//! Which changes a reader is sent: those that it asks for and may see.

use nameservice_model::{Address, AddressGlob, Change, ChangedPart, RecordKind};

use crate::{Problem, page};

/// The changes that a reader asks for. Each condition that is given must match; of several addresses or concerns, any
/// one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Filter {
    globs: Vec<AddressGlob>,
    addresses: Vec<Address>,
    prefix: String,
    kind: Option<RecordKind>,
    source_type: Option<String>,
    parts: Vec<ChangedPart>,
}

impl Filter {
    /// Reads the parameters of a query. A pattern that no address can match is an error.
    pub fn new(addresses: &[String], kind: Option<RecordKind>, parts: Vec<ChangedPart>) -> Result<Self, Problem> {
        let glob =
            |text: &String| AddressGlob::parse(text).map_err(|reason| Problem::invalid_parameter("address", reason));
        Ok(Self { globs: addresses.iter().map(glob).collect::<Result<_, _>>()?, kind, parts, ..Self::default() })
    }

    /// Selects only addresses that begin with this.
    pub fn with_prefix(mut self, prefix: Option<String>) -> Result<Self, Problem> {
        self.prefix = page::prefix(prefix)?.unwrap_or_default();
        Ok(self)
    }

    /// Selects only graph sources of this type.
    pub fn of_type(mut self, source_type: Option<String>) -> Self {
        self.source_type = source_type;
        self
    }

    /// Selects all changes of these records, or of all records if none is given, except those of one part.
    pub fn of_records(addresses: impl IntoIterator<Item = Address>, without: ChangedPart) -> Self {
        let mut addresses: Vec<_> = addresses.into_iter().collect();
        addresses.sort();
        addresses.dedup();
        let parts = ChangedPart::ALL.into_iter().filter(|part| *part != without).collect();
        Self { addresses, parts, ..Self::default() }
    }

    /// Whether the reader asks for a change.
    pub fn wants(&self, change: &Change) -> bool {
        (self.names_none()
            || self.addresses.contains(&change.address)
            || self.globs.iter().any(|glob| glob.matches(&change.address)))
            && change.address.as_str().starts_with(&self.prefix)
            && self.kind.is_none_or(|kind| kind == change.identity.kind)
            && self.source_type.as_ref().is_none_or(|wanted| change.identity.source_type.as_ref() == Some(wanted))
            && (self.parts.is_empty() || self.parts.contains(&change.part))
    }

    fn names_none(&self) -> bool {
        self.globs.is_empty() && self.addresses.is_empty()
    }
}

/// The records that a caller may see, as a value: callers with equal values see the same records.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Visible {
    /// All of them.
    All,
    /// Those that match a pattern or are listed. There may be none.
    Only { globs: Vec<AddressGlob>, addresses: Vec<Address> },
}

impl Visible {
    fn shows(&self, address: &Address) -> bool {
        match self {
            Self::All => true,
            Self::Only { globs, addresses } => {
                globs.iter().any(|glob| glob.matches(address)) || addresses.contains(address)
            }
        }
    }
}

/// What a reader asks for and may see, and in which form. Readers with equal interests are sent exactly the same bytes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Interest {
    filter: Filter,
    visible: Visible,
    form: String,
}

/// A key under which the readers of a change are found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Key<'a> {
    /// The whole address.
    Exact(&'a str),
    /// A prefix of it.
    Prefix(&'a str),
}

impl Interest {
    pub(crate) fn new(filter: Filter, visible: Visible, form: String) -> Self {
        Self { filter, visible, form }
    }

    /// Whether a reader is sent a change.
    pub fn takes(&self, change: &Change) -> bool {
        // Rows whose names are not valid addresses are never visible over HTTP.
        self.filter.wants(change) && change.address.is_well_formed() && self.visible.shows(&change.address)
    }

    /// The keys under which the reader is found: every change that it takes has one of them.
    pub(crate) fn keys(&self) -> Vec<Key<'_>> {
        let (globs, addresses) = match &self.visible {
            _ if !self.filter.names_none() => (&self.filter.globs, &self.filter.addresses),
            _ if !self.filter.prefix.is_empty() => return vec![Key::Prefix(&self.filter.prefix)],
            Visible::Only { globs, addresses } => (globs, addresses),
            Visible::All => return vec![Key::Prefix("")],
        };
        let exactly = addresses.iter().map(|address| Key::Exact(address.as_str()));
        globs.iter().map(|glob| key(glob.as_str())).chain(exactly).collect()
    }
}

fn key(glob: &str) -> Key<'_> {
    match glob.find(['*', '?']) {
        Some(end) => Key::Prefix(&glob[..end]),
        None => Key::Exact(glob),
    }
}
