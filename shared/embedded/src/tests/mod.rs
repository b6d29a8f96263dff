//! Tests of what is particular to this backend. The contract suite tests its behaviour as a nameservice.

mod backups;
mod calls;
mod commands;
mod crashes;
mod doctor;
mod durability;
mod feed;
mod files;
mod full_disk;
mod limits;
mod outcomes;
mod replicas;
mod restores;
mod retention;
mod scrub;
mod search;
mod snapshots;
mod sums;

use std::{fs, path::Path, time::Duration};

use nameservice_model::{Address, Call, ContentId, Head, HeadPush, NewHead, PushOutcome, RefPublisher};
use rusqlite::{Connection, params};

use crate::{
    Embedded, Options,
    directory::{DURABLE_FILE, LOG_FILE},
    log::rows,
};

fn at(address: &str) -> Address {
    Address::parse(address).unwrap()
}

fn id(n: i64) -> ContentId {
    ContentId::stored(format!("bafy{n}"))
}

fn head(t: i64) -> NewHead {
    NewHead::new(id(t), t).unwrap()
}

/// Makes a log one of the format before: without checksums, identity, and what is remembered of addresses.
fn without_sums(directory: &Path) {
    let log = Connection::open(directory.join(LOG_FILE)).unwrap();
    log.execute_batch("DROP TABLE memories; DROP TABLE identity; PRAGMA user_version = 2").unwrap();
    for table in ["log", "tail"] {
        log.execute(&format!("UPDATE {table} SET body = substr(body, 1, length(body) - 8)"), []).unwrap();
    }
    let mut select = log.prepare("SELECT id, body FROM records").unwrap();
    let found = select.query_map([], |row| Ok((row.get::<_, u64>(0)?, row.get::<_, Vec<u8>>(1)?))).unwrap();
    let bodies: Vec<_> = found.map(Result::unwrap).collect();
    for (id, body) in bodies {
        let (record, _) = rows::checked_record(id, &body).unwrap();
        let mut former = postcard::to_stdvec(&record).unwrap();
        former.extend(record.protected.then_some(1));
        log.execute("UPDATE records SET body = ?2 WHERE id = ?1", params![id, former]).unwrap();
    }
    let _ = fs::remove_file(directory.join(DURABLE_FILE));
}

fn open(directory: &Path) -> Embedded {
    Embedded::open(directory, Options::default()).unwrap()
}

async fn push(names: &Embedded, address: &str, t: i64) -> nameservice_model::Result<PushOutcome<ContentId>> {
    let push = if t == 1 { HeadPush::create(head(t)) } else { HeadPush::monotonic(head(t)) };
    names.push_head(&Call::fresh(), &at(address), &push).await
}

async fn pushed(names: &Embedded, address: &str, t: i64) {
    let outcome = push(names, address, t).await.unwrap();
    assert!(matches!(outcome, PushOutcome::Updated { replayed: false, .. }), "{outcome:?}");
}

async fn head_of(names: &Embedded, address: &str) -> Option<Head> {
    names.head(&at(address)).await.unwrap()
}

/// The timeout of tests that wait for something that must happen.
const LONG: Duration = Duration::from_secs(120);
