//! Nothing is visible before it is durable, and failures leave nothing half done.

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicUsize, Ordering},
    mpsc::{Receiver, Sender, channel},
};

use nameservice_model::{
    Call, ChangeFeed, Error, HeadPush, Limit, NameService, Operation, PushOutcome, RefPublisher, Run, Transaction,
    TransactionPublisher,
};
use rusqlite::{Connection, ffi};
use tokio::time::timeout;

use super::{LONG, at, head, head_of, id, push, pushed};
use crate::{Embedded, Options, log::Hook};

/// Lets commits proceed one by one.
struct Gate {
    arrived: Mutex<Sender<()>>,
    go: Mutex<Receiver<()>>,
}

fn gate() -> (Arc<Gate>, Receiver<()>, Sender<()>) {
    let ((arrived, arrivals), (pass, go)) = (channel(), channel());
    (Arc::new(Gate { arrived: Mutex::new(arrived), go: Mutex::new(go) }), arrivals, pass)
}

impl Hook for Gate {
    fn before_commit(&self, _connection: &Connection) -> rusqlite::Result<()> {
        let _ = self.arrived.lock().unwrap().send(());
        // Once the test has ended, the gate no longer blocks.
        let _ = self.go.lock().unwrap().recv();
        Ok(())
    }
}

/// Reads how the connection that commits syncs.
#[derive(Default)]
struct Syncs(Mutex<Vec<i64>>);

impl Hook for Syncs {
    fn before_commit(&self, connection: &Connection) -> rusqlite::Result<()> {
        let pragma = |name: &str| connection.query_row(&format!("PRAGMA {name}"), [], |row| row.get::<_, i64>(0));
        *self.0.lock().unwrap() = vec![pragma("synchronous")?, pragma("fullfsync")?, pragma("checkpoint_fullfsync")?];
        Ok(())
    }
}

