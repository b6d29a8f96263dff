//! Content ids that are valid, distinct and the same in every run.

use cid::{Cid, multihash::Multihash};
use nameservice_model::ContentId;
use sha2::{Digest, Sha256};

const RAW: u64 = 0x55;
const SHA2_256: u64 = 0x12;

/// The id of the n-th commit.
pub fn cid(n: i64) -> ContentId {
    id_of(&format!("commit {n}"))
}

/// The id of the n-th index root.
pub fn index_cid(n: i64) -> ContentId {
    id_of(&format!("index {n}"))
}

/// The id of some content.
pub fn id_of(content: &str) -> ContentId {
    let digest = Multihash::<64>::wrap(SHA2_256, &Sha256::digest(content)).unwrap();
    ContentId::parse(&Cid::new_v1(RAW, digest).to_string()).unwrap()
}
