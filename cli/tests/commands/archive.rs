//! `archive`, and what reads an archive: changes of a month ago, which the feed no longer holds.

use std::{sync::Arc, time::SystemTime};

use nameservice_embedded::{Embedded, Options};
use nameservice_model::{Address, Call, ContentId, HeadPush, NewHead, Publisher as _, RefPublisher as _};

use super::{feed::Watch, *};

/// A directory of data and an archive of it.
struct Ground {
    _directory: tempfile::TempDir,
    data: String,
    archive: String,
}

impl Ground {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let path = |name| directory.path().join(name).to_str().unwrap().to_owned();
        let (data, archive) = (path("data"), format!("file://{}", path("archive")));
        Self { _directory: directory, data, archive }
    }

    /// What was written and archived a month ago.
    async fn old(&self) {
        let month_ago = SystemTime::now() - Duration::from_secs(30 * 24 * 3_600);
        let names = Embedded::open(&self.data, Options::default()).unwrap().with_clock(move || month_ago);
        let mydb: Address = "mydb".parse().unwrap();
        drop(names.create_ledger(&Call::fresh(), &mydb, None, None).await.unwrap());
        for t in 1..=3 {
            let head = NewHead::new(ID.parse::<ContentId>().unwrap(), t).unwrap();
            drop(names.push_head(&Call::fresh(), &mydb, &HeadPush::monotonic(head)).await.unwrap());
        }
        let archive = nameservice::archive(&self.archive.parse().unwrap(), true).await.unwrap();
        let archived = nameservice::Archiver::new(Arc::new(names.clone()), archive).catch_up(None).await.unwrap();
        assert!(archived.is_complete && archived.changes > 3);
        tokio::task::spawn_blocking(move || drop(names)).await.unwrap();
    }
}

fn positions(json: &str) -> Vec<u64> {
    let document: Value = serde_json::from_str(json).unwrap();
    document["changes"].as_array().unwrap().iter().map(|change| change["position"].as_u64().unwrap()).collect()
}

#[test]
fn an_archive_continues_where_it_ended_and_is_read_as_the_feed_is() {
    let ground = Ground::new();
    let (target, archive) = (["--data", ground.data.as_str()], ground.archive.as_str());
    assert_eq!(run(&target, "create mydb").0, 0);
    let (code, stdout, stderr) = run(&target, &format!("archive {archive}"));
    assert_eq!(code, 0, "{stderr}");
    assert!(stdout.contains("archived in 1 object"), "{stdout}");
    assert_eq!(run(&target, "push head mydb ID 1 --monotonic").0, 0);
    let (_, stdout, _) = run(&target, &format!("archive {archive} --json"));
    let progress: Value = serde_json::from_str(&stdout).unwrap();
    assert_eq!((&progress["changes"], &progress["objects"], &progress["lost"]), (&1.into(), &1.into(), &0.into()));
    assert!(run(&target, &format!("archive {archive}")).1.starts_with("0 changes archived in 0 objects"));
    let (_, whole, _) = run(&target, "changes --json");
    assert_eq!(run(&target, &format!("changes --json --archive {archive}")).1, whole, "nothing comes twice");
}

