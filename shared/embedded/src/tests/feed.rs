use std::time::Duration;

use nameservice_model::{
    AdminPublisher, Call, Change, ChangeFeed, ChangeKind, ChangePayload, ChangedPart, ConcernKind, Config,
    ConfigPublisher, ConfigPush, HistoryQuery, IndexPush, Limit, MAX_CHANGE_PAYLOAD_BYTES, NewConfig, NewIndex,
    NewStatus, Publisher, RefPublisher, Run, Status, StatusPayload, StatusPublisher, StatusPush,
};
use serde_json::{Value, json};

use super::{at, head, id, pushed};
use crate::{Embedded, Options};

async fn changes(names: &Embedded) -> Vec<Change> {
    match names.changes(0, Limit::MAX).await.unwrap() {
        Run::Changes(changes) => changes,
        other => panic!("{other:?}"),
    }
}

/// Part, kind, watermark and previous watermark of the changes after a position.
async fn shown(names: &Embedded, after: u64) -> Vec<(&'static str, ChangeKind, i64, Option<i64>)> {
    let shown = |change: &Change| (change.part.as_str(), change.kind, change.watermark, change.previous);
    changes(names).await.iter().filter(|change| change.position > after).map(shown).collect()
}

async fn both() -> [(Embedded, Option<tempfile::TempDir>); 2] {
    let directory = tempfile::tempdir().unwrap();
    let open = Embedded::open(directory.path(), Options::default().with_recent_bytes(0)).unwrap();
    [(Embedded::memory(Options::default()).unwrap(), None), (open, Some(directory))]
}

#[tokio::test]
async fn changes_that_are_in_memory_before_they_are_published_are_not_shown() {
    let directory = tempfile::tempdir().unwrap();
    let open = Embedded::open(directory.path(), Options::default()).unwrap();
    for names in [Embedded::memory(Options::default()).unwrap(), open] {
        pushed(&names, "a", 1).await;
        let recent = &names.inner.shared.recent;
        let mut next = recent.after(2, 1).unwrap().remove(0);
        next.position = 4;
        recent.append(vec![next], None);
        let positions = async |after: u64| match names.changes(after, Limit::MAX).await.unwrap() {
            Run::Changes(changes) => changes.iter().map(|change| change.position).collect::<Vec<_>>(),
            other => panic!("{other:?}"),
        };
        assert_eq!(names.position().await.unwrap(), 3);
        assert_eq!((positions(0).await, positions(2).await, positions(3).await), (vec![1, 2, 3], vec![3], vec![]));
        assert!(matches!(names.changes(4, Limit::MAX).await.unwrap(), Run::Gone { .. }));
        let history = names.history(&at("a"), &HistoryQuery::default()).await.unwrap();
        assert_eq!(history.changes.iter().map(|change| change.position).max(), Some(3));
    }
}

#[tokio::test]
async fn a_life_of_a_record_is_reported_part_by_part() {
    use ChangeKind::{Created, Purged, Restored, Retracted, Updated};
    for (names, _directory) in both().await {
        pushed(&names, "a", 1).await;
        assert_eq!(
            shown(&names, 0).await,
            [("meta", Created, 0, None), ("head", Created, 1, None), ("status", Created, 1, None)]
        );
        pushed(&names, "a", 4).await;
        assert_eq!(shown(&names, 3).await, [("head", Updated, 4, Some(1))]);
        let _ = names.retract(&Call::fresh(), &at("a"), Some("why")).await.unwrap();
        assert_eq!(
            shown(&names, 4).await,
            [
                ("meta", Retracted, 0, None),
                ("head", Retracted, 4, Some(4)),
                ("index", Retracted, 0, Some(0)),
                ("status", Retracted, 2, Some(1)),
                ("config", Retracted, 0, Some(0)),
            ]
        );
        let _ = names.restore(&Call::fresh(), &at("a")).await.unwrap();
        assert_eq!(shown(&names, 9).await.len(), 5);
        assert!(shown(&names, 9).await.iter().all(|(_, kind, ..)| *kind == Restored));
        let _ = names.purge(&Call::fresh(), &at("a")).await.unwrap();
        assert_eq!(
            shown(&names, 14).await,
            [("meta", Purged, 0, None), ("head", Purged, 0, Some(4)), ("status", Purged, 0, Some(3))]
        );
    }
}

#[tokio::test]
async fn a_push_of_one_concern_is_no_change_of_another() {
    for (names, _directory) in both().await {
        pushed(&names, "a", 1).await;
        let (address, mut end) = (at("a"), 3);
        for n in 1..=3 {
            let index = IndexPush::monotonic(NewIndex::new(id(n), n).unwrap());
            assert!(names.push_index(&Call::fresh(), &address, &index).await.unwrap().is_updated());
            let config = NewConfig::new([("n".to_owned(), json!(n))].into_iter().collect()).unwrap();
            let config = ConfigPush::cas(Config::stored(n - 1, None), config);
            assert!(names.push_config(&Call::fresh(), &address, &config).await.unwrap().is_updated());
            let status = NewStatus::new(StatusPayload::state(format!("s{n}"))).unwrap();
            let status = StatusPush::cas(Status::stored(n, None), status);
            assert!(names.push_status(&Call::fresh(), &address, &status).await.unwrap().is_updated());
            pushed(&names, "a", n + 1).await;
            let parts: Vec<_> = shown(&names, end).await.into_iter().map(|(part, ..)| part).collect();
            assert_eq!(parts, ["index", "config", "status", "head"]);
            end += 4;
        }
    }
}