#[tokio::test]
async fn a_commit_is_synced_to_the_disk_itself_on_every_system() {
    let directory = tempfile::tempdir().unwrap();
    let hook = Arc::new(Syncs::default());
    let names = Embedded::open(directory.path(), Options::default().with_hook(hook.clone())).unwrap();
    pushed(&names, "a", 1).await;
    // FULL, on, on.
    assert_eq!(*hook.0.lock().unwrap(), [2, 1, 1]);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_durable_is_not_seen_and_readers_do_not_wait_for_it() {
    let directory = tempfile::tempdir().unwrap();
    let (hook, arrivals, pass) = gate();
    let names = Embedded::open(directory.path(), Options::default().with_hook(hook)).unwrap();
    // Dropped before `names`, which waits for the writer.
    let pass = pass;
    let writer = tokio::spawn({
        let names = names.clone();
        async move { push(&names, "a", 1).await }
    });
    let arrivals = tokio::task::spawn_blocking(move || {
        arrivals.recv().unwrap();
        arrivals
    });
    let arrivals = arrivals.await.unwrap();
    assert_eq!(names.lookup(&at("a")).await.unwrap(), None);
    assert_eq!(ChangeFeed::position(&names).await.unwrap(), 0);
    assert_eq!(names.changes(0, Limit::default()).await.unwrap(), Run::Changes(vec![]));
    assert!(!writer.is_finished());
    pass.send(()).unwrap();
    assert!(writer.await.unwrap().is_ok());
    assert!(head_of(&names, "a").await.is_some());
    drop((arrivals, pass));
}

#[tokio::test(flavor = "multi_thread")]
async fn commands_that_wait_for_the_disk_are_written_together_and_answered_after_it() {
    const WRITERS: i64 = 50;
    let directory = tempfile::tempdir().unwrap();
    let (hook, arrivals, pass) = gate();
    let names = Embedded::open(directory.path(), Options::default().with_hook(hook)).unwrap();
    // Dropped before `names`, which waits for the writer.
    let pass = pass;
    let write = |n: i64| {
        let names = names.clone();
        tokio::spawn(async move { push(&names, &format!("a{n}"), 1).await })
    };
    let first = write(0);
    let arrivals = tokio::task::spawn_blocking(move || {
        arrivals.recv().unwrap();
        arrivals
    });
    let arrivals = arrivals.await.unwrap();
    let others: Vec<_> = (1..=WRITERS).map(write).collect();
    // They wait in the queue: the writer is at the gate.
    let all_wait = async {
        while names.inner.writer.waiting() < WRITERS as usize {
            tokio::task::yield_now().await;
        }
    };
    timeout(LONG, all_wait).await.expect("all wait in the queue");
    pass.send(()).unwrap();
    assert!(first.await.unwrap().is_ok());
    assert!(others.iter().all(|writer| !writer.is_finished()), "their commit is still at the gate");
    pass.send(()).unwrap();
    for writer in others {
        assert!(matches!(writer.await.unwrap(), Ok(PushOutcome::Updated { .. })));
    }
    assert_eq!(names.view().len(), WRITERS as usize + 1);
    drop(pass);
    drop(names);
    assert_eq!(arrivals.try_iter().count(), 1, "one commit for all that waited");
}

/// Fails commits as SQLite does.
struct Failing {
    code: i32,
    /// Whether the commit was sent when it fails.
    is_sent: bool,
    /// How many commits still pass.
    passes: AtomicUsize,
    /// How many fail after those.
    fails: AtomicUsize,
}

impl Failing {
    fn with(code: i32, passes: usize, fails: usize) -> Arc<Self> {
        Arc::new(Self { code, is_sent: false, passes: passes.into(), fails: fails.into() })
    }

    fn when_sent(code: i32, passes: usize, fails: usize) -> Arc<Self> {
        Arc::new(Self { code, is_sent: true, passes: passes.into(), fails: fails.into() })
    }

    fn fail(&self) -> rusqlite::Result<()> {
        match take(&self.passes) || !take(&self.fails) {
            true => Ok(()),
            false => Err(rusqlite::Error::SqliteFailure(ffi::Error::new(self.code), None)),
        }
    }
}

fn take(left: &AtomicUsize) -> bool {
    left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)).is_ok()
}

impl Hook for Failing {
    fn before_commit(&self, _connection: &Connection) -> rusqlite::Result<()> {
        if self.is_sent { Ok(()) } else { self.fail() }
    }

    fn at_commit(&self) -> rusqlite::Result<()> {
        if self.is_sent { self.fail() } else { Ok(()) }
    }
}

#[tokio::test]
async fn a_failed_sync_stops_writes_permanently_and_reads_continue() {
    let directory = tempfile::tempdir().unwrap();
    let hook = Failing::when_sent(ffi::SQLITE_IOERR_FSYNC, 1, 1);
    let names = Embedded::open(directory.path(), Options::default().with_hook(hook)).unwrap();
    pushed(&names, "a", 1).await;
    let failed = push(&names, "a", 2).await.unwrap_err();
    assert!(matches!(failed, Error::OutcomeUnknown { .. }), "it may be there after a restart: {failed:?}");
    for _ in 0..2 {
        let failed = push(&names, "a", 3).await.unwrap_err();
        assert!(matches!(failed, Error::Unavailable { .. }), "{failed:?}");
    }
    assert!(names.ping().await.is_err());
    let reason = timeout(LONG, names.ended()).await.unwrap();
    assert!(reason.contains("restart"), "{reason}");
    assert_eq!(head_of(&names, "a").await, Some(head(1).value()));
    let Run::Changes(changes) = names.changes(0, Limit::default()).await.unwrap() else { panic!("gone") };
    assert_eq!(changes.len(), 3, "a created ledger: meta, head, status");
    drop(names);
    let names = super::open(directory.path());
    assert!(head_of(&names, "a").await.is_some());
    pushed(&names, "a", 4).await;
}

