//! Fluree's commit log beside a ledger: it never contradicts what is written here, and the feed reads it.

use std::fs;

use super::*;
use crate::{Finding, Fix, names, storage::Directory};

/// Appends a line, as Fluree does after it has published a head.
fn logged(directory: &TempDir, address: &Address, t: i64, n: usize) {
    use std::io::Write as _;
    let path = directory.path().join(names::commits_key(address));
    let mut log = fs::OpenOptions::new().append(true).create(true).open(path).unwrap();
    writeln!(log, r#"{{"t":{t},"cid":"{}"}}"#, IDS[n]).unwrap();
}

fn lines(directory: &TempDir, address: &Address) -> Vec<(i64, usize)> {
    let text = fs::read_to_string(directory.path().join(names::commits_key(address))).unwrap_or_default();
    let line = |line: &str| {
        let line: serde_json::Value = serde_json::from_str(line).unwrap();
        (line["t"].as_i64().unwrap(), IDS.iter().position(|id| *id == line["cid"]).unwrap())
    };
    text.lines().map(line).collect()
}

/// Publishes heads as Fluree does: the head, then its line.
async fn published(files: &Files, directory: &TempDir, address: &Address, heads: &[(i64, usize)]) {
    for (t, n) in heads {
        assert!(push(files, address, *n, *t).await.is_updated());
        logged(directory, address, *t, *n);
    }
}

async fn doctor(files: &Files, fix: bool) -> Vec<Finding> {
    let mut findings = Vec::new();
    files.examine(fix, &mut |finding| findings.push(finding)).await.unwrap();
    findings.retain(|finding| finding.code.starts_with("commit"));
    findings
}

fn codes(findings: &[Finding]) -> Vec<&'static str> {
    findings.iter().map(|finding| finding.code).collect()
}

#[tokio::test]
async fn a_reset_leaves_no_line_of_a_commit_that_it_has_taken_back() {
    let (files, directory) = directory();
    let db = born(&files, "mydb", 1).await;
    logged(&directory, &db, 1, 0);
    published(&files, &directory, &db, &[(2, 1), (3, 2), (4, 0), (5, 1)]).await;
    let reset = async |files: &Files, to: Option<NewHead>| {
        let to = ResetTo::new(to, None).unwrap();
        assert!(matches!(files.reset_head(&Call::fresh(), &db, &to).await.unwrap(), Reset::Reset { .. }));
    };
    reset(&files, Some(head(2, 3))).await;
    assert_eq!(lines(&directory, &db), [(1, 0), (2, 1), (3, 2)]);
    // What Fluree's indexer is offered after two more pushes of ours has a gap, and nothing that was taken back.
    for (t, n) in [(4, 1), (5, 2)] {
        assert!(push(&files, &db, n, t).await.is_updated());
    }
    assert_eq!(lines(&directory, &db), [(1, 0), (2, 1), (3, 2)]);
    assert_eq!(doctor(&files, false).await, []);
    // To another commit at the same t: its own line goes, too.
    reset(&files, Some(head(0, 3))).await;
    assert_eq!(lines(&directory, &db), [(1, 0), (2, 1)]);
    // A repetition finishes what was cut off: lines that another program has brought back.
    logged(&directory, &db, 9, 1);
    reset(&files, Some(head(0, 3))).await;
    assert_eq!(lines(&directory, &db), [(1, 0), (2, 1)]);
    reset(&files, None).await;
    assert!(!directory.path().join(names::commits_key(&db)).exists());
}

#[tokio::test]
async fn a_reset_that_is_rejected_leaves_the_log_alone() {
    let (files, directory) = directory();
    let db = born(&files, "mydb", 1).await;
    published(&files, &directory, &db, &[(2, 1), (3, 2)]).await;
    let _ = files.retract(&Call::fresh(), &db, None).await.unwrap();
    let to = ResetTo::new(Some(head(0, 1)), None).unwrap();
    assert_eq!(files.reset_head(&Call::fresh(), &db, &to).await.unwrap(), Reset::Retracted);
    assert_eq!(lines(&directory, &db), [(2, 1), (3, 2)]);
}

#[tokio::test]
async fn a_log_that_cannot_be_read_does_not_outlive_a_reset() {
    let (files, directory) = directory();
    let db = born(&files, "mydb", 1).await;
    published(&files, &directory, &db, &[(2, 1), (3, 2)]).await;
    let path = directory.path().join(names::commits_key(&db));
    fs::write(&path, format!("{}{{\"t\":", fs::read_to_string(&path).unwrap())).unwrap();
    assert_eq!(codes(&doctor(&files, true).await), ["commits-unreadable"]);
    let to = ResetTo::new(Some(head(1, 2)), None).unwrap();
    let _ = files.reset_head(&Call::fresh(), &db, &to).await.unwrap();
    assert!(!path.exists());
}

