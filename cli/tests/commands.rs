//! The program as scripts use it: what it prints, and the code it exits with.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot be set up has failed")]

use std::{
    io::{BufRead as _, BufReader, Read as _},
    path::Path,
    process::{Child, Command, Output, Stdio},
};

use nameservice_cli::{
    embedded::Engine,
    serve::{self, Service},
};
use nameservice_http::Auth;
use nameservice_store::{Store, endpoint_client};
use serde_json::Value;

const ID: &str = "bafybeigdyrzt5sfp7udm7hu76uh7y26nf3efuylqabf3oclgtqy55fbzdi";
const OTHER: &str = "bafkreigh2akiscaildcqabsyg3dfr6chu3fgpregiymsck7e7aqa4s52zy";

fn program() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_nameservice"));
    for variable in ["NAMESERVICE_URL", "NAMESERVICE_TOKEN", "RUST_LOG"] {
        command.env_remove(variable);
    }
    command.stdin(Stdio::null());
    command
}

/// Runs a command line in which `ID` and `OTHER` stand for content ids.
fn run(target: &[&str], line: &str) -> (i32, String, String) {
    let words = line.split_whitespace().map(|word| word.replace("ID", ID).replace("OTHER", OTHER));
    let Output { status, stdout, stderr } = program().args(words).args(target).output().unwrap();
    (status.code().unwrap(), String::from_utf8(stdout).unwrap(), String::from_utf8(stderr).unwrap())
}

/// What must hold however the nameservice is reached: each command line with its exit code, and words that stdout or
/// stderr must hold.
const SCRIPT: &[(&str, i32, &str)] = &[
    ("show mydb", 4, "no record `mydb:main`"),
    ("create mydb", 0, "created the ledger mydb:main"),
    ("create mydb", 3, "exists"),
    ("show mydb", 0, "nothing yet"),
    ("push head mydb ID 5", 0, "at t 5"),
    ("push head mydb ID 5", 0, "in place already"),
    ("push head mydb OTHER 5", 3, "stale: the head of mydb:main is bafybei"),
    ("push head mydb OTHER 6 --expect OTHER@4", 3, "in place: bafybei"),
    ("push head mydb OTHER 6 --expect-unborn", 3, "at t 5"),
    ("push head mydb OTHER 6 --expect ID@5", 0, "at t 6"),
    ("push head nowhere ID 1", 4, "no record"),
    ("push head fresh ID 1 --expect-none", 0, "at t 1"),
    ("push head fresh ID 2 --expect-none", 3, "in place"),
    ("push index mydb ID 6", 0, "at t 6"),
    ("push index mydb OTHER 6", 3, "stale"),
    ("push index mydb OTHER 6 --allow-equal", 0, "rev 1"),
    ("status mydb indexing --meta {\"by\":\"me\"}", 0, "indexing {\"by\":\"me\"} (v 2)"),
    ("status mydb ready --expect-v 1", 3, "in place: indexing"),
    ("status mydb", 0, "indexing"),
    ("config mydb {\"a\":1}", 0, "{\"a\":1} (v 1)"),
    ("config mydb [1]", 2, "a JSON object is wanted"),
    ("config mydb", 0, "\"a\": 1"),
    ("create search --source-type f:Bm25Index --depends-on mydb", 0, "published"),
    ("create search --source-type f:Bm25Index", 3, "exists"),
    ("create lost --source-type f:Bm25Index --depends-on gone --depends-on mydb", 3, "gone:main"),
    ("config search {\"k\":1}", 0, "{\"k\":1} (v 2)"),
    ("publish search --source-type f:Bm25Index --config {\"k\":2} --expect-v 1", 3, "in place: {\"k\":1}"),
    ("show search", 0, "mydb:main"),
    ("branch create mydb:dev", 0, "created the branch mydb:dev"),
    ("branch create mydb:dev", 3, "exists"),
    ("branch create mydb:x --from nowhere", 4, "nowhere"),
    ("branch list mydb", 0, "mydb:dev"),
    ("retract mydb", 3, "search:main"),
    ("branch drop mydb:dev", 0, "0 left"),
    ("purge search", 2, "confirm with --yes"),
    ("purge search --yes", 0, "gone"),
    ("retract mydb --reason tidy", 0, "retracted"),
    ("push head mydb ID 9", 6, "is retracted"),
    ("list --retracted", 0, "mydb:main"),
    ("list --retracted=false --kind ledger", 0, "fresh:main"),
    ("restore mydb", 0, "live"),
    ("reset mydb --head ID@2 --index unborn", 0, "at t 2"),
    ("list --full", 0, "t 2 bafy…5fbzdi"),
    ("list --name none", 0, "no records"),
    ("snapshot", 0, "mydb:main"),
    ("health --deep", 0, "ok"),
    ("show a%b", 2, "is not an address"),
    ("frobnicate", 2, "unrecognized subcommand"),
];

fn follow_script(target: &[&str]) {
    for (line, code, words) in SCRIPT {
        let (exit, stdout, stderr) = run(target, line);
        assert_eq!(exit, *code, "{line}\n{stdout}{stderr}");
        let told = if exit == 0 { &stdout } else { &stderr };
        assert!(told.contains(words), "{line}\n{stdout}{stderr}");
    }
}

