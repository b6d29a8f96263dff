use nameservice_model::{AdminPublisher, Call, GraphSourcePublication, GraphSourcePublisher, Object, Publisher};
use rusqlite::Connection;

use super::{at, open, pushed};
use crate::{CODES, Embedded, Finding, Fix, OpenError, Options, directory::LOG_FILE, examine, log::rows};

fn findings(directory: &tempfile::TempDir, fix: bool) -> Vec<(&'static str, Fix)> {
    let mut found: Vec<Finding> = Vec::new();
    examine(directory.path(), fix, &mut |finding| found.push(finding)).unwrap();
    assert!(found.iter().all(|finding| CODES.iter().any(|(code, _)| *code == finding.code)), "{found:?}");
    found.into_iter().map(|finding| (finding.code, finding.fix)).collect()
}

/// A ledger with a branch and a graph source that depends on it.
async fn directory() -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    let names = open(directory.path());
    pushed(&names, "a", 1).await;
    pushed(&names, "a", 2).await;
    let _ = names.create_branch(&Call::fresh(), &at("a:dev"), &at("a"), None).await.unwrap();
    let publication = GraphSourcePublication::new(at("s"), "f:Bm25Index", Object::new()).unwrap();
    let publication = publication.with_dependencies(vec![at("a")]).unwrap();
    let _ = names.publish_graph_source(&Call::fresh(), &publication).await.unwrap();
    directory
}

fn damage(directory: &tempfile::TempDir, statement: &str) {
    let connection = Connection::open(directory.path().join(LOG_FILE)).unwrap();
    connection.execute_batch(statement).unwrap();
}

#[tokio::test]
async fn a_sound_log_has_no_findings_at_rest_and_while_it_is_served() {
    let directory = directory().await;
    assert_eq!(findings(&directory, false), []);
    let names = open(directory.path());
    let (examined, found) = names.examine().await.unwrap();
    assert_eq!((examined.records, found), (3, vec![]));
    assert_eq!(examined.changes, examined.position);
    let rejected = examine(directory.path(), false, &mut |_| {}).unwrap_err();
    assert!(matches!(rejected, OpenError::InUse { .. }), "{rejected:?}");
}

#[tokio::test]
async fn a_random_history_has_no_findings() {
    let directory = tempfile::tempdir().unwrap();
    let names = open(directory.path());
    let mut commands = super::commands::Commands::new(5);
    for _ in 0..300 {
        let _ = names.inner.writer.write("test", commands.next().0).await;
    }
    drop(names);
    assert_eq!(findings(&directory, false), []);
}

#[tokio::test]
async fn wrong_counts_are_set_to_what_is_there() {
    let directory = directory().await;
    let connection = Connection::open(directory.path().join(LOG_FILE)).unwrap();
    let body: Vec<u8> = connection.query_row("SELECT body FROM records WHERE id = 1", [], |row| row.get(0)).unwrap();
    let (mut record, _) = rows::checked_record(1, &body).unwrap();
    assert_eq!((record.branches, record.dependents), (1, 1));
    (record.branches, record.dependents) = (7, 0);
    let body = rows::encode_record(&record).unwrap();
    connection.execute("UPDATE records SET body = ?1 WHERE id = 1", [body]).unwrap();
    drop(connection);
    assert_eq!(findings(&directory, false), [("count-wrong", Fix::Possible)]);
    assert_eq!(findings(&directory, true), [("count-wrong", Fix::Done)]);
    assert_eq!(findings(&directory, false), []);
    let record = open(directory.path()).view().record(&at("a")).unwrap();
    assert_eq!((record.branches, record.dependents), (1, 1));
}

/// The counts of a record were right: those that it counts cannot be read, or are gone.
#[tokio::test]
async fn counts_are_not_corrected_beside_records_that_are_damaged_or_missing() {
    for statement in ["UPDATE records SET body = x'00' WHERE id > 1", "DELETE FROM records WHERE id > 1"] {
        let directory = directory().await;
        let body = || -> Vec<u8> {
            let connection = Connection::open(directory.path().join(LOG_FILE)).unwrap();
            connection.query_row("SELECT body FROM records WHERE id = 1", [], |row| row.get(0)).unwrap()
        };
        let before = body();
        damage(&directory, statement);
        let found = findings(&directory, true);
        assert!(found.contains(&("count-wrong", Fix::ByHand)), "{statement}: {found:?}");
        assert!(body() == before, "{statement}: the counts were right");
    }
}

