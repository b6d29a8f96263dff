use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, SystemTime},
};

use nameservice_model::{Change, ChangeFeed, HistoryQuery, Limit, Run};

use super::{at, head_of, pushed};
use crate::{Embedded, Options};

const HOUR: u64 = 3_600;

/// A clock that stands until it is moved.
#[derive(Clone, Default)]
struct Clock(Arc<AtomicU64>);

impl Clock {
    fn read(&self) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000 + self.0.load(Ordering::SeqCst))
    }

    fn advance(&self, seconds: u64) {
        self.0.fetch_add(seconds, Ordering::SeqCst);
    }
}

fn with(names: Embedded, clock: &Clock) -> Embedded {
    let clock = clock.clone();
    names.with_clock(move || clock.read())
}

fn options() -> Options {
    Options::default().with_retention(Duration::from_secs(HOUR))
}

async fn all(names: &Embedded, after: u64) -> Run {
    names.changes(after, Limit::MAX).await.unwrap()
}

fn positions(run: Run) -> Vec<u64> {
    match run {
        Run::Changes(changes) => changes.iter().map(|change: &Change| change.position).collect(),
        other => panic!("{other:?}"),
    }
}

/// Returns how many changes the file has.
fn rows(names: &Embedded) -> i64 {
    let readers = names.readers().unwrap();
    readers.read(|connection| Ok(connection.query_row("SELECT count(*) FROM changes", [], |row| row.get(0))?)).unwrap()
}

async fn check(names: &Embedded, clock: &Clock) {
    pushed(names, "a", 1).await;
    clock.advance(HOUR / 2);
    pushed(names, "a", 2).await;
    assert_eq!(positions(all(names, 0).await), [1, 2, 3, 4]);
    clock.advance(HOUR / 2 + 1);
    assert_eq!(all(names, 0).await, Run::Gone { oldest: 4 }, "expired, whether it was removed or not");
    assert_eq!(all(names, 2).await, Run::Gone { oldest: 4 });
    assert_eq!(positions(all(names, 3).await), [4]);
    let history = names.history(&at("a"), &HistoryQuery::default_of(0)).await.unwrap();
    assert_eq!(history.changes.iter().map(|change| change.position).collect::<Vec<_>>(), [4]);
    clock.advance(HOUR);
    assert_eq!(all(names, 3).await, Run::Gone { oldest: 5 });
    assert_eq!(all(names, 0).await, Run::Gone { oldest: 5 });
    assert_eq!(positions(all(names, 4).await), [0_u64; 0]);
    pushed(names, "a", 3).await;
    assert_eq!(positions(all(names, 4).await), [5]);
    assert_eq!(all(names, 9).await, Run::Gone { oldest: 5 }, "of another feed");
    assert_eq!(head_of(names, "a").await.unwrap().v, 3, "the state is whole");
}

trait DefaultOf {
    fn default_of(after: u64) -> HistoryQuery;
}

impl DefaultOf for HistoryQuery {
    fn default_of(after: u64) -> HistoryQuery {
        HistoryQuery { after, ..HistoryQuery::default() }
    }
}

#[tokio::test]
async fn expired_changes_are_gone_and_the_state_is_whole() {
    let (directory, clock) = (tempfile::tempdir().unwrap(), Clock::default());
    check(&with(Embedded::open(directory.path(), options()).unwrap(), &clock), &clock).await;
    check(&with(Embedded::memory(options()).unwrap(), &clock), &clock).await;
}

#[tokio::test]
async fn expired_changes_leave_the_file_and_its_position_stays() {
    let (directory, clock) = (tempfile::tempdir().unwrap(), Clock::default());
    let names = with(Embedded::open(directory.path(), options()).unwrap(), &clock);
    for n in 0..400 {
        pushed(&names, &format!("a{n}"), 1).await;
    }
    assert_eq!(rows(&names), 1_200);
    clock.advance(2 * HOUR);
    for t in 2..20 {
        pushed(&names, "a0", t).await;
    }
    assert_eq!(rows(&names), 18, "only what has not expired is left");
    clock.advance(2 * HOUR);
    let dump = names.view().state().dump();
    drop(names);
    let names = with(Embedded::open(directory.path(), options()).unwrap(), &clock);
    assert_eq!(names.view().state().dump(), dump);
    assert_eq!(all(&names, 0).await, Run::Gone { oldest: 1_219 });
}

#[tokio::test]
async fn older_changes_than_memory_keeps_are_read_from_the_file() {
    let directory = tempfile::tempdir().unwrap();
    let names = Embedded::open(directory.path(), Options::default().with_recent_bytes(2_000)).unwrap();
    for n in 0..50 {
        pushed(&names, &format!("a{n}"), 1).await;
    }
    let whole = positions(all(&names, 0).await);
    assert_eq!(whole, (1..=150).collect::<Vec<_>>());
    for after in [0, 1, 70, 140, 149] {
        let page = names.changes(after, Limit::new(7).unwrap()).await.unwrap();
        assert_eq!(positions(page), (after + 1..=150).take(7).collect::<Vec<_>>());
    }
    drop(names);
    let names = super::open(directory.path());
    assert_eq!(positions(all(&names, 0).await), whole, "after a restart, too");
}

#[tokio::test]
async fn what_expires_is_decided_by_the_present_clock_though_the_last_change_is_of_one_that_was_ahead() {
    let (directory, clock) = (tempfile::tempdir().unwrap(), Clock::default());
    let names = with(Embedded::open(directory.path(), options()).unwrap(), &clock);
    pushed(&names, "a", 1).await;
    let ahead = Clock::default();
    ahead.advance(3 * HOUR);
    let names = with(names, &ahead);
    pushed(&names, "a", 2).await;
    drop(names);
    // It is set right, and the service started again.
    let names = with(Embedded::open(directory.path(), options()).unwrap(), &clock);
    clock.advance(HOUR + 1);
    for t in 3..6 {
        pushed(&names, "a", t).await;
    }
    assert_eq!(all(&names, 0).await, Run::Gone { oldest: 4 });
    assert_eq!(positions(all(&names, 3).await), [4, 5, 6, 7]);
    assert_eq!(rows(&names), 4, "what was recorded before has expired");
    // The others once the clock has come to where it was.
    clock.advance(3 * HOUR);
    for t in 6..8 {
        pushed(&names, "a", t).await;
    }
    assert_eq!(rows(&names), 2);
    assert_eq!(positions(all(&names, 7).await), [8, 9]);
}