struct Serving {
    process: Child,
    url: String,
}

fn spawn_serve(data: &Path) -> Serving {
    let mut command = program();
    command.args(["serve", "--listen", "127.0.0.1:0", "--data"]).arg(data);
    let mut process = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut stdout = BufReader::new(process.stdout.take().unwrap());
    let mut line = String::new();
    stdout.read_line(&mut line).unwrap();
    let url =
        line.split_whitespace().find(|word| word.starts_with("http://")).unwrap().trim_end_matches(',').to_owned();
    // Kept open: the greeting has more lines.
    std::thread::spawn(move || stdout.read_to_end(&mut Vec::new()));
    Serving { process, url }
}

async fn start_in_process(engine: &Engine, auth: Auth) -> Service {
    let store = Store::new(endpoint_client(&engine.url()), Store::DEFAULT_TABLE);
    store.ensure_table().await.unwrap();
    serve::start(([127, 0, 0, 1], 0).into(), store, auth).await.unwrap()
}

#[test]
fn straight_to_the_data_every_command_does_what_it_says() {
    let directory = tempfile::tempdir().unwrap();
    follow_script(&["--data", directory.path().to_str().unwrap()]);
}

#[tokio::test(flavor = "multi_thread")]
async fn through_a_service_every_command_does_what_it_says() {
    let engine = Engine::in_memory().unwrap();
    let service = start_in_process(&engine, Auth::Open).await;
    let url = service.url();
    tokio::task::spawn_blocking(move || follow_script(&["--url", &url])).await.unwrap();
    service.stop().await;
}

#[test]
fn a_table_elsewhere_is_made_by_init_and_missed_by_name() {
    let engine = Engine::in_memory().unwrap();
    let url = engine.url();
    let target = ["--endpoint-url", url.as_str(), "--table", "elsewhere"];
    let (code, _, stderr) = run(&target, "list");
    assert!(code == 1 && stderr.contains("elsewhere") && stderr.contains("nameservice init"), "{code} {stderr}");
    assert!(run(&target, "init").1.starts_with("made the table"));
    assert!(run(&target, "init").1.starts_with("the table is there"));
    assert_eq!(run(&target, "create mydb").0, 0);
    assert_eq!(run(&target, "show mydb").0, 0);
}

#[test]
fn programs_get_the_json_of_answers_and_of_refusals() {
    let directory = tempfile::tempdir().unwrap();
    let target = ["--json", "--data", directory.path().to_str().unwrap()];
    let answer: Value = serde_json::from_str(&run(&target, "create mydb").1).unwrap();
    assert_eq!(answer["address"], "mydb:main");
    run(&target, "push head mydb ID 5");
    let (code, stdout, _) = run(&target, "push head mydb OTHER 4");
    let stale: Value = serde_json::from_str(&stdout).unwrap();
    assert_eq!((code, &stale["status"], &stale["value"]["t"]), (3, &Value::from("stale"), &Value::from(5)));
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
fn a_killed_service_loses_nothing_and_a_second_one_is_told_of_the_first() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().to_str().unwrap();
    let mut first = spawn_serve(directory.path());
    assert_eq!(run(&["--url", &first.url], "create mydb").0, 0);
    assert_eq!(run(&["--url", &first.url], "push head mydb ID 7").0, 0);
    let (code, _, stderr) = run(&["--data", data], "serve --listen 127.0.0.1:0");
    assert!(code == 7 && stderr.contains(&format!("process {}", first.process.id())), "{code} {stderr}");
    first.process.kill().unwrap();
    first.process.wait().unwrap();
    assert!(run(&["--data", data], "show mydb").1.contains("at t 7"));
}

#[cfg(unix)]
#[test]
fn a_service_that_is_told_to_stop_does_so_in_order() {
    let directory = tempfile::tempdir().unwrap();
    let mut service = spawn_serve(directory.path());
    assert_eq!(run(&["--url", &service.url], "create mydb").0, 0);
    let told = Command::new("kill").args(["-TERM", &service.process.id().to_string()]).status().unwrap();
    assert!(told.success() && service.process.wait().unwrap().success());
    // SQLite leaves no log behind where it was closed.
    assert!(!directory.path().join("nameservice.db-wal").exists());
    assert_eq!(run(&["--url", &service.url], "show mydb").0, 7);
}

#[test]
fn serve_says_what_is_wrong_with_where_it_shall_listen() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = taken.local_addr().unwrap();
    let (code, _, stderr) = run(&[], &format!("serve --memory --listen {taken}"));
    assert!(code == 1 && stderr.contains(&format!("{taken} is in use")), "{code} {stderr}");
    let (code, _, stderr) = run(&[], "serve --memory --listen 0.0.0.0:0");
    assert!(code == 2 && stderr.contains("--insecure"), "{code} {stderr}");
}

#[test]
fn a_closed_pipe_is_no_failure() {
    let mut process = program().arg("openapi").stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(process.stdout.take());
    let ended = process.wait_with_output().unwrap();
    assert!(ended.status.success() && ended.stderr.is_empty(), "{}", String::from_utf8_lossy(&ended.stderr));
}
