//! Replicas: the state of an upstream, fed by its snapshot and its changes.

use nameservice_model::{
    AdminPublisher, Call, Change, ChangeFeed, ChangePayload, ChangedPart, ConcernKind, Error, Limit, NameService,
    Publisher, Record, RefPublisher, Run,
};

use super::{LONG, at, commands::Commands, head, open, pushed};
use crate::{
    Embedded, OpenError, Options, Replicated,
    state::{Applied, State},
};

/// Returns the records that a replica shows, in order, without the time of the last write: a write that changes nothing
/// is not a change.
fn shown(state: &State) -> Vec<Record> {
    let mut records: Vec<Record> = state.records().map(|record| record.to_model()).collect();
    records.sort_by(|a, b| a.address.cmp(&b.address));
    for record in &mut records {
        record.updated_at = jiff::Timestamp::UNIX_EPOCH;
    }
    records
}

/// Returns a change with the payload of its record, if a secret was redacted in it.
fn whole(state: &State, change: Change) -> Replicated {
    let ChangedPart::Concern(concern) = change.part else { return change.into() };
    let carried = matches!(&change.payload, ChangePayload::Value(value) if !value.to_string().contains("[redacted]"));
    let record = state.get(&change.address).map(|record| record.to_model());
    let payload = match (carried || change.payload == ChangePayload::None, record, concern) {
        (false, Some(record), ConcernKind::Config) if record.config.v == change.watermark => record.config.payload,
        _ => None,
    };
    Replicated { change, payload, is_orphan: false }
}

#[test]
fn replicas_have_what_the_upstream_has_at_every_position() {
    for seed in 0..40 {
        let mut commands = Commands::new(seed);
        let (mut upstream, mut replica) = (State::new(), State::new());
        let mut late: Option<State> = None;
        for n in 0..400 {
            let (command, now) = commands.next();
            let Applied { changes, .. } = upstream.apply(&command, now);
            let mut touched = Vec::new();
            for change in changes {
                let replicated = whole(&upstream, change);
                replica.replicate(&replicated, &mut touched).unwrap();
                if let Some(late) = &mut late {
                    late.replicate(&replicated, &mut touched).unwrap();
                }
            }
            assert_eq!(shown(&replica), shown(&upstream), "seed {seed}, command {n}: {command:?}");
            assert_eq!(replica.position(), upstream.position());
            assert!(replica.orders_follow(), "seed {seed}, command {n}");
            if let Some(late) = &late {
                assert_eq!(shown(late), shown(&upstream), "seed {seed}, command {n}: {command:?}");
            }
            if n == 150 {
                let records: Vec<Record> = upstream.records().map(|record| record.to_model()).collect();
                late = Some(State::of_records(&records, upstream.position()));
            }
        }
    }
}

/// A snapshot that was read while others wrote is ahead of the position that it is given.
#[test]
fn changes_that_a_snapshot_has_already_leave_it_as_it_is_in_the_end() {
    for seed in 0..40 {
        let mut commands = Commands::new(seed);
        let mut upstream = State::new();
        let mut changes = Vec::new();
        for _ in 0..300 {
            let (command, now) = commands.next();
            let applied = upstream.apply(&command, now);
            changes.extend(applied.changes.into_iter().map(|change| whole(&upstream, change)));
        }
        let behind = upstream.position() * 2 / 3;
        let records: Vec<Record> = upstream.records().map(|record| record.to_model()).collect();
        let mut replica = State::of_records(&records, behind);
        for replicated in changes.into_iter().filter(|replicated| replicated.change.position > behind) {
            replica.replicate(&replicated, &mut Vec::new()).unwrap();
        }
        let plain = |state: &State| -> Vec<_> {
            shown(state).into_iter().map(|record| (record.address, record.head, record.index, record.status)).collect()
        };
        assert_eq!(plain(&replica), plain(&upstream), "seed {seed}");
    }
}

async fn changes_of(names: &Embedded, after: u64) -> Vec<Replicated> {
    match names.changes(after, Limit::MAX).await.unwrap() {
        Run::Changes(changes) => changes.into_iter().map(Replicated::from).collect(),
        Run::Gone { oldest } => panic!("gone before {oldest}"),
    }
}

