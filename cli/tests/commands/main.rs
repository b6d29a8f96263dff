//! The program as scripts use it: what it prints, and the code it exits with.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot be set up has failed")]

#[cfg(unix)]
mod archive;
mod away;
mod consumer;
mod copy;
mod deadletters;
mod engine;
#[cfg(unix)]
mod feed;
#[cfg(unix)]
mod leases;
mod legacy;
mod looking;
mod migration;
mod named;
mod places;
#[cfg(unix)]
mod production;
// The options of `script` are those of util-linux.
#[cfg(target_os = "linux")]
mod progress;
mod regions;
mod replica;
mod search;
#[cfg(unix)]
mod secrets;
#[cfg(unix)]
mod serving;
mod terminal;
mod traces;

use std::{
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::{SocketAddr, TcpListener},
    path::Path,
    process::{Child, Command, Output, Stdio},
    sync::atomic::{AtomicU16, Ordering},
    time::Duration,
};

use nameservice::Place;
use nameservice_cli::{
    options::Missing,
    serve::{self, Service},
    target::Opened,
};
use nameservice_feed::Feed;
use nameservice_http::Auth;
use nameservice_store::Store;
use serde_json::Value;

use self::engine::Engine;

const ID: &str = "bafybeigdyrzt5sfp7udm7hu76uh7y26nf3efuylqabf3oclgtqy55fbzdi";
const OTHER: &str = "bafkreigh2akiscaildcqabsyg3dfr6chu3fgpregiymsck7e7aqa4s52zy";

/// The one deadline of what a test waits for.
const LONG: Duration = Duration::from_secs(120);

fn program() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_nameservice"));
    for variable in ["NAMESERVICE_URL", "NAMESERVICE_TOKEN", "NAMESERVICE_DEV_TOKEN", "NAMESERVICE_ADDRESS", "RUST_LOG"]
    {
        command.env_remove(variable);
    }
    command.stdin(Stdio::null());
    command
}

/// A service that answers each path with this status and text. Returns its URL.
fn answering(answer: impl Fn(&str) -> (u16, String) + Send + Sync + 'static) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let answer = std::sync::Arc::new(answer);
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let answer = answer.clone();
            std::thread::spawn(move || {
                let mut request = [0; 4096];
                let read = stream.read(&mut request).unwrap_or(0);
                let request = String::from_utf8_lossy(&request[..read]);
                let (status, text) = answer(request.split(' ').nth(1).unwrap_or_default());
                let length = text.len();
                let head = format!("HTTP/1.1 {status} X\r\nconnection: close\r\ncontent-length: {length}");
                let _ = write!(stream, "{head}\r\n\r\n{text}");
            });
        }
    });
    url
}

/// Returns what a word of a command line stands for: `ID` and `OTHER` are content ids, with `@` and a `t` or without.
fn word(word: &str) -> String {
    let (name, t) = word.split_at(word.find('@').unwrap_or(word.len()));
    match name {
        "ID" => format!("{ID}{t}"),
        "OTHER" => format!("{OTHER}{t}"),
        _ => word.to_owned(),
    }
}

/// Runs a command line in which `ID` and `OTHER` stand for content ids.
fn run(target: &[&str], line: &str) -> (i32, String, String) {
    let words = line.split_whitespace().map(word);
    let Output { status, stdout, stderr } = program().args(target).args(words).output().unwrap();
    (status.code().unwrap(), String::from_utf8(stdout).unwrap(), String::from_utf8(stderr).unwrap())
}