#[tokio::test]
async fn a_full_disk_rejects_a_write_whole_and_takes_the_next_that_fits() {
    let directory = tempfile::tempdir().unwrap();
    let hook = Failing::with(ffi::SQLITE_FULL, 1, 2);
    let names = Embedded::open(directory.path(), Options::default().with_hook(hook)).unwrap();
    pushed(&names, "a", 1).await;
    let before = names.view().state().dump();
    for _ in 0..2 {
        let failed = push(&names, "a", 2).await.unwrap_err();
        assert!(matches!(failed, Error::Unavailable { .. }), "{failed:?}");
        assert_eq!(names.view().state().dump(), before);
    }
    assert!(names.ping().await.is_err(), "health shows the last write");
    pushed(&names, "a", 2).await;
    assert!(names.ping().await.is_ok());
    let Run::Changes(changes) = names.changes(0, Limit::default()).await.unwrap() else { panic!("gone") };
    assert_eq!(changes.iter().map(|change| change.position).collect::<Vec<_>>(), [1, 2, 3, 4]);
}

/// Lets the file grow no further, as a disk that is really full: SQLite's own limit of pages.
struct Limited;

impl Hook for Limited {
    fn before_commit(&self, connection: &Connection) -> rusqlite::Result<()> {
        let pages: i64 = connection.query_row("PRAGMA page_count", [], |row| row.get(0))?;
        connection.query_row(&format!("PRAGMA max_page_count = {}", pages.max(12)), [], |_| Ok(()))
    }
}

#[tokio::test]
async fn a_file_that_cannot_grow_rejects_writes_and_keeps_what_it_has() {
    let directory = tempfile::tempdir().unwrap();
    let names = Embedded::open(directory.path(), Options::default().with_hook(Arc::new(Limited))).unwrap();
    let mut written = 0;
    let failed = loop {
        match push(&names, &format!("a{written}"), 1).await {
            Ok(outcome) => assert!(outcome.is_updated()),
            Err(error) => break error,
        }
        written += 1;
        assert!(written < 10_000, "the file was never full");
    };
    assert!(matches!(failed, Error::Unavailable { .. }), "{failed:?}");
    assert_eq!(names.view().len(), written);
    let dump = names.view().state().dump();
    drop(names);
    let names = super::open(directory.path());
    assert_eq!(names.view().state().dump(), dump);
    pushed(&names, "later", 1).await;
}

#[tokio::test]
async fn a_transaction_is_in_the_log_whole_or_not_at_all() {
    let directory = tempfile::tempdir().unwrap();
    let hook = Failing::with(ffi::SQLITE_FULL, 2, 1);
    let names = Embedded::open(directory.path(), Options::default().with_hook(hook)).unwrap();
    pushed(&names, "a", 1).await;
    pushed(&names, "b", 1).await;
    let both = Transaction::new(
        ["a", "b"].map(|name| Operation::new(at(name), HeadPush::monotonic(head(2)))).into_iter().collect(),
    );
    let both = both.unwrap();
    let call = Call::fresh();
    assert!(names.commit(&call, &both).await.is_err());
    assert_eq!(
        (head_of(&names, "a").await, head_of(&names, "b").await),
        (Some(head(1).value()), Some(head(1).value()))
    );
    let outcome = names.commit(&call, &both).await.unwrap();
    assert!(matches!(outcome, nameservice_model::Committed::Committed(_)));
    assert_eq!(
        (head_of(&names, "a").await, head_of(&names, "b").await),
        (Some(head(2).value()), Some(head(2).value()))
    );
}

#[tokio::test]
async fn a_restarted_state_is_the_one_that_was_left() {
    let directory = tempfile::tempdir().unwrap();
    let mut commands = super::commands::Commands::new(11);
    for _ in 0..4 {
        let names = super::open(directory.path());
        for _ in 0..200 {
            let (command, _) = commands.next();
            let _ = names.inner.writer.write("test", command).await;
        }
        let dump = names.view().state().dump();
        drop(names);
        let names = super::open(directory.path());
        assert_eq!(names.view().state().dump(), dump);
        assert!(names.view().state().orders_follow());
    }
}

