//! `watch`, `changes` and `history` against `serve`, which is killed and started again meanwhile.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
        mpsc,
    },
    time::{Instant, SystemTime},
};

use http::Method;
use nameservice_cli::client::{self, Request};
use nameservice_embedded::{Embedded, Options};
use nameservice_model::{Address, Call, Publisher as _};
use serde_json::json;

use super::{
    production::serve_with,
    replica::{eventually, text},
    *,
};

/// A `watch` whose output is read as it comes.
pub(super) struct Watch {
    process: Child,
    lines: mpsc::Receiver<String>,
    notes: mpsc::Receiver<String>,
}

impl Watch {
    pub(super) fn start(url: &str, options: &str) -> Self {
        let mut command = program();
        command.args(["--url", url, "watch"]).args(options.split_whitespace());
        let mut process = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let lines = lines_of(process.stdout.take().unwrap());
        let notes = lines_of(process.stderr.take().unwrap());
        Self { process, lines, notes }
    }

    fn next(&self) -> String {
        self.lines.recv_timeout(LONG).unwrap_or_else(|error| panic!("no other change: {error}"))
    }

    /// Reads up to the change that has these words in it.
    pub(super) fn until(&self, words: &str) -> Vec<String> {
        let mut lines = Vec::new();
        loop {
            lines.push(self.next());
            if lines.last().unwrap().contains(words) {
                return lines;
            }
        }
    }

    fn note(&self) -> String {
        self.notes.recv_timeout(LONG).unwrap_or_else(|error| panic!("nothing on stderr: {error}"))
    }