/// What must hold however the nameservice is reached: each command line with its exit code, and words that stdout or
/// stderr must contain.
const SCRIPT: &[(&str, i32, &str)] = &[
    ("show mydb", 4, "no record `mydb:main`"),
    ("create mydb", 0, "created the ledger mydb:main"),
    ("create mydb", 3, "exists"),
    ("show mydb", 0, "unborn"),
    ("push head mydb ID 5 --monotonic", 0, "@5"),
    ("push head mydb ID 5 --monotonic", 0, "stored already"),
    ("push head mydb OTHER 5 --monotonic", 9, "stale: the head of mydb:main is bafybei"),
    ("push head mydb OTHER 6 --expect OTHER@4", 3, "nothing written: expected bafkrei"),
    ("push head mydb OTHER 6 --expect-unborn", 3, "expected unborn, found bafybei"),
    ("push head mydb OTHER 5 --expect ID@5", 3, "new t 5 must be greater than current t 5"),
    ("push head mydb OTHER 6 --expect ID@5", 0, "@6"),
    ("push head nowhere ID 1 --monotonic", 4, "no record"),
    ("push head fresh ID 1 --expect-none", 0, "@1"),
    ("push head fresh ID 2 --expect-none", 3, "expected no record, found bafybei"),
    ("push index mydb ID 6 --monotonic", 0, "@6"),
    ("push index mydb OTHER 6 --monotonic", 9, "stale"),
    ("push index mydb OTHER 6 --allow-equal", 0, "rev 1"),
    ("push index mydb ID 6 --expect OTHER@6 --expect-rev 1 --idempotency-key again", 0, "rev 2"),
    ("push index mydb OTHER 6 --allow-equal", 0, "rev 3"),
    // Without the rev its answer would be unknown.
    ("push index mydb ID 6 --expect OTHER@6 --expect-rev 1 --idempotency-key again", 0, "rev 2"),
    ("status mydb indexing --meta {\"by\":\"me\"}", 0, "indexing {\"by\":\"me\"} (v 2)"),
    ("status mydb ready --expect-v 1", 3, "expected v 1, found v 2\n  current: indexing"),
    ("status mydb", 0, "indexing"),
    ("config mydb {\"a\":1}", 0, "{\"a\":1} (v 1)"),
    ("config mydb [1]", 2, "expected a JSON object"),
    ("config mydb", 0, "\"a\": 1"),
    ("create search --source-type f:Bm25Index --depends-on mydb", 0, "published"),
    ("create search --source-type f:Bm25Index", 3, "exists"),
    ("create lost --source-type f:Bm25Index --depends-on gone --depends-on mydb", 3, "gone:main"),
    ("config search {\"k\":1}", 0, "{\"k\":1} (v 2)"),
    ("publish search --source-type f:Bm25Index --config {\"k\":2} --expect-v 1", 3, "current: {\"k\":1}"),
    ("show search", 0, "mydb:main"),
    ("branch create mydb:dev", 0, "created the branch mydb:dev"),
    ("branch create mydb:dev", 3, "exists"),
    ("branch create mydb:x --from nowhere", 4, "nowhere"),
    ("branch list mydb", 0, "mydb:dev"),
    ("retract mydb", 3, "search:main"),
    ("branch drop mydb:dev", 2, "--yes"),
    ("branch drop mydb:dev --yes", 0, "0 left"),
    ("purge search", 2, "confirm with --yes"),
    ("purge search --yes", 0, "gone"),
    ("unprotect mydb", 0, "mydb:main is not protected"),
    ("protect mydb", 0, "mydb:main is protected"),
    ("protect mydb", 0, "mydb:main is protected"),
    ("protect nobody", 4, "nobody"),
    ("show mydb", 0, "ledger, protected"),
    ("retract mydb", 3, "unprotect"),
    ("purge mydb --yes", 3, "protected"),
    ("reset mydb --head ID@2 --index unborn --yes", 3, "protected"),
    ("unprotect mydb", 0, "mydb:main is not protected"),
    ("retract mydb --reason tidy", 0, "retracted"),
    ("push head mydb ID 9 --monotonic", 6, "is retracted"),
    ("list --retracted", 0, "mydb:main"),
    ("list --retracted=false --kind ledger", 0, "fresh:main"),
    ("list --kind ledgers", 0, "fresh:main"),
    ("list --kind graph_source", 0, "no records"),
    ("list --kind both", 2, "graph-source"),
    ("show fresh --concern meta --min-v 1", 2, "possible values: head"),
    ("restore mydb", 0, "live"),
    ("reset mydb --head ID@2 --index unborn", 2, "-> bafybei"),
    ("reset mydb --head ID@2 --index unborn --yes", 0, "@2"),
    ("list", 0, "t 2"),
    ("list --summary", 0, "DEPENDS ON"),
    ("list --summary --sort state", 2, "leave one of them out"),
    ("list --name none", 0, "no records"),
    ("snapshot", 0, "mydb:main"),
    ("health --deep", 0, "ok"),
    ("lease show mydb", 0, "no lease is held"),
    ("lease acquire mydb --name index_lock --holder one --target-t 9", 0, "index_lock, by one until 20"),
    ("lease acquire mydb --name reindex_lock --holder two", 3, "mydb:main is locked by one (index_lock) until 20"),
    ("lease run --name index_lock --holder two mydb -- true", 123, "mydb:main is locked by one (index_lock)"),
    ("lease show mydb", 0, "by one"),
    ("lease refresh mydb --name index_lock --holder one --lease-token 1 --ttl 60", 0, "for t 9, token 1"),
    ("lease refresh mydb --name index_lock --holder one --lease-token 2", 3, "held: index_lock, by one"),
    ("push head mydb OTHER 8 --monotonic --lease-name index_lock --lease-holder one --lease-token 1", 0, "@8"),
    (
        "push head mydb OTHER 9 --monotonic --lease-name index_lock --lease-holder one --lease-token 7",
        3,
        "held: index_lock",
    ),
    (
        "push index mydb OTHER 9 --monotonic --lease-name index_lock --lease-holder two --lease-token 1",
        3,
        "held: index_lock",
    ),
    ("status mydb busy --lease-name index_lock --lease-holder one --lease-token 1", 0, "busy"),
    ("config mydb {} --lease-name index_lock --lease-holder one --lease-token 7", 3, "held: index_lock"),
    ("push head mydb OTHER 9 --monotonic --lease-name index_lock", 2, "--lease-holder"),
    ("lease release mydb --name index_lock --holder one --lease-token 1", 0, "is free"),
    (
        "lease release mydb --name index_lock --holder one --lease-token 1",
        3,
        "has expired, or another holder has it now",
    ),
    ("lease acquire nowhere --name index_lock --holder one", 4, "no record"),
    ("lease acquire mydb --name index-lock --holder one", 2, "index-lock"),
    ("lease acquire mydb --name index_lock --holder one --ttl 0", 2, "it must be 1s to 3600s"),
    ("lease run --name index_lock --holder one mydb -- true", 0, ""),
    ("lease run --name index_lock --holder one mydb -- false", 1, ""),
    ("lease run --name index_lock --holder one mydb -- no-such-program", 127, "cannot be run"),
    ("lease run --name index_lock --holder one mydb", 2, "COMMAND"),
    ("lease show mydb", 0, "no lease is held"),
    ("show a%b", 2, "is not an address"),
    ("frobnicate", 2, "unrecognized subcommand"),
];

