//! Which changes a reader is sent: those that it asks for and may see.

use std::sync::Arc;

use nameservice_model::{Address, AddressGlob, Change, ChangedPart, Error, RecordKind};

use crate::{Problem, page};

/// How many patterns of addresses a request, or all subscriptions of a socket together, may have: each is matched with
/// every change.
pub const MAX_PATTERNS: usize = 100;
/// How many patterns are matched on a thread that answers requests: others are matched on a thread of their own.
pub(crate) const MATCHED_INLINE: usize = 5_000;

/// Returns the problem of a request with more patterns than [`MAX_PATTERNS`] in these parameters together.
pub fn check_patterns(parameters: &[&str], count: usize) -> Result<(), Problem> {
    match count <= MAX_PATTERNS {
        true => Ok(()),
        false => {
            let (first, others) =
                parameters.split_first().map_or(("", [].as_slice()), |(first, others)| (*first, others));
            let together: String = others.iter().map(|other| format!(" together with `{other}`")).collect();
            let reason = format!("is given {count} times{together}, and at most {MAX_PATTERNS} times is allowed");
            Err(Problem::invalid_parameter(first, reason))
        }
    }
}

/// Records that are named, by their addresses or by patterns, each once.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Named {
    /// Patterns that match more than one address.
    globs: Vec<AddressGlob>,
    /// Sorted.
    addresses: Vec<Address>,
}

impl Named {
    pub(crate) fn new(
        globs: impl IntoIterator<Item = AddressGlob>,
        addresses: impl IntoIterator<Item = Address>,
    ) -> Self {
        let (exact, mut globs): (Vec<_>, Vec<_>) = globs.into_iter().partition(AddressGlob::is_exact);
        let exact = exact.iter().map(|glob| Address::stored(glob.as_str()));
        let mut addresses: Vec<_> = addresses.into_iter().chain(exact).collect();
        globs.sort_unstable_by(|one, other| one.as_str().cmp(other.as_str()));
        globs.dedup();
        addresses.sort_unstable();
        addresses.dedup();
        Self { globs, addresses }
    }

    pub(crate) fn holds(&self, address: &Address) -> bool {
        self.addresses.binary_search(address).is_ok() || self.globs.iter().any(|glob| glob.matches(address))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.globs.is_empty() && self.addresses.is_empty()
    }

    pub(crate) fn globs(&self) -> &[AddressGlob] {
        &self.globs
    }

    pub(crate) fn addresses(&self) -> &[Address] {
        &self.addresses
    }

    pub(crate) fn and(&self, other: &Self) -> Self {
        let globs = self.globs.iter().chain(&other.globs).cloned();
        Self::new(globs, self.addresses.iter().chain(&other.addresses).cloned())
    }

    /// The keys of all that is named. None is a prefix of another, so that an address has at most one of them.
    fn keys(&self) -> Vec<Key<'_>> {
        let mut prefixes: Vec<_> = self.globs.iter().map(|glob| prefix(glob.as_str())).collect();
        prefixes.sort_unstable();
        // What begins with another prefix follows it.
        prefixes.dedup_by(|later, kept| later.starts_with(*kept));
        let covered = |address: &str| {
            let at = prefixes.partition_point(|prefix| *prefix <= address);
            at > 0 && address.starts_with(prefixes[at - 1])
        };
        let exactly = self.addresses.iter().map(Address::as_str).filter(|address| !covered(address)).map(Key::Exact);
        exactly.chain(prefixes.iter().copied().map(Key::Prefix)).collect()
    }
}

/// The part of a pattern before its first wildcard.
fn prefix(glob: &str) -> &str {
    glob.split(['*', '?']).next().unwrap_or_default()
}

/// The changes that a reader asks for. Each condition that is given must match; of several addresses or concerns, any
/// one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Filter {
    named: Named,
    prefix: String,
    kind: Option<RecordKind>,
    source_type: Option<String>,
    parts: Vec<ChangedPart>,
}

impl Filter {
    /// Reads the parameters of a query. A pattern that no address can match is an error, and so are more than
    /// [`MAX_PATTERNS`].
    pub fn new(addresses: &[String], kind: Option<RecordKind>, parts: Vec<ChangedPart>) -> Result<Self, Problem> {
        check_patterns(&["address"], addresses.len())?;
        let glob =
            |text: &String| AddressGlob::parse(text).map_err(|reason| Problem::invalid_parameter("address", reason));
        let globs = addresses.iter().map(glob).collect::<Result<Vec<_>, _>>()?;
        Ok(Self { named: Named::new(globs, []), kind, parts, ..Self::default() })
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
        let parts = ChangedPart::ALL.into_iter().filter(|part| *part != without).collect();
        Self { named: Named::new([], addresses), parts, ..Self::default() }
    }

    /// Whether the reader asks for a change.
    pub fn wants(&self, change: &Change) -> bool {
        change.address.as_str().starts_with(&self.prefix)
            && self.kind.is_none_or(|kind| kind == change.identity.kind)
            && self.source_type.as_ref().is_none_or(|wanted| change.identity.source_type.as_ref() == Some(wanted))
            && (self.parts.is_empty() || self.parts.contains(&change.part))
            && (self.named.is_empty() || self.named.holds(&change.address))
    }
}

/// The records that a caller may see, as a value: callers with equal values see the same records.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Visible {
    /// All of them.
    All,
    /// Those that are named. There may be none.
    Only(Named),
}

impl Visible {
    fn shows(&self, address: &Address) -> bool {
        match self {
            Self::All => true,
            Self::Only(named) => named.holds(address),
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
        change.address.is_well_formed() && self.visible.shows(&change.address) && self.filter.wants(change)
    }

    /// Returns which of the changes a reader is sent. Many patterns are not matched on a thread that answers requests.
    pub async fn marked<T: Send + 'static>(
        self: &Arc<Self>,
        changes: Vec<T>,
        change: fn(&T) -> &Change,
    ) -> Result<Vec<(T, bool)>, Error> {
        let (interest, work) = (self.clone(), self.patterns() * changes.len());
        let mark = move || {
            let marked = changes.into_iter().map(|item| {
                let is_taken = interest.takes(change(&item));
                (item, is_taken)
            });
            marked.collect::<Vec<_>>()
        };
        apart(work, mark).await
    }

    /// How many patterns are matched with a change at most.
    pub(crate) fn patterns(&self) -> usize {
        let seen = if let Visible::Only(named) = &self.visible { named.globs().len() } else { 0 };
        seen + self.filter.named.globs().len()
    }

    /// The keys under which the reader is found: every change that it takes has exactly one of them.
    pub(crate) fn keys(&self) -> Vec<Key<'_>> {
        match &self.visible {
            _ if !self.filter.named.is_empty() => self.filter.named.keys(),
            _ if !self.filter.prefix.is_empty() => vec![Key::Prefix(&self.filter.prefix)],
            Visible::Only(named) => named.keys(),
            Visible::All => vec![Key::Prefix("")],
        }
    }
}

/// Does what takes long on a thread that does not answer requests. `work` is how many patterns are matched.
pub(crate) async fn apart<T: Send + 'static>(work: usize, f: impl FnOnce() -> T + Send + 'static) -> Result<T, Error> {
    if work <= MATCHED_INLINE {
        return Ok(f());
    }
    let done = tokio::task::spawn_blocking(f).await;
    done.map_err(|error| Error::Unavailable { operation: "match patterns", source: Some(Box::new(error)) })
}