#[tokio::test]
async fn a_replica_keeps_its_state_and_the_upstreams_positions() {
    let (source, directory) = (Embedded::memory(Options::default()).unwrap(), tempfile::tempdir().unwrap());
    for name in ["a", "b", "c"] {
        pushed(&source, name, 1).await;
    }
    let records = source.snapshot(Limit::MAX, None, &|_| true).await.unwrap().items;
    let position = source.position().await.unwrap();
    let replica = || Embedded::open_replica(directory.path(), "http://up", Options::default()).unwrap();
    let names = replica();
    names.adopt(records, position).await.unwrap();
    assert!(
        matches!(names.changes(0, Limit::default()).await.unwrap(), Run::Gone { oldest } if oldest == position + 1)
    );
    pushed(&source, "a", 2).await;
    let _ = source.purge(&Call::fresh(), &at("b")).await.unwrap();
    let waiting = tokio::spawn({
        let names = names.clone();
        async move { names.wait(position, LONG).await }
    });
    names.replicate(changes_of(&source, position).await).await.unwrap();
    waiting.await.unwrap().unwrap();
    // The same changes under the same positions, also after a restart.
    let all = source.changes(position, Limit::MAX).await.unwrap();
    assert_eq!(names.changes(position, Limit::MAX).await.unwrap(), all);
    drop(names);
    let names = replica();
    assert_eq!(names.position().await.unwrap(), source.position().await.unwrap());
    assert_eq!(names.changes(position, Limit::MAX).await.unwrap(), all);
    assert_eq!(names.head(&at("a")).await.unwrap().unwrap().v, 2);
    assert!(names.lookup(&at("b")).await.unwrap().is_none());
    // A change that does not follow is rejected, and so is a write.
    let gap = Replicated::from(Change { position: 99, ..changes_of(&source, position).await[0].change.clone() });
    assert!(names.replicate(vec![gap]).await.is_err());
    let written = names.create_ledger(&Call::fresh(), &at("x"), Some(&head(1)), None).await;
    assert!(matches!(written, Err(Error::ReadOnly { addresses, .. }) if addresses == [at("x")]));
    // Another snapshot replaces everything, backwards too.
    names.adopt(Vec::new(), 2).await.unwrap();
    assert_eq!((names.position().await.unwrap(), names.view().len()), (2, 0));
    drop(names);
    assert_eq!(replica().position().await.unwrap(), 2);
}

#[tokio::test]
async fn a_directory_is_a_replica_of_one_upstream_or_none() {
    let directory = tempfile::tempdir().unwrap();
    drop(Embedded::open_replica(directory.path(), "http://up", Options::default()).unwrap());
    let opened = Embedded::open(directory.path(), Options::default());
    assert!(matches!(opened, Err(OpenError::Replica { upstream, .. }) if upstream == "http://up"));
    let opened = Embedded::open_replica(directory.path(), "http://other", Options::default());
    assert!(matches!(opened, Err(OpenError::Replica { .. })));
    assert!(matches!(crate::examine(directory.path(), false, &mut |_| ()), Err(OpenError::Replica { .. })));
    let own = tempfile::tempdir().unwrap();
    let names = open(own.path());
    pushed(&names, "a", 1).await;
    drop(names);
    let opened = Embedded::open_replica(own.path(), "http://up", Options::default());
    assert!(matches!(opened, Err(OpenError::NoReplica { .. })));
}

#[test]
fn a_value_that_is_not_known_is_never_shown() {
    let mut commands = Commands::new(7);
    let mut upstream = State::new();
    let mut changes = Vec::new();
    for _ in 0..2_000 {
        let (command, now) = commands.next();
        changes.extend(upstream.apply(&command, now).changes);
    }
    let parts = [ConcernKind::Head, ConcernKind::Index, ConcernKind::Status, ConcernKind::Config];
    for hidden in parts {
        for payload in [ChangePayload::Omitted, ChangePayload::Value(serde_json::json!("[redacted]"))] {
            let mut replica = State::new();
            let mut touched = Vec::new();
            for change in &changes {
                let before = replica.get(&change.address).map(|record| record.to_model());
                let mut change = change.clone();
                let is_hidden = change.part == ChangedPart::Concern(hidden) && change.payload != ChangePayload::None;
                if is_hidden {
                    change.payload = payload.clone();
                }
                let address = change.address.clone();
                replica.replicate(&change.into(), &mut touched).unwrap();
                let after = replica.get(&address).map(|record| record.to_model());
                if is_hidden {
                    let of = |record: Option<Record>| {
                        record.map(|record| (record.head, record.index, record.status, record.config))
                    };
                    assert_eq!(of(after), of(before), "what was known stays until a newer value is");
                }
            }
        }
    }
}

/// A reader finds the end of the feed, and the replica begins again at a lower position before the reader waits there.
#[tokio::test]
async fn a_wait_after_a_position_that_is_no_longer_reached_ends_immediately() {
    let names = Embedded::memory_replica(Options::default()).unwrap();
    names.adopt(Vec::new(), 5).await.unwrap();
    assert_eq!(names.changes(5, Limit::MAX).await.unwrap(), Run::Changes(Vec::new()));
    names.adopt(Vec::new(), 2).await.unwrap();
    tokio::time::timeout(LONG, names.wait(5, LONG * 60)).await.unwrap().unwrap();
    assert!(matches!(names.changes(5, Limit::MAX).await.unwrap(), Run::Gone { .. }));
}