fn follow_script(target: &[&str]) {
    for (line, code, words) in SCRIPT {
        let (exit, stdout, stderr) = run(target, line);
        assert_eq!(exit, *code, "{line}\n{stdout}{stderr}");
        let reported = if exit == 0 { &stdout } else { &stderr };
        assert!(reported.contains(words), "{line}\n{stdout}{stderr}");
    }
}

struct Serving {
    process: Child,
    url: String,
}

impl Serving {
    /// Kills it, as a power failure would.
    fn kill(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        // Fails if it has already ended.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn spawn_serve(data: &Path) -> Serving {
    spawn_serve_with(data, &["--listen", "127.0.0.1:0"])
}

fn spawn_serve_with(data: &Path, options: &[&str]) -> Serving {
    spawn([options, &["--data", data.to_str().unwrap()]].concat().as_slice())
}

/// Runs `serve` with these options.
fn spawn(options: &[&str]) -> Serving {
    let mut command = program();
    command.arg("serve").args(options);
    let mut process = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut stdout = BufReader::new(process.stdout.take().unwrap());
    let mut stderr = process.stderr.take().unwrap();
    let logged = std::thread::spawn(move || {
        let mut logged = Vec::new();
        let _ = stderr.read_to_end(&mut logged);
        String::from_utf8_lossy(&logged).into_owned()
    });
    let mut line = String::new();
    stdout.read_line(&mut line).unwrap();
    let Some(url) = line.split_whitespace().find(|word| word.starts_with("http://")) else {
        let _ = process.kill();
        panic!("serve {options:?} has not started: {line}{}", logged.join().unwrap());
    };
    let url = url.trim_end_matches(',').to_owned();
    // Kept open, since the greeting has more lines.
    std::thread::spawn(move || stdout.read_to_end(&mut Vec::new()));
    Serving { process, url }
}

/// Returns an address on which a service can be started twice. No other process has it: it is made of the id of this
/// one, and systems give no port below 32,768 to whoever asks for any.
fn free_address() -> String {
    static PORT: AtomicU16 = AtomicU16::new(10_000);
    let [_, high, middle, low] = std::process::id().to_be_bytes();
    // Only Linux has all addresses of the loopback network.
    let host = if cfg!(target_os = "linux") { [127, 64 | high, middle, low] } else { [127, 0, 0, 1] };
    SocketAddr::from((host, PORT.fetch_add(1, Ordering::Relaxed))).to_string()
}

/// The default table of an engine.
fn endpoint(url: &str) -> Place {
    format!("dynamodb://fluree-nameservice?endpoint={url}").parse().unwrap()
}

async fn start_in_process(place: Place, auth: Auth) -> Service {
    let opened = Opened::open(place, Missing::Create, None).await.unwrap();
    if let Opened::Table(table) = &opened {
        table.ensure().await.unwrap();
    }
    let listener = serve::bind(([127, 0, 0, 1], 0).into()).await.unwrap();
    serve::start(listener, opened.app(auth), None).unwrap()
}

#[test]
fn straight_to_the_data_every_command_does_what_it_says() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().to_str().unwrap();
    assert_eq!(run(&["--data", data], "init").0, 0);
    follow_script(&["--data", data]);
}

