//! What Fluree's engine can read: the kinds of content that it names by the codec of their ids, and the names of ledgers.
//!
//! In a place that is shared with Fluree, one head or index of another codec makes every query and insert of its ledger fail
//! there, and a ledger under a name that Fluree's storage uses itself could overwrite the data of another. [`check_fluree`]
//! rejects such a write before anything of it is written; [`BesideFluree`] does so for any backend.

use std::sync::Arc;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use crate::{
    Address, Call, Config, ContentId, Error, Head, Index, IndexPush, NameService, NewIndex, NewLedger, OperationKind,
    RecordKind, Records, Result, Status, Write, WriteAll, Written, forward_names,
};

/// Segments of names, and branches, under which Fluree creates no ledger: its storage has directories of these names below each
/// ledger.
const RESERVED: [&str; 5] = ["commit", "index", "txn", "config", "blob"];
/// The first segment of a name under which it creates none: the data of graph sources is there.
const RESERVED_ROOT: &str = "graph-sources";

/// What Fluree names by a content id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FlureeContent {
    /// A commit: the head of a ledger.
    Commit,
    /// The root of an index: the index of a ledger.
    IndexRoot,
}

impl FlureeContent {
    /// Returns the codec of its ids.
    pub const fn codec(self) -> u64 {
        match self {
            Self::Commit => 0x30_0001,
            Self::IndexRoot => 0x30_000f,
        }
    }

    /// Returns whether an id names content of this kind.
    pub fn is_named_by(self, id: &ContentId) -> bool {
        id.codec() == Some(self.codec())
    }

    /// Describes it, with what its ids begin with.
    pub const fn describe(self) -> &'static str {
        match self {
            Self::Commit => "a commit of Fluree (`bagay…`)",
            Self::IndexRoot => "an index root of Fluree (`bagh…`)",
        }
    }
}

/// An id that a write stores.
struct Stored<'a> {
    field: String,
    address: &'a Address,
    id: &'a ContentId,
    expected: FlureeContent,
}

/// Returns the ids that a write stores anew.
fn ids(write: &Write) -> Vec<Stored<'_>> {
    use FlureeContent::{Commit, IndexRoot};
    let mut found = Vec::new();
    let mut add = |field: String, address, id, expected| found.push(Stored { field, address, id, expected });
    match write {
        Write::CreateLedger(NewLedger { address, head: Some(head), .. }) => {
            add("head.id".into(), address, head.id(), Commit);
        }
        Write::CreateBranch { branch, at: Some(head), .. } => add("at.id".into(), branch, head.id(), Commit),
        Write::PushHead { address, push } => add("new.id".into(), address, push.desired().id(), Commit),
        Write::PushIndex { address, push } => {
            for (field, id) in of_index(push, "new") {
                add(field, address, id, IndexRoot);
            }
        }
        Write::ResetHead { address, to } => {
            if let Some(head) = to.head() {
                add("head.id".into(), address, head.id(), Commit);
            }
            if let Some(index) = to.index() {
                add("index.id".into(), address, index.id(), IndexRoot);
            }
        }
        Write::Commit(transaction) => {
            for (n, operation) in transaction.operations().iter().enumerate() {
                let address = &operation.address;
                match &operation.action {
                    OperationKind::PushHead(push) => {
                        add(format!("operations[{n}].new.id"), address, push.desired().id(), Commit);
                    }
                    OperationKind::PushIndex(push) => {
                        for (field, id) in of_index(push, &format!("operations[{n}].new")) {
                            add(field, address, id, IndexRoot);
                        }
                    }
                    _ => {}
                }
            }
        }
        _ => {}
    }
    found
}

fn of_index<'a>(push: &'a IndexPush, within: &str) -> Vec<(String, &'a ContentId)> {
    let new: &NewIndex = push.desired();
    let graphs = new
        .graphs()
        .iter()
        .filter_map(|(name, graph)| Some((format!("{within}.graphs.{name}.id"), graph.as_ref()?.id())));
    std::iter::once((format!("{within}.id"), new.id())).chain(graphs).collect()
}

/// Returns the ledger that a write creates, unless it is there, and the member of the write that names it.
fn created(write: &Write) -> Option<(&'static str, &Address)> {
    match write {
        Write::CreateLedger(NewLedger { address, .. }) => Some(("address", address)),
        Write::CreateBranch { branch, .. } => Some(("branch", branch)),
        Write::PushHead { address, push } if push.creates() => Some(("address", address)),
        Write::PushIndex { address, push } if push.creates() => Some(("address", address)),
        _ => None,
    }
}