    /// Interrupts it like Ctrl-C, and returns the output that was not read yet.
    fn interrupt(mut self) -> (Option<i32>, Vec<String>, Vec<String>) {
        Command::new("kill").args(["-INT", &self.process.id().to_string()]).status().unwrap();
        let code = self.process.wait().unwrap().code();
        (code, self.lines.iter().collect(), self.notes.iter().collect())
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn lines_of(stream: impl std::io::Read + Send + 'static) -> mpsc::Receiver<String> {
    let (sender, lines) = mpsc::channel();
    std::thread::spawn(move || {
        for line in BufReader::new(stream).lines().map_while(Result::ok) {
            if sender.send(line).is_err() {
                break;
            }
        }
    });
    lines
}

fn position(line: &str) -> u64 {
    line.split_whitespace().next().unwrap().parse().unwrap()
}

/// Waits until `watch --after start` would see this many changes.
fn wait_for_position(url: &str, position: u64) {
    let until = Instant::now() + LONG;
    loop {
        let (code, stdout, _) = run(&["--url", url, "--json"], "changes");
        let reported: Value = serde_json::from_str(&stdout).unwrap_or_default();
        if code == 0 && reported["position"].as_u64() >= Some(position) {
            return;
        }
        assert!(Instant::now() < until, "{code} {stdout}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn a_watch_prints_every_change_once_though_the_service_is_killed_and_stopped_meanwhile() {
    let directory = tempfile::tempdir().unwrap();
    let listen = free_address();
    let serve = || spawn_serve_with(directory.path(), &["--listen", &listen]);
    let mut service = serve();
    let url = service.url.clone();
    let target = ["--url", url.as_str()];
    let watch = Watch::start(&url, "--after start");
    let filtered = Watch::start(&url, "mydb:* --concern head --kind ledger --json --after start");
    run(&target, "create mydb");
    run(&target, "push head mydb ID 1 --monotonic");
    let mut lines = watch.until(" head ");
    assert!(lines.last().unwrap().contains(ID), "{lines:?}");

    service.kill();
    assert!(watch.note().contains("trying again"));
    // Written while no service runs: the next one finds it in the stream.
    assert_eq!(run(&["--data", directory.path().to_str().unwrap()], "push head mydb OTHER 2 --monotonic").0, 0);
    let mut service = serve();
    assert!(watch.note().contains("connected again, continuing after position"));
    lines.extend(watch.until(OTHER));
    run(&target, "create other");
    run(&target, "push index mydb ID 2 --monotonic");
    lines.extend(watch.until(" index "));

    Command::new("kill").args(["-TERM", &service.process.id().to_string()]).status().unwrap();
    assert!(service.process.wait().unwrap().success());
    let _service = serve();
    run(&target, "push head mydb ID 3 --monotonic");
    lines.extend(watch.until(" head "));

    let (code, left, _) = watch.interrupt();
    assert_eq!((code, left.len()), (Some(0), 0));
    let positions: Vec<_> = lines.iter().map(|line| position(line)).collect();
    assert_eq!(positions, (1..=lines.len() as u64).collect::<Vec<_>>());
    let heads: Vec<_> = (0..3).map(|_| serde_json::from_str::<Value>(&filtered.next()).unwrap()).collect();
    let heads: Vec<_> = heads.iter().map(|change| (&change["watermark"], change["address"].as_str())).collect();
    assert_eq!(heads, [(&json!(1), Some("mydb:main")), (&json!(2), Some("mydb:main")), (&json!(3), Some("mydb:main"))]);
    assert_eq!(filtered.interrupt().0, Some(0));
}

#[test]
fn changes_and_history_print_what_the_feed_holds() {
    let directory = tempfile::tempdir().unwrap();
    let service = spawn_serve(directory.path());
    let target = ["--url", service.url.as_str()];
    run(&target, "create mydb");
    run(&target, "create other");
    run(&target, "push head mydb ID 1 --monotonic");
    run(&target, "status mydb busy");
    wait_for_position(&service.url, 6);
    let of = |line: &str| -> Vec<u64> {
        let (code, stdout, stderr) = run(&target, line);
        assert_eq!(code, 0, "{line}: {stderr}");
        stdout.lines().map(position).collect()
    };
    assert_eq!(of("changes"), [1, 2, 3, 4, 5, 6]);
    assert_eq!(of("changes --after 4"), [5, 6]);
    assert_eq!(of("changes --after 6"), [0; 0]);
    assert_eq!(of("changes other"), [3, 4]);
    assert_eq!(of("changes --concern head --concern meta"), [1, 3, 5]);
    assert_eq!(of("history mydb"), [6, 5, 2, 1]);
    assert_eq!(of("history mydb --oldest-first"), [1, 2, 5, 6]);
    assert_eq!(of("history mydb --limit 2"), [6, 5]);
    assert_eq!(of("history mydb --oldest-first --limit 3"), [1, 2, 5]);
    assert_eq!(of("history mydb --concern status --after 2"), [6]);
    assert_eq!(run(&target, "history nowhere").0, 4);
    assert_eq!(run(&target, "changes --after 7").0, 8);
    let (_, stdout, _) = run(&["--json", "--url", &service.url], "history mydb --concern head");
    let reported: Value = serde_json::from_str(&stdout).unwrap();
    assert_eq!(reported["changes"][0]["payload"], json!({"id": ID, "t": 1}));
}

#[test]
fn a_watch_from_before_the_oldest_change_reports_what_is_gone_and_continues() {
    let directory = tempfile::tempdir().unwrap();
    let month_ago = SystemTime::now() - Duration::from_secs(30 * 24 * 3_600);
    let names = Embedded::open(directory.path(), Options::default()).unwrap().with_clock(move || month_ago);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (call, mydb) = (Call::fresh(), Address::parse("mydb").unwrap());
    drop(runtime.block_on(names.create_ledger(&call, &mydb, None, None)).unwrap());
    drop(names);
    let service = spawn_serve(directory.path());
    assert_eq!(run(&["--url", &service.url], "changes --after 0").0, 6);
    assert_eq!(run(&["--url", &service.url], "push head mydb ID 1 --monotonic").0, 0);
    let watch = Watch::start(&service.url, "--after 0");
    assert_eq!(watch.note(), "positions 1 to 2 have expired; continuing at 3");
    assert_eq!(position(&watch.next()), 3);
    // `--after start` asks for what the feed still holds, so there is no note about expired changes.
    let from_start = Watch::start(&service.url, "--after start");
    assert_eq!(position(&from_start.next()), 3);
    assert_eq!(from_start.interrupt().2, [""; 0]);
    assert_eq!(run(&["--url", &service.url], "changes").1.lines().map(position).collect::<Vec<_>>(), [3]);
}

#[test]
fn a_watch_ends_quietly_with_its_pipe() {
    let directory = tempfile::tempdir().unwrap();
    let service = spawn_serve(directory.path());
    let mut command = program();
    command.args(["--url", &service.url, "watch", "--after", "start"]);
    let mut watch = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(watch.stdout.take());
    run(&["--url", &service.url], "create mydb");
    let ended = watch.wait_with_output().unwrap();
    assert_eq!((ended.status.code(), String::from_utf8(ended.stderr).unwrap().as_str()), (Some(0), ""));
}

#[test]
fn a_watch_needs_a_service_and_says_so() {
    let directory = tempfile::tempdir().unwrap();
    let (code, _, stderr) = run(&["--data", directory.path().to_str().unwrap()], "watch");
    assert!(code == 2 && stderr.contains("--url"), "{code} {stderr}");
    let (code, _, stderr) = run(&["--url", "http://127.0.0.1:1"], "watch");
    assert!(code == 7 && stderr.contains("cannot reach"), "{code} {stderr}");
}

#[test]
fn readers_who_wait_for_changes_do_not_keep_the_service_from_stopping() {
    let directory = tempfile::tempdir().unwrap();
    let log = directory.path().join("log");
    let mut command = program();
    command.stderr(std::fs::File::create(&log).unwrap());
    let mut service = serve_with(command, &["--memory", "--listen", "127.0.0.1:0"], &[]);
    let _watch = Watch::start(&service.url, "");
    let url = service.url.clone();
    let polling = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let client = client::remote(&url, &client::Credentials::default()).unwrap();
            client.send::<Value>(&Request::get("changes").query("wait", Some(20))).await.map(drop)
        })
    });
    let waiting = || text(&service.url, "/metrics").lines().any(|line| line == "nameservice_feed_readers 2");
    eventually("the stream and the poll", waiting);
    Command::new("kill").args(["-TERM", &service.process.id().to_string()]).status().unwrap();
    assert!(service.process.wait().unwrap().success());
    let log = std::fs::read_to_string(log).unwrap();
    assert!(log.contains("stopping") && !log.contains("cut off"), "{log}");
    // It ends like a regular poll, with what was found.
    polling.join().unwrap().unwrap();
}