#[tokio::test]
async fn a_branch_is_not_called_orphaned_for_a_source_that_cannot_be_read() {
    let directory = directory().await;
    damage(&directory, "UPDATE records SET body = x'00' WHERE id = 1");
    let mut found: Vec<Finding> = Vec::new();
    examine(directory.path(), true, &mut |finding| found.push(finding)).unwrap();
    let referring = found.iter().filter(|finding| ["branch-orphaned", "reference-dangling"].contains(&finding.code));
    let mends: Vec<_> = referring.map(|finding| finding.mend.as_str()).collect();
    assert!(mends.len() == 2 && mends.iter().all(|mend| mend.starts_with("nothing yet")), "{found:?}");
}

#[tokio::test]
async fn changes_up_to_a_gap_are_removed_and_readers_are_sent_to_a_snapshot() {
    for statement in ["DELETE FROM log WHERE position = 2", "UPDATE log SET body = x'ff' WHERE position = 2"] {
        let directory = directory().await;
        damage(&directory, statement);
        damage(&directory, &statement.replace("log", "tail"));
        let found = findings(&directory, true);
        assert!(matches!(found[..], [("log-gap" | "change-unreadable", Fix::Done)]), "{found:?}");
        assert_eq!(findings(&directory, false), []);
        let names = Embedded::open_existing(directory.path(), Options::default()).unwrap();
        let changes = nameservice_model::ChangeFeed::changes(&names, 0, nameservice_model::Limit::MAX).await.unwrap();
        assert!(matches!(changes, nameservice_model::Run::Gone { oldest: 2 | 3 }), "{changes:?}");
        pushed(&names, "a", 9).await;
    }
}

#[tokio::test]
async fn what_cannot_be_repaired_safely_is_left_to_the_operator() {
    for (statement, code) in [
        ("UPDATE records SET body = x'00' WHERE id = 1", "record-unreadable"),
        ("INSERT INTO records SELECT 100000, body FROM records WHERE id = 1", "record-unreadable"),
        ("DELETE FROM records WHERE id = 1", "state-unexplained"),
    ] {
        let directory = directory().await;
        damage(&directory, statement);
        let found = findings(&directory, true);
        assert!(found.iter().any(|(found, fix)| *found == code && *fix == Fix::ByHand), "{statement}: {found:?}");
    }
}

/// Whatever an unreadable change was: a creation, the last change of a head, a purge.
#[tokio::test]
async fn one_unreadable_change_prevents_no_start_and_accuses_no_record() {
    let changes = {
        let directory = history().await;
        let log = Connection::open(directory.path().join(LOG_FILE)).unwrap();
        log.query_row("SELECT count(*) FROM changes", [], |row| row.get::<_, u64>(0)).unwrap()
    };
    for position in 1..changes {
        let directory = history().await;
        for table in ["log", "tail"] {
            damage(&directory, &format!("UPDATE {table} SET body = x'ff' WHERE position = {position}"));
        }
        let names = Embedded::open_existing(directory.path(), Options::default()).unwrap();
        pushed(&names, "a", 9).await;
        drop(names);
        assert_eq!(findings(&directory, false), [("change-unreadable", Fix::Possible)], "{position}");
    }
}

/// A log in which each part of a record has changed, and a record was purged.
async fn history() -> tempfile::TempDir {
    let directory = directory().await;
    let names = open(directory.path());
    let _ = names.purge(&Call::fresh(), &at("s")).await.unwrap();
    pushed(&names, "b", 1).await;
    pushed(&names, "b", 2).await;
    let _ = names.retract(&Call::fresh(), &at("b"), None).await.unwrap();
    directory
}

#[tokio::test]
async fn the_last_change_is_never_removed() {
    let directory = directory().await;
    damage(&directory, "UPDATE tail SET body = x'ff' WHERE position = (SELECT max(position) FROM tail)");
    let found = findings(&directory, true);
    assert!(found.iter().any(|(code, fix)| *code == "change-unreadable" && *fix == Fix::ByHand), "{found:?}");
    let changes = Connection::open(directory.path().join(LOG_FILE)).unwrap();
    let left: u64 = changes.query_row("SELECT count(*) FROM changes", [], |row| row.get(0)).unwrap();
    assert!(left > 1, "{left}");
}

#[tokio::test]
async fn what_is_remembered_and_cannot_be_read_is_named_and_forgotten() {
    let directory = directory().await;
    damage(&directory, "INSERT INTO memories VALUES ('x:main', x'00')");
    let rejected = Embedded::open_existing(directory.path(), Options::default()).unwrap_err();
    assert!(rejected.to_string().contains("memories"), "{rejected}");
    assert_eq!(findings(&directory, false), [("memory-unreadable", Fix::Possible)]);
    assert_eq!(findings(&directory, true), [("memory-unreadable", Fix::Done)]);
    assert_eq!(findings(&directory, false), []);
    pushed(&open(directory.path()), "a", 9).await;
}