#[tokio::test]
async fn payloads_hide_secrets_and_large_ones_are_left_out() {
    for (names, _directory) in both().await {
        pushed(&names, "a", 1).await;
        let large = "x".repeat(MAX_CHANGE_PAYLOAD_BYTES);
        for (v, payload) in [(0, json!({ "password": "p", "n": 1.5 })), (1, json!({ "text": large }))] {
            let Value::Object(payload) = payload else { unreachable!() };
            let expected = Config::stored(v, None);
            let push = ConfigPush::cas(expected, NewConfig::new(payload).unwrap());
            assert!(names.push_config(&Call::fresh(), &at("a"), &push).await.unwrap().is_updated());
        }
        let payloads: Vec<_> = changes(&names).await.into_iter().skip(3).map(|change| change.payload).collect();
        let hidden = ChangePayload::Value(json!({ "password": "[redacted]", "n": 1.5 }));
        assert_eq!(payloads, [hidden, ChangePayload::Omitted]);
        let stored = names.config(&at("a")).await.unwrap().unwrap();
        assert_eq!(stored.payload, Some(json!({ "text": large })));
    }
}

#[tokio::test]
async fn a_history_is_that_of_one_address_over_all_its_lives() {
    for (names, _directory) in both().await {
        for t in 1..=5 {
            pushed(&names, "a", t).await;
            pushed(&names, "b", t).await;
        }
        let _ = names.purge(&Call::fresh(), &at("a")).await.unwrap();
        pushed(&names, "a", 1).await;
        let history = async |after: u64, part: Option<ChangedPart>, limit: usize| {
            let query = HistoryQuery { after, part, limit: Limit::new(limit).unwrap(), ..HistoryQuery::default() };
            let history = names.history(&at("a"), &query).await.unwrap();
            let shown: Vec<_> = history.changes.iter().map(|change| (change.position, change.watermark)).collect();
            (shown, history.more_after)
        };
        let (whole, more) = history(0, None, 100).await;
        assert_eq!((whole.len(), more), (3 + 4 + 3 + 3, None));
        let heads = Some(ChangedPart::Concern(ConcernKind::Head));
        let (found, more) = history(0, heads, 100).await;
        assert_eq!(found.iter().map(|(_, t)| *t).collect::<Vec<_>>(), [1, 2, 3, 4, 5, 0, 1]);
        assert_eq!(more, None);
        let (page, more) = history(0, heads, 2).await;
        assert_eq!(page, found[..2]);
        let (page, _) = history(more.unwrap(), heads, 2).await;
        assert_eq!(page, found[2..4]);
    }
}

#[tokio::test]
async fn a_history_that_finds_nothing_of_a_part_for_long_says_where_to_go_on() {
    let names = Embedded::memory(Options::default()).unwrap();
    for t in 1..=5_000 {
        pushed(&names, "a", t).await;
    }
    let part = Some(ChangedPart::Concern(ConcernKind::Config));
    let configs = async |after: u64| {
        let query = HistoryQuery { after, part, limit: Limit::MAX, ..HistoryQuery::default() };
        let history = names.history(&at("a"), &query).await.unwrap();
        assert!(history.changes.is_empty());
        history.more_after
    };
    let looked_to = configs(0).await.unwrap();
    assert_eq!(configs(looked_to).await, None);
}

#[tokio::test]
async fn a_wait_lasts_until_something_follows_or_its_time_is_over() {
    let names = Embedded::memory(Options::default()).unwrap();
    pushed(&names, "a", 1).await;
    let end = names.position().await.unwrap();
    // The notification of readers may come after the answer to the writer.
    names.wait(end - 1, Duration::MAX).await.unwrap();
    tokio::time::pause();
    let waited = async |after: u64| {
        let begun = tokio::time::Instant::now();
        names.wait(after, Duration::from_secs(5)).await.unwrap();
        begun.elapsed()
    };
    assert_eq!(waited(end - 1).await, Duration::ZERO);
    assert!(waited(end).await >= Duration::from_secs(5));
}

#[tokio::test]
async fn a_reset_backwards_and_a_branch_are_reported() {
    for (names, _directory) in both().await {
        pushed(&names, "a", 1).await;
        pushed(&names, "a", 9).await;
        let to = nameservice_model::ResetTo::new(Some(head(4)), None).unwrap();
        let _ = names.reset_head(&Call::fresh(), &at("a"), &to).await.unwrap();
        assert_eq!(shown(&names, 4).await, [("head", ChangeKind::Reset, 4, Some(9))]);
        let _ = names.create_branch(&Call::fresh(), &at("a:dev"), &at("a"), None).await.unwrap();
        let branch = changes(&names).await.split_off(5);
        let meta = ChangePayload::Value(json!({ "retracted": false, "source_branch": "main" }));
        assert_eq!((branch.len(), &branch[0].payload), (3, &meta), "the parent's counter is no change");
    }
}