/// Returns why Fluree creates no ledger of this name; `None` if it does.
fn reservation(address: &Address) -> Option<String> {
    let mut segments = address.name().split('/');
    if segments.clone().next() == Some(RESERVED_ROOT) {
        return Some(format!("names that begin with `{RESERVED_ROOT}` are those of its graph sources' data"));
    }
    let is_reserved = |segment: &&str| RESERVED.contains(segment);
    let reserved = segments.find(is_reserved).or_else(|| Some(address.branch()).filter(is_reserved))?;
    Some(format!("the segment `{reserved}` is reserved by its storage"))
}

/// Rejects a write that stores an id which Fluree's engine cannot read, or that creates a ledger which Fluree would not create,
/// unless the call allows it. The indexes of graph sources are Fluree's own in many formats, so any is accepted: only if an
/// index looks foreign, the record is read to learn its kind.
pub async fn check_fluree<N: NameService + ?Sized>(names: &N, call: &Call, write: &Write) -> Result<()> {
    if call.allow_foreign {
        return Ok(());
    }
    if let Some((field, address)) = created(write)
        && let Some(reason) = reservation(address)
    {
        return Err(Error::NotFlureeName { field: field.to_owned(), address: address.clone(), reason });
    }
    for Stored { field, address, id, expected } in ids(write) {
        if expected.is_named_by(id) {
            continue;
        }
        let is_of_a_ledger = expected == FlureeContent::Commit
            || names.lookup(address).await?.is_none_or(|record| record.kind == RecordKind::Ledger);
        if is_of_a_ledger {
            return Err(Error::NotFluree { field, id: id.clone(), expected });
        }
    }
    Ok(())
}

/// A backend whose place is shared with Fluree: what Fluree's engine cannot read, or would not create, is rejected.
#[derive(Clone)]
pub struct BesideFluree(Arc<dyn Records>);

impl BesideFluree {
    /// Returns the backend in front of another.
    pub fn new(backend: Arc<dyn Records>) -> Self {
        Self(backend)
    }
}

impl std::fmt::Debug for BesideFluree {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("BesideFluree")
    }
}

forward_names!(impl[] BesideFluree, this => &*this.0);

#[async_trait]
impl WriteAll for BesideFluree {
    async fn write(&self, call: &Call, write: Write) -> Result<Written> {
        check_fluree(&*self.0, call, &write).await?;
        write.send(call, &*self.0).await
    }

    async fn read_head(&self, address: &Address) -> Result<Option<Head>> {
        self.0.head(address).await
    }

    async fn read_index(&self, address: &Address) -> Result<Option<Index>> {
        self.0.index(address).await
    }

    async fn read_status(&self, address: &Address) -> Result<Option<Status>> {
        self.0.status(address).await
    }

    async fn read_config(&self, address: &Address) -> Result<Option<Config>> {
        self.0.config(address).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_of_fluree_are_known_by_their_codec() {
        use FlureeContent::{Commit, IndexRoot};
        let commit = "bagaybqabciqgzqtsjbrqbffrm4ty533it7ddqf64mij4qin6czev43pzhuhgqky";
        let root = "baghybqabciqphzejdjfwlxltxmclquh6o62cyiqgzkdrax4bzm5r6sgd6fcajmy";
        let context = "bageibqabciqpaydqwpuyz37ign4ntxbyylvgiylwovufmb2wnuh37zg5snp2vdy";
        let raw = "bafkreihdwdcefgh4dqkjv67uzcmw7ojee6xedzdetojuzjevtenxquvyku";
        for (text, is_commit, is_root) in
            [(commit, true, false), (root, false, true), (context, false, false), (raw, false, false)]
        {
            let id = ContentId::parse(text).unwrap();
            assert_eq!((Commit.is_named_by(&id), IndexRoot.is_named_by(&id)), (is_commit, is_root), "{text}");
        }
        assert_eq!(ContentId::stored("latest").codec(), None);
    }

    #[test]
    fn names_that_flurees_storage_uses_itself_are_reserved_and_no_others() {
        for segment in RESERVED {
            for text in [format!("{segment}:main"), format!("a/{segment}/b:main"), format!("a:{segment}")] {
                let reason = reservation(&Address::parse(&text).unwrap()).unwrap();
                assert!(reason.contains(&format!("`{segment}`")), "{text}: {reason}");
            }
        }
        for text in ["graph-sources", "graph-sources/a:dev"] {
            assert!(reservation(&Address::parse(text).unwrap()).is_some(), "{text}");
        }
        for text in ["a", "Commit", "commits/index.1:txn-2", "a/graph-sources", "a:graph-sources", "graph-sources-2"] {
            assert_eq!(reservation(&Address::parse(text).unwrap()), None, "{text}");
        }
    }
}