#[tokio::test]
async fn a_call_is_remembered_over_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let call = Call::fresh();
    let names = super::open(directory.path());
    pushed(&names, "a", 1).await;
    let push = HeadPush::cas(head(1).value(), head(2));
    assert!(names.push_head(&call, &at("a"), &push).await.unwrap().is_updated());
    drop(names);
    let names = super::open(directory.path());
    let again = names.push_head(&call, &at("a"), &push).await.unwrap();
    assert_eq!(again, PushOutcome::Updated { value: head(2).value(), replayed: true });
}

#[tokio::test]
async fn a_waiting_reader_is_woken_by_the_write() {
    let names = Embedded::memory(Options::default()).unwrap();
    let waits = tokio::spawn({
        let names = names.clone();
        async move { names.wait(0, LONG * 60).await }
    });
    pushed(&names, "a", 1).await;
    timeout(LONG, waits).await.expect("woken long before its time is over").unwrap().unwrap();
    assert_eq!(head_of(&names, "a").await.unwrap().payload, Some(id(1)));
}

#[tokio::test]
async fn whatever_fails_after_a_commit_was_sent_has_an_unknown_outcome() {
    for code in [ffi::SQLITE_FULL, ffi::SQLITE_IOERR_WRITE, ffi::SQLITE_READONLY, ffi::SQLITE_BUSY, ffi::SQLITE_NOMEM] {
        let directory = tempfile::tempdir().unwrap();
        let hook = Failing::when_sent(code, 1, 1);
        let names = Embedded::open(directory.path(), Options::default().with_hook(hook)).unwrap();
        pushed(&names, "a", 1).await;
        let failed = push(&names, "a", 2).await.unwrap_err();
        assert!(matches!(failed, Error::OutcomeUnknown { .. }), "{code}: {failed:?}");
        // Only a full disk has space again without a restart.
        let next = push(&names, "a", 3).await;
        assert_eq!(next.is_ok(), code == ffi::SQLITE_FULL, "{code}: {next:?}");
        assert_eq!(names.ping().await.is_ok(), code == ffi::SQLITE_FULL, "{code}");
    }
}

/// Panics in the writer, as a bug of the state machine would.
struct Panicking(AtomicUsize);

impl Hook for Panicking {
    fn before_commit(&self, _connection: &Connection) -> rusqlite::Result<()> {
        if !take(&self.0) {
            panic!("planted");
        }
        Ok(())
    }
}

#[tokio::test]
async fn a_writer_that_has_panicked_is_dead_for_health_and_says_that_it_has_ended() {
    let directory = tempfile::tempdir().unwrap();
    let options = Options::default().with_hook(Arc::new(Panicking(1.into())));
    let names = Embedded::open(directory.path(), options).unwrap();
    pushed(&names, "a", 1).await;
    assert!(names.ping().await.is_ok());
    let ended = tokio::spawn(names.ended());
    let failed = push(&names, "a", 2).await.unwrap_err();
    assert!(matches!(failed, Error::OutcomeUnknown { .. }), "{failed:?}");
    let reason = timeout(LONG, ended).await.unwrap().unwrap();
    assert!(reason.contains("panicked"), "{reason}");
    assert!(names.ping().await.is_err());
    let failed = push(&names, "a", 3).await.unwrap_err();
    assert!(matches!(failed, Error::Unavailable { .. }), "{failed:?}");
    assert_eq!(head_of(&names, "a").await, Some(head(1).value()), "reads continue");
    drop(names);
    pushed(&super::open(directory.path()), "a", 4).await;
}

