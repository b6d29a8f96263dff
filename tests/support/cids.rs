//! Content ids that are valid, distinct and the same in every run.

use cid::{Cid, multihash::Multihash};
use nameservice_model::ContentId;
use sha2::{Digest, Sha256};

const RAW: u64 = 0x55;
/// The codecs of Fluree's commits and index roots: tests share places with Fluree.
const COMMIT: u64 = 0x30_0001;
const INDEX_ROOT: u64 = 0x30_000f;
const SHA2_256: u64 = 0x12;

/// The id of the n-th commit.
pub fn cid(n: i64) -> ContentId {
    id_of(&format!("commit {n}"))
}

/// The id of the n-th index root.
pub fn index_cid(n: i64) -> ContentId {
    root_of(&format!("index {n}"))
}

/// The id of a commit with some content.
pub fn id_of(content: &str) -> ContentId {
    encoded(COMMIT, content)
}

/// The id of an index root with some content.
pub fn root_of(content: &str) -> ContentId {
    encoded(INDEX_ROOT, content)
}

/// The id of some content for the head or the index of a ledger, by the name of the concern.
pub fn id_for(concern: &str, content: &str) -> ContentId {
    if concern == "index" { root_of(content) } else { id_of(content) }
}

/// The id of some content that is no commit and no index root of Fluree's.
pub fn foreign_id(content: &str) -> ContentId {
    encoded(RAW, content)
}

fn encoded(codec: u64, content: &str) -> ContentId {
    let digest = Multihash::<64>::wrap(SHA2_256, &Sha256::digest(content)).unwrap();
    ContentId::parse(&Cid::new_v1(codec, digest).to_string()).unwrap()
}