#[tokio::test]
async fn a_record_begins_without_the_log_of_an_earlier_one() {
    let (files, directory) = directory();
    let db = at("mydb");
    fs::create_dir_all(directory.path().join("ns@v2/mydb")).unwrap();
    logged(&directory, &db, 1, 2);
    logged(&directory, &at("mydb:dev"), 1, 2);
    born(&files, "mydb", 1).await;
    let _ = files.create_branch(&Call::fresh(), &at("mydb:dev"), &db, None).await.unwrap();
    for address in [&db, &at("mydb:dev")] {
        assert!(!directory.path().join(names::commits_key(address)).exists(), "{address}");
    }
    assert_eq!(files.purge(&Call::fresh(), &at("mydb:dev")).await.unwrap(), Purged::Purged);
    logged(&directory, &db, 1, 0);
    assert_eq!(files.purge(&Call::fresh(), &db).await.unwrap(), Purged::Purged);
    assert!(!directory.path().join(names::commits_key(&db)).exists());
}

#[tokio::test]
async fn the_doctor_finds_lines_that_contradict_the_head_and_removes_them() {
    let (files, directory) = directory();
    for name in ["sound", "above", "other", "twice"] {
        let db = born(&files, name, 1).await;
        published(&files, &directory, &db, &[(2, 1), (3, 2)]).await;
    }
    logged(&directory, &at("above"), 4, 0);
    logged(&directory, &at("other"), 3, 0);
    logged(&directory, &at("twice"), 2, 0);
    let before = doctor(&files, false).await;
    let mut all = codes(&before);
    all.sort_unstable();
    assert_eq!(all, ["commit-not-head", "commits-above-head", "commits-superseded"]);
    assert!(before.iter().all(|finding| finding.fix == Fix::Possible), "{before:?}");
    assert!(doctor(&files, true).await.iter().all(|finding| finding.fix == Fix::Done));
    assert_eq!(doctor(&files, false).await, []);
    assert_eq!(lines(&directory, &at("sound")), [(2, 1), (3, 2)]);
    assert_eq!(lines(&directory, &at("above")), [(2, 1), (3, 2)]);
    assert_eq!(lines(&directory, &at("other")), [(2, 1), (3, 2)]);
    assert_eq!(lines(&directory, &at("twice")), [(3, 2)]);
}

/// The heads in the feed: previous and current `t`.
async fn heads(files: &Files) -> Vec<(Option<i64>, i64)> {
    let Run::Changes(changes) = files.changes(0, Limit::MAX).await.unwrap() else { panic!("expired") };
    let head = |change: &&Change| change.part == ChangedPart::Concern(ConcernKind::Head);
    changes.iter().filter(head).map(|change| (change.previous, change.watermark)).collect()
}

#[tokio::test]
async fn commits_that_were_made_faster_than_the_feed_looks_appear_one_by_one() {
    let (theirs, directory) = directory();
    let db = born(&theirs, "mydb", 1).await;
    let open = || Directory::open(directory.path(), false).unwrap();
    // Whether a notification has it look in between makes no difference.
    let ours = Files::open(Arc::new(open()), options(), Duration::from_secs(3_600), Some(open()));
    ours.compare().await.unwrap();
    // What was there at the beginning has no history.
    assert_eq!(heads(&ours).await, [(None, 1)]);
    published(&theirs, &directory, &db, &[(2, 1), (3, 2), (4, 0), (5, 1)]).await;
    ours.compare().await.unwrap();
    let one_by_one = [(None, 1), (Some(1), 2), (Some(2), 3), (Some(3), 4), (Some(4), 5)];
    assert_eq!(heads(&ours).await, one_by_one);
    let query = HistoryQuery { part: Some(ChangedPart::Concern(ConcernKind::Head)), ..HistoryQuery::default() };
    let history = ours.history(&db, &query).await.unwrap().changes;
    let ids: Vec<_> = history.iter().map(|change| change.payload.clone()).collect();
    let expected = [(0, 1), (1, 2), (2, 3), (0, 4), (1, 5)];
    let expected = expected.map(|(n, t)| ChangePayload::Value(serde_json::json!({ "id": IDS[n], "t": t })));
    assert_eq!(ids, expected);
    // Lines that were pruned: the change says from which t on it covers them.
    fs::write(directory.path().join(names::commits_key(&db)), "").unwrap();
    published(&theirs, &directory, &db, &[(8, 0), (9, 1)]).await;
    ours.compare().await.unwrap();
    assert_eq!(heads(&ours).await[5..], [(Some(5), 8), (Some(8), 9)]);
    // A reset takes back, and what follows it is not mixed with what was taken back.
    let to = ResetTo::new(Some(head(0, 8)), None).unwrap();
    let _ = theirs.reset_head(&Call::fresh(), &db, &to).await.unwrap();
    ours.compare().await.unwrap();
    published(&theirs, &directory, &db, &[(9, 2), (10, 0)]).await;
    ours.compare().await.unwrap();
    assert_eq!(heads(&ours).await[7..], [(Some(9), 8), (Some(8), 9), (Some(9), 10)]);
    // A ledger that is new since has its commits from the first one on.
    let new = at("new");
    let _ = theirs.create_ledger(&Call::fresh(), &new, None, None).await.unwrap();
    published(&theirs, &directory, &new, &[(1, 0), (2, 1), (3, 2)]).await;
    ours.compare().await.unwrap();
    let of_new: Vec<i64> = heads(&ours).await[10..].iter().map(|(_, t)| *t).collect();
    assert_eq!(of_new, [1, 2, 3]);
    let before = ours.position().await.unwrap();
    ours.compare().await.unwrap();
    assert_eq!(ours.position().await.unwrap(), before, "nothing appears twice");
}