/// Lets statements fail that write to a table, as they do on a page that is damaged.
fn damaged(directory: &std::path::Path, statement: &str, table: &str, how: &str) {
    let other = Connection::open(directory.join(crate::directory::LOG_FILE)).unwrap();
    let name = format!("{statement}_{table}");
    let trigger =
        format!("CREATE TRIGGER {name} BEFORE {statement} ON {table} BEGIN SELECT RAISE({how}, 'planted'); END");
    other.execute_batch(&trigger).unwrap();
}

#[tokio::test]
async fn old_changes_that_can_be_neither_moved_nor_removed_prevent_no_write() {
    let statements = [("DELETE", "tail"), ("INSERT", "log"), ("DELETE", "log")];
    // Some errors take the whole transaction with them, as those of the disk.
    for ((statement, table), how) in statements.iter().flat_map(|at| ["ABORT", "ROLLBACK"].map(|how| (at, how))) {
        let directory = tempfile::tempdir().unwrap();
        let options = Options::default().with_retention(std::time::Duration::from_millis(1));
        let names = Embedded::open(directory.path(), options).unwrap();
        damaged(directory.path(), statement, table, how);
        for n in 0..60 {
            pushed(&names, &format!("a{n}"), 1).await;
        }
        assert!(names.ping().await.is_ok());
        let dump = names.view().state().dump();
        drop(names);
        let log = Connection::open(directory.path().join(crate::directory::LOG_FILE)).unwrap();
        log.execute_batch(&format!("DROP TRIGGER {statement}_{table}")).unwrap();
        drop(log);
        let names = super::open(directory.path());
        assert_eq!(names.view().state().dump(), dump);
        pushed(&names, "a0", 2).await;
    }
}

#[tokio::test]
async fn a_log_that_rejects_what_is_written_for_a_reason_that_does_not_pass_ends_the_service() {
    for (statement, table, how) in
        [("INSERT", "tail", "ABORT"), ("INSERT", "records", "ABORT"), ("INSERT", "tail", "ROLLBACK")]
    {
        let directory = tempfile::tempdir().unwrap();
        let names = super::open(directory.path());
        damaged(directory.path(), statement, table, how);
        let failed = async {
            for n in 0.. {
                match push(&names, &format!("a{n}"), 1).await {
                    Ok(outcome) => assert!(outcome.is_updated()),
                    Err(failed) => return failed,
                }
            }
            unreachable!()
        };
        let failed = timeout(LONG, failed).await.unwrap();
        assert!(matches!(failed, Error::Unavailable { .. }), "{failed:?}");
        let reason = timeout(LONG, names.ended()).await.unwrap();
        assert!(reason.contains("planted"), "{reason}");
        // A successful attempt to write nothing says nothing.
        assert!(names.ping().await.is_err());
    }
}

/// Holds SQLite's write lock, as another program may.
fn locked(directory: &std::path::Path) -> Connection {
    let other = Connection::open(directory.join(crate::directory::LOG_FILE)).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    other
}

#[tokio::test]
async fn a_health_check_while_another_program_holds_the_lock_ends_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let names = super::open(directory.path());
    let other = locked(directory.path());
    for _ in 0..2 {
        let failed = names.ping().await.unwrap_err();
        assert!(matches!(failed, Error::Unavailable { .. }), "{failed:?}");
    }
    assert!(matches!(push(&names, "a", 1).await, Err(Error::Unavailable { .. })));
    drop(other);
    assert!(names.ping().await.is_ok());
    pushed(&names, "a", 1).await;
}

#[tokio::test]
async fn a_disk_that_has_space_again_while_another_program_holds_the_lock_ends_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let hook = Failing::with(ffi::SQLITE_FULL, 0, 1);
    let names = Embedded::open(directory.path(), Options::default().with_hook(hook)).unwrap();
    assert!(matches!(push(&names, "a", 1).await, Err(Error::Unavailable { .. })));
    let other = locked(directory.path());
    for _ in 0..2 {
        assert!(matches!(push(&names, "a", 1).await, Err(Error::Unavailable { .. })));
    }
    drop(other);
    pushed(&names, "a", 1).await;
    assert!(names.ping().await.is_ok());
}