#[test]
fn straight_to_a_table_every_command_does_what_it_says() {
    let engine = Engine::start();
    assert_eq!(run(&["--endpoint-url", engine.url()], "init").0, 0);
    follow_script(&["--endpoint-url", engine.url()]);
}

#[test]
fn only_commands_that_write_create_a_directory() {
    let parent = tempfile::tempdir().unwrap();
    let directory = parent.path().join("data");
    let target = ["--data", directory.to_str().unwrap()];
    for line in ["show mydb", "list", "snapshot", "doctor", "status mydb", "lease show mydb", "branch list mydb"] {
        let (code, _, stderr) = run(&target, line);
        assert!(code == 2 && stderr.contains("nameservice init"), "{line}: {code} {stderr}");
    }
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    assert_eq!(run(&target, &format!("serve --listen {}", taken.local_addr().unwrap())).0, 7);
    assert!(!directory.exists());
    assert!(run(&target, "init").1.starts_with("created the data"));
    assert!(run(&target, "init").1.starts_with("there is data"));
    assert_eq!(run(&target, "create mydb").0, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn through_a_service_every_command_does_what_it_says() {
    let service = start_in_process(Place::Memory, Auth::Open).await;
    let url = service.url();
    tokio::task::spawn_blocking(move || follow_script(&["--url", &url])).await.unwrap();
    service.stop().await;
}

#[test]
fn a_table_elsewhere_is_made_by_init_and_missed_by_name() {
    let engine = Engine::start();
    let target = ["--endpoint-url", engine.url(), "--table", "elsewhere"];
    let (code, _, stderr) = run(&target, "list");
    assert!(code == 1 && stderr.contains("elsewhere") && stderr.contains("nameservice init"), "{code} {stderr}");
    assert!(run(&target, "init").1.starts_with("created the table"));
    assert!(run(&target, "init").1.starts_with("the table exists"));
    assert_eq!(run(&target, "create mydb").0, 0);
    assert_eq!(run(&target, "show mydb").0, 0);
}

#[test]
fn programs_get_the_json_of_answers_and_of_rejections() {
    let directory = tempfile::tempdir().unwrap();
    let target = ["--json", "--data", directory.path().to_str().unwrap()];
    let answer: Value = serde_json::from_str(&run(&target, "create mydb").1).unwrap();
    assert_eq!(answer["address"], "mydb:main");
    run(&target, "push head mydb ID 5 --monotonic");
    let (code, stdout, _) = run(&target, "push head mydb OTHER 4 --monotonic");
    let stale: Value = serde_json::from_str(&stdout).unwrap();
    assert_eq!((code, &stale["status"], &stale["value"]["t"]), (9, &Value::from("stale"), &Value::from(5)));
    let (code, stdout, stderr) = run(&target, "push head mydb OTHER 9 --expect OTHER@1");
    let problem: Value = serde_json::from_str(&stderr).unwrap();
    assert_eq!((code, stdout.as_str(), &problem["actual"]["id"]), (3, "", &Value::from(ID)));
    run(&target, "create other");
    let page: Value = serde_json::from_str(&run(&target, "list --limit 1").1).unwrap();
    let cursor = page["cursor"].as_str().unwrap();
    let rest: Value = serde_json::from_str(&run(&target, &format!("list --cursor {cursor}")).1).unwrap();
    assert_eq!((page["records"].as_array().unwrap().len(), rest["records"].as_array().unwrap().len()), (1, 1));
    assert!(rest.get("cursor").is_none());
    let snapshot: Value = serde_json::from_str(&run(&target, "snapshot").1).unwrap();
    assert!(snapshot["position"].is_u64() && snapshot["records"].as_array().unwrap().len() == 2);
}

#[test]
fn a_killed_service_loses_nothing_and_a_second_one_names_the_first() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().to_str().unwrap();
    let mut first = spawn_serve(directory.path());
    assert_eq!(run(&["--url", &first.url], "create mydb").0, 0);
    assert_eq!(run(&["--url", &first.url], "push head mydb ID 7 --monotonic").0, 0);
    let (code, _, stderr) = run(&["--data", data], "serve --listen 127.0.0.1:0");
    assert!(code == 7 && stderr.contains(&format!("process {}", first.process.id())), "{code} {stderr}");
    first.kill();
    assert!(run(&["--data", data], "show mydb").1.contains("@7"));
}

#[cfg(unix)]
#[test]
fn a_service_that_is_asked_to_stop_does_so_in_order() {
    let directory = tempfile::tempdir().unwrap();
    let mut service = spawn_serve(directory.path());
    assert_eq!(run(&["--url", &service.url], "create mydb").0, 0);
    let sent = Command::new("kill").args(["-TERM", &service.process.id().to_string()]).status().unwrap();
    assert!(sent.success() && service.process.wait().unwrap().success());
    assert_eq!(run(&["--url", &service.url], "show mydb").0, 7);
}

#[test]
fn serve_says_what_is_wrong_with_where_it_shall_listen() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = taken.local_addr().unwrap();
    let (code, _, stderr) = run(&[], &format!("serve --memory --listen {taken}"));
    assert!(code == 7 && stderr.contains(&format!("{taken} is in use")), "{code} {stderr}");
    let (code, _, stderr) = run(&[], "serve --memory --listen 0.0.0.0:0");
    assert!(code == 2 && stderr.contains("--insecure"), "{code} {stderr}");
}