/// Pushes heads to some ledgers, each in its order, until the service is gone; returns what was acknowledged.
async fn push_until_it_is_gone(url: &str, first: i64, acknowledged: Arc<AtomicUsize>) -> BTreeMap<String, Vec<i64>> {
    let writers = (0..4).map(|writer| {
        let (url, acknowledged) = (url.to_owned(), acknowledged.clone());
        tokio::spawn(async move {
            let client = client::remote(&url, &client::Credentials::default()).unwrap();
            let name = format!("db{writer}");
            let address = Address::parse(&name).unwrap();
            let mut done = Vec::new();
            for t in first.. {
                let push = Request::write(Method::PUT, "heads", None).at(&address);
                // The outcome of the last push before the kill is unknown, and not checked.
                match client.send::<Value>(&push.body(&json!({"new": {"id": ID, "t": t}}))).await {
                    Ok(answer) if answer["status"] == "updated" => done.push(t),
                    Ok(answer) => panic!("{answer}"),
                    Err(_) => break,
                }
                acknowledged.fetch_add(1, Ordering::Relaxed);
            }
            (address.as_str().to_owned(), done)
        })
    });
    let mut all = BTreeMap::new();
    for writer in writers.collect::<Vec<_>>() {
        let (address, done) = writer.await.unwrap();
        all.insert(address, done);
    }
    all
}