#[test]
fn what_is_no_archive_and_what_is_of_another_feed_is_named() {
    let (ground, other) = (Ground::new(), Ground::new());
    assert_eq!(run(&["--data", &ground.data], "create mydb").0, 0);
    assert_eq!(run(&["--data", &ground.data], &format!("archive {}", ground.archive)).0, 0);
    assert_eq!(run(&["--data", &other.data], "create other").0, 0);
    assert_eq!(run(&["--data", &other.data], "create another").0, 0);
    let (code, _, stderr) = run(&["--data", &other.data], &format!("archive {}", ground.archive));
    assert!(code == 1 && stderr.contains("another feed"), "{code} {stderr}");
    let (code, _, stderr) = run(&["--data", &ground.data], &format!("changes --archive {}", other.archive));
    assert!(code != 0 && stderr.contains(&other.archive), "there is none: {code} {stderr}");
    for line in ["archive memory:", "changes --archive dump:x", "history mydb --archive https://example.com"] {
        let (code, _, stderr) = run(&["--data", &ground.data], line);
        assert!(code == 2 && stderr.contains("s3://BUCKET/PREFIX"), "{line}: {code} {stderr}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn changes_and_histories_continue_in_the_archive() {
    let ground = Ground::new();
    ground.old().await;
    let (data, archive) = (ground.data.clone(), ground.archive.clone());
    tokio::task::spawn_blocking(move || {
        let target = ["--data", data.as_str()];
        assert_eq!(run(&target, "push head mydb OTHER 4 --monotonic").0, 0);
        let (_, recent, _) = run(&target, "changes --json");
        assert_eq!(positions(&recent).len(), 1, "the feed alone has forgotten the rest");
        let (code, whole, stderr) = run(&target, &format!("changes --json --archive {archive}"));
        assert_eq!(code, 0, "{stderr}");
        let end = positions(&recent)[0];
        assert_eq!(positions(&whole), (1..=end).collect::<Vec<_>>());
        let (code, _, stderr) = run(&target, "changes --after 2");
        assert!(code != 0 && stderr.contains("begins at"), "{stderr}");
        let (_, heads, _) = run(&target, &format!("history mydb --concern head --json --archive {archive}"));
        assert_eq!(positions(&heads), (end - 3..=end).rev().collect::<Vec<_>>());
        let (_, newest, _) = run(&target, &format!("history mydb --concern head --limit 2 --json --archive {archive}"));
        assert_eq!(positions(&newest), [end, end - 1]);
    })
    .await
    .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_service_with_an_archive_and_a_reader_with_one_have_every_change() {
    let ground = Ground::new();
    ground.old().await;
    tokio::task::spawn_blocking(move || {
        let data = Path::new(&ground.data);
        let with = spawn_serve_with(data, &["--listen", "127.0.0.1:0", "--archive", &ground.archive]);
        let target = ["--url", with.url.as_str()];
        assert_eq!(run(&target, "push head mydb OTHER 4 --monotonic").0, 0);
        let (_, whole, _) = run(&target, "changes --json");
        let positions_of_all = positions(&whole);
        assert_eq!(positions_of_all, (1..=positions_of_all.len() as u64).collect::<Vec<_>>());
        let watch = Watch::start(&with.url, "--after 0");
        assert_eq!(watch.until(OTHER).len(), positions_of_all.len(), "events too");
        drop((watch, with));

        let without = spawn_serve(data);
        let (_, recent, _) = run(&["--url", &without.url], "changes --json");
        assert_eq!(positions(&recent).len(), 1);
        let (code, same, stderr) =
            run(&["--url", &without.url], &format!("changes --json --archive {}", ground.archive));
        assert_eq!(code, 0, "{stderr}");
        assert_eq!(same, whole);
        let watch = Watch::start(&without.url, &format!("--after 0 --archive {}", ground.archive));
        assert_eq!(watch.until(OTHER).len(), positions_of_all.len());
    })
    .await
    .unwrap();
}

#[test]
fn an_archive_that_follows_writes_what_it_has_gathered_when_it_is_interrupted() {
    let ground = Ground::new();
    let service = spawn_serve(Path::new(&ground.data));
    let target = ["--url", service.url.as_str()];
    assert_eq!(run(&target, "create mydb").0, 0);
    let mut command = program();
    command.args(target).args(["archive", &ground.archive, "--follow", "--every", "1h"]);
    let mut process = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut stdout = BufReader::new(process.stdout.take().unwrap());
    let mut line = String::new();
    stdout.read_line(&mut line).unwrap();
    assert!(line.contains("archived in 1 object"), "{line}");
    assert_eq!(run(&target, "push head mydb ID 1 --monotonic").0, 0);
    Command::new("kill").args(["-INT", &process.id().to_string()]).status().unwrap();
    let mut rest = String::new();
    stdout.read_to_string(&mut rest).unwrap();
    assert_eq!(process.wait().unwrap().code(), Some(0));
    let (_, whole, _) = run(&target, "changes --json");
    let end = positions(&whole).len();
    assert!(rest.contains(&format!("ends at position {end}\n")), "{rest}");
}