#[test]
fn a_backup_of_a_directory_that_is_served_is_served_like_any_other() {
    let parent = tempfile::tempdir().unwrap();
    let [data, copy] = ["data", "copy"].map(|name| parent.path().join(name).to_str().unwrap().to_owned());
    let service = spawn_serve(Path::new(&data));
    assert_eq!(run(&["--url", &service.url], "create mydb").0, 0);
    assert_eq!(run(&["--url", &service.url], "push head mydb ID 7 --monotonic").0, 0);
    let (code, stdout, stderr) = run(&["--data", &data], &format!("backup {copy}"));
    assert!(code == 0 && stdout.contains("position 3"), "{stdout}{stderr}");
    assert_eq!(run(&["--url", &service.url], "push head mydb ID 8 --monotonic").0, 0);
    // The doctor examines a copy too; it does not fix what a service uses.
    let (code, stdout, _) = run(&["--data", &data], "doctor");
    assert!(code == 0 && stdout.contains("a copy of the data in use in") && stdout.contains("all is well"), "{stdout}");
    assert_eq!(run(&["--data", &data], "doctor --fix").0, 7);
    let (code, stdout, _) = run(&["--url", &service.url], "doctor");
    assert!(code == 0 && stdout.contains("no records were examined") && !stdout.contains("all is well"), "{stdout}");
    assert!(run(&["--data", &copy], "show mydb").1.contains("@7"));
    let (code, stdout, _) = run(&["--data", &copy], "doctor");
    assert!(code == 0 && stdout.contains("all is well"), "{stdout}");
    let (code, _, stderr) = run(&["--data", &data], &format!("backup {copy}"));
    assert!(code == 2 && stderr.contains("exists"), "{stderr}");
    assert_eq!(run(&["--data", &format!("{data}-x")], &format!("backup {copy}-y")).0, 2);
}