#[tokio::test(flavor = "multi_thread")]
async fn a_service_that_is_killed_under_load_has_every_acknowledged_change_in_its_feed_once() {
    let directory = tempfile::tempdir().unwrap();
    let mut expected: BTreeMap<String, Vec<i64>> = BTreeMap::new();
    let mut service = spawn_serve(directory.path());
    for writer in 0..4 {
        assert_eq!(run(&["--url", &service.url], &format!("create db{writer}")).0, 0);
    }
    for (round, kill_after) in [60, 25, 110].into_iter().enumerate() {
        let acknowledged = Arc::new(AtomicUsize::new(0));
        let pushing = tokio::spawn({
            let (url, acknowledged) = (service.url.clone(), acknowledged.clone());
            async move { push_until_it_is_gone(&url, round as i64 * 100_000 + 1, acknowledged).await }
        });
        let until = Instant::now() + LONG;
        while acknowledged.load(Ordering::Relaxed) < kill_after {
            assert!(Instant::now() < until, "the writers make no progress");
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        service.kill();
        for (address, done) in pushing.await.unwrap() {
            expected.entry(address).or_default().extend(done);
        }
        service = spawn_serve(directory.path());
    }
    // Once this is in the feed, so is everything before it.
    assert_eq!(run(&["--url", &service.url], "create last").0, 0);
    let until = Instant::now() + LONG;
    let changes = loop {
        let (_, stdout, _) = run(&["--url", &service.url, "--json"], "changes");
        let reported: Value = serde_json::from_str(&stdout).unwrap();
        let Value::Array(changes) = reported["changes"].clone() else { panic!("{reported}") };
        if changes.iter().filter(|change| change["name"] == "last").count() == 2 {
            break changes;
        }
        assert!(Instant::now() < until, "{} changes", changes.len());
    };

    let positions: Vec<_> = changes.iter().map(|change| change["position"].as_u64().unwrap()).collect();
    assert_eq!(positions, (1..=changes.len() as u64).collect::<Vec<_>>());
    let mut heads: HashMap<&str, Vec<i64>> = HashMap::new();
    for change in changes.iter().filter(|change| change["concern"] == "head") {
        let address = change["address"].as_str().unwrap();
        heads.entry(address).or_default().push(change["watermark"].as_i64().unwrap());
    }
    for (address, acknowledged) in &expected {
        let reported = &heads[address.as_str()];
        assert!(reported.windows(2).all(|pair| pair[0] < pair[1]), "{address}: out of order, or twice: {reported:?}");
        let missing: Vec<_> = acknowledged.iter().filter(|t| !reported.contains(t)).collect();
        assert!(missing.is_empty(), "{address}: {missing:?}");
        // One push per round may have been applied without an answer.
        assert!(reported.len() <= acknowledged.len() + 3, "{address}: {reported:?} for {acknowledged:?}");
    }
}

/// Writes continue while changes are read: what there was at the beginning is printed, and the command ends.
#[test]
fn changes_and_archives_end_beside_a_continuous_writer() {
    use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
    let directory = tempfile::tempdir().unwrap();
    let service = spawn_serve(directory.path());
    let (url, stop) = (service.url.as_str(), AtomicBool::new(false));
    assert_eq!(run(&["--url", url], "create mydb").0, 0);
    std::thread::scope(|scope| {
        for writer in 0..4 {
            let stop = &stop;
            scope.spawn(move || {
                let mut n = 0_u64;
                while !stop.load(SeqCst) {
                    n += 1;
                    let body = json!({"new": {"id": OTHER, "t": 4 * n + writer}}).to_string();
                    super::replica::ask(url, "PUT", "/v1/heads/mydb", &body);
                }
            });
        }
        let archive = format!("archive file://{}", directory.path().join("archive").display());
        let ended = [
            run(&["--url", url, "--json"], "changes"),
            run(&["--url", url], "changes"),
            run(&["--url", url], &archive),
        ];
        stop.store(true, SeqCst);
        assert!(ended.iter().all(|(code, ..)| *code == 0), "{ended:?}");
        let document: Value = serde_json::from_str(&ended[0].1).unwrap();
        let changes = document["changes"].as_array().unwrap();
        assert!(changes.len() as u64 <= document["position"].as_u64().unwrap() && !changes.is_empty());
    });
    let (code, _, stderr) = run(&["--url", url], "changes --after 99999999");
    assert!(code == 8 && stderr.contains("beyond the end"), "{code} {stderr}");
    let (code, stdout, _) = run(&["--url", url, "--json"], "changes --prefix none");
    let document: Value = serde_json::from_str(&stdout).unwrap();
    assert!(code == 0 && document["changes"] == json!([]), "{stdout}");
}

/// A feed that lacks changes between others, as where an archive ends before the feed begins.
#[test]
fn changes_after_a_hole_are_printed_and_the_hole_is_reported() {
    let page = |positions: &[u64]| {
        let change = |position: &u64| {
            json!({
                "position": position, "address": "mydb:main", "kind": "ledger", "name": "mydb", "branch": "main",
                "concern": "head", "change": "updated", "watermark": position, "payload": {"id": ID, "t": position},
                "occurred_at": "2026-01-01T00:00:00Z", "recorded_at": "2026-01-01T00:00:00Z",
            })
        };
        let changes: Vec<_> = positions.iter().map(change).collect();
        (200, json!({"changes": changes, "position": positions.last()}).to_string())
    };
    let url = answering(move |path| match path.split('&').next().unwrap() {
        "/v1/changes/compare" => (200, json!({"changed": {}, "unknown": [], "position": 20}).to_string()),
        "/v1/changes?after=0" => page(&[1, 2, 3]),
        "/v1/changes?after=9" => page(&[10, 20]),
        _ => {
            let (kind, detail) = ("https://nameservice.dev/problems/expired", "the changes have expired");
            let expired = json!({"type": kind, "title": "t", "status": 410, "detail": detail, "oldest": 10});
            (410, expired.to_string())
        }
    });
    let (code, stdout, stderr) = run(&["--url", &url], "changes");
    assert_eq!(code, 0, "{stderr}");
    assert_eq!(stdout.lines().map(position).collect::<Vec<_>>(), [1, 2, 3, 10, 20]);
    assert!(stderr.contains("positions 4 to 9 have expired; continuing at 10"), "{stderr}");
    let (code, stdout, _) = run(&["--url", &url, "--json"], "changes");
    let document: Value = serde_json::from_str(&stdout).unwrap();
    assert_eq!((code, document["changes"].as_array().unwrap().len(), &document["position"]), (0, 5, &json!(20)));
    // From a position that the command line names, all changes are requested.
    let (code, stdout, stderr) = run(&["--url", &url], "changes --after 0");
    assert_eq!((code, stdout.lines().count()), (6, 3), "{stderr}");
    assert!(stderr.contains("expired"), "{stderr}");
}