#[test]
fn a_closed_pipe_is_no_failure() {
    let mut process =
        program().args(["generate", "openapi"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(process.stdout.take());
    let ended = process.wait_with_output().unwrap();
    assert!(ended.status.success() && ended.stderr.is_empty(), "{}", String::from_utf8_lossy(&ended.stderr));
}

#[test]
fn a_transaction_is_reported_operation_by_operation() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().to_str().unwrap();
    let target = ["--data", data];
    run(&target, "create mydb");
    run(&target, "create other");
    let file = directory.path().join("transaction.json");
    let write = |t: i64, expected_v: i64| {
        let operations = serde_json::json!([
            {"op": "push_head", "address": "mydb", "new": {"id": ID, "t": t}},
            {"op": "push_head", "address": "other", "new": {"id": OTHER, "t": t}},
            {"op": "check", "address": "mydb", "concern": "config", "expected": {"v": expected_v}},
        ]);
        std::fs::write(&file, serde_json::json!({"operations": operations}).to_string()).unwrap();
        format!("transaction {}", file.display())
    };
    let line = write(3, 0);
    let (code, stdout, stderr) = run(&target, &line);
    assert_eq!(code, 0, "{stdout}{stderr}");
    assert!(stdout.contains("check config") && stdout.contains("passed") && stdout.contains("@3"), "{stdout}");
    let line = write(2, 1);
    let (code, stdout, stderr) = run(&target, &line);
    assert_eq!(code, 3, "{stdout}{stderr}");
    assert!(stdout.contains("stale") && stdout.contains("conflict") && stdout.contains("nothing yet"), "{stdout}");
    assert!(stderr.starts_with("error: "), "{stderr}");
    let (code, stdout, stderr) = run(&["--json", "--data", data], &line);
    let problem: Value = serde_json::from_str(&stderr).unwrap();
    assert_eq!((code, stdout.as_str(), &problem["results"][0]["status"]), (3, "", &Value::from("stale")));
    assert_eq!(run(&target, "transaction /nowhere").0, 2);
    assert!(run(&target, "show mydb").1.contains("@3"));
}

#[test]
fn the_doctor_says_what_is_wrong_and_mends_it() {
    let engine = Engine::start();
    let target = ["--endpoint-url", engine.url()];
    assert_eq!(run(&target, "init").0, 0);
    assert_eq!(run(&target, "create mydb").0, 0);
    let (code, stdout, _) = run(&target, "doctor");
    assert!(code == 0 && stdout.contains("1 records in 5 items") && stdout.contains("all is well"), "{stdout}");

    // Fluree retracts by writing only the meta item.
    {
        let client = engine.client();
        let text = |text: &str| aws_sdk_dynamodb::types::AttributeValue::S(text.into());
        let retract = client
            .update_item()
            .table_name(Store::DEFAULT_TABLE)
            .key("pk", text("mydb:main"))
            .key("sk", text("meta"))
            .update_expression("SET retracted = :yes")
            .expression_attribute_values(":yes", aws_sdk_dynamodb::types::AttributeValue::Bool(true));
        let runtime = tokio::runtime::Runtime::new().unwrap();
        runtime.block_on(retract.send()).unwrap();
    }
    let (code, stdout, stderr) = run(&target, "doctor");
    // A table that is slow to answer is noticed on stderr before.
    assert_eq!((code, stderr.lines().last()), (1, Some("error: 1 finding is left")));
    assert!(stdout.contains("marks-missing") && stdout.contains("--fix: mark them"), "{stdout}");
    let (code, stdout, _) = run(&["--json", "--endpoint-url", engine.url()], "doctor");
    let report: Value = serde_json::from_str(&stdout).unwrap();
    let finding = &report["findings"][0];
    assert_eq!((code, &report["healthy"], &report["open"]), (1, &Value::from(false), &Value::from(1)));
    assert_eq!((&finding["code"], &finding["fix"]), (&Value::from("marks-missing"), &Value::from("possible")));
    assert_eq!((&finding["address"], &finding["severity"]), (&Value::from("mydb:main"), &Value::from("error")));
    let (code, stdout, _) = run(&target, "doctor --fix");
    assert!(code == 0 && stdout.contains("fixed: mark them"), "{code} {stdout}");
    let (code, stdout, _) = run(&target, "doctor");
    assert!(code == 0 && stdout.contains("all is well"), "{code} {stdout}");
    assert_eq!(run(&target, "push head mydb ID 9 --monotonic").0, 6);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_doctor_examines_a_service_and_its_table_together() {
    let engine = Engine::start();
    let service = start_in_process(endpoint(engine.url()), Auth::Open).await;
    let (url, table) = (service.url(), engine.url().to_owned());
    let looked = tokio::task::spawn_blocking(move || {
        let both = run(&["--url", &url, "--endpoint-url", &table], "doctor");
        let one = run(&["--url", &url], "doctor");
        let nothing_there = run(&["--url", "http://127.0.0.1:1", "--endpoint-url", &table], "doctor");
        let no_table = run(&["--endpoint-url", &table, "--table", "other"], "doctor");
        let unfixable = run(&["--url", &url], "doctor --fix");
        let elsewhere = run(&["--url", &table], "doctor");
        (both, one, nothing_there, no_table, unfixable, elsewhere)
    });
    let (both, one, nothing_there, no_table, unfixable, elsewhere) = looked.await.unwrap();
    let are_named = ["service-unhealthy", "service-openapi"].iter().all(|code| elsewhere.1.contains(code));
    assert!(elsewhere.0 == 1 && are_named, "an engine is no nameservice: {elsewhere:?}");
    assert!(both.0 == 0 && both.1.contains("looked at the service") && both.1.contains("0 records"), "{both:?}");
    assert!(one.0 == 0 && one.1.contains("no table"), "{one:?}");
    assert!(nothing_there.0 == 1 && nothing_there.1.contains("service-unhealthy"), "{nothing_there:?}");
    assert!(no_table.0 == 1 && no_table.2.contains("nameservice init"), "{no_table:?}");
    assert!(unfixable.0 == 2 && unfixable.2.contains("which table?"), "{unfixable:?}");
    service.stop().await;

    let feed = Feed::new(engine.client(), Feed::table_of(Store::DEFAULT_TABLE));
    feed.store_dead_letter("1", "it has no key", "null").await.unwrap();
    let table = engine.url().to_owned();
    let unread = tokio::task::spawn_blocking(move || run(&["--endpoint-url", &table], "doctor"));
    let (code, stdout, _) = unread.await.unwrap();
    assert!(code == 1 && stdout.contains("dead-letters") && stdout.contains("it has no key"), "{stdout}");
}
