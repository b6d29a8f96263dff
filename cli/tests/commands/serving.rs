//! `serve` with a token, below a path, with a log for programs.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};

use serde_json::Value;

use super::{replica::eventually, *};

#[test]
fn the_commands_of_the_banner_work_as_printed_below_a_path_and_with_a_token() {
    let directory = tempfile::tempdir().unwrap();
    let mut command = program();
    command.args(["serve", "--listen", "127.0.0.1:0", "--base-path", "/names", "--dev-token", "it's secret"]);
    command.args(["--log-format", "json", "--log-level", "debug", "--data"]).arg(directory.path());
    let mut process = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let banner: Vec<String> = BufReader::new(process.stdout.take().unwrap())
        .lines()
        .map(Result::unwrap)
        .take_while(|line| !line.starts_with("The API"))
        .collect();
    let url = banner[0].split_whitespace().find(|word| word.starts_with("http://")).unwrap().trim_end_matches(',');
    assert!(url.ends_with("/names"), "{url}");
    let commands: Vec<&str> = banner
        .iter()
        .filter(|line| line.starts_with("  ") && !line.contains(" watch"))
        .map(|line| line.trim())
        .collect();
    assert_eq!(commands.len(), 4, "{banner:?}");
    let shell = |script: &str| Command::new("sh").args(["-ec", script]).output().unwrap();
    let done = shell(&commands.join("\n"));
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    assert!(String::from_utf8_lossy(&done.stdout).contains("@1"));
    // The push of the banner is a compare-and-set: it does not overwrite what it has not seen.
    let again = shell(&[commands[0], commands[2]].join("\n"));
    assert!(again.status.success(), "the same value is stored already");

    let (code, _, stderr) = run(&["--url", url], "show mydb");
    assert!(code == 5 && stderr.contains("NAMESERVICE_TOKEN"), "{stderr}");
    let (code, _, _) = run(&["--url", url, "--token", "it's secret"], "show mydb");
    assert_eq!(code, 0);
    let root = url.trim_end_matches("/names");
    assert_eq!(run(&["--url", root, "--token", "it's secret"], "show mydb").0, 4, "nothing is outside the path");
    for probed in [root, url] {
        assert_eq!(run(&["--url", probed], "health --deep").0, 0, "a probe knows no path: {probed}");
    }

    process.kill().unwrap();
    let mut log = String::new();
    process.stderr.take().unwrap().read_to_string(&mut log).unwrap();
    process.wait().unwrap();
    let lines: Vec<Value> = log.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let of = |message: &str| lines.iter().filter(|line| line["fields"]["message"] == message).collect::<Vec<_>>();
    assert!(of("request").iter().any(|line| line["fields"]["record"] == "mydb:main"), "{log}");
    assert!(of("rejected").iter().any(|line| line["fields"]["problem"] == "unauthorized"), "{log}");
    assert!(!log.contains("secret"), "{log}");
}

#[test]
#[cfg(unix)]
fn a_service_that_can_no_longer_write_ends_and_what_it_has_answered_is_there_when_it_starts_again() {
    let directory = tempfile::tempdir().unwrap();
    // A file cannot grow beyond a limit: a write to the log fails, other than on a full disk.
    let limited = "trap '' XFSZ; ulimit -f 400; exec \"$0\" serve --listen 127.0.0.1:0 --data \"$1\"";
    let mut command = Command::new("sh");
    command.args(["-c", limited]).arg(env!("CARGO_BIN_EXE_nameservice")).arg(directory.path());
    let mut process = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(process.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    let url = line.split_whitespace().find(|word| word.starts_with("http://")).unwrap().trim_end_matches(',');
    // A request whose body does not arrive does not delay the end.
    let mut stalled = std::net::TcpStream::connect(url.trim_start_matches("http://")).unwrap();
    let begun = "POST /v1/ledgers HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: 100\r\n\r\n{";
    stalled.write_all(begun.as_bytes()).unwrap();
    let (mut created, mut codes) = (Vec::new(), Vec::new());
    while codes.last().is_none_or(|code| *code == 0) && codes.len() < 200 {
        let name = format!("a{}", codes.len());
        let (code, _, _) = run(&["--url", url], &format!("create {name}"));
        created.extend((code == 0).then_some(name));
        codes.push(code);
    }
    let status = process.wait().unwrap();
    let mut output = String::new();
    process.stderr.take().unwrap().read_to_string(&mut output).unwrap();
    assert_eq!(status.code(), Some(1), "{output}");
    assert!(output.contains("so that its supervisor restarts it"), "{output}");
    assert!(output.contains("requests were still running after 2s"), "{output}");
    assert!(!created.is_empty());
    let data = directory.path().to_str().unwrap();
    for name in created {
        assert_eq!(run(&["--data", data], &format!("show {name}")).0, 0, "{name}");
    }
}

#[test]
fn a_service_says_that_its_data_is_new_and_does_not_say_so_again() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data");
    for is_new in [true, false] {
        let mut command = program();
        command.args(["serve", "--listen", "127.0.0.1:0", "--data"]).arg(&data);
        let mut process = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut greeting = String::new();
        BufReader::new(process.stdout.take().unwrap()).read_line(&mut greeting).unwrap();
        process.kill().unwrap();
        process.wait().unwrap();
        let mut output = String::new();
        process.stderr.take().unwrap().read_to_string(&mut output).unwrap();
        let expected = format!("no nameservice data was found in {}: starting empty", data.display());
        assert_eq!(output.contains(&expected), is_new, "{output}");
    }
}

#[test]
fn a_bad_base_path_or_two_ways_to_recognise_callers_are_bad_usage() {
    for line in [
        "serve --base-path names",
        "serve --base-path /a//b",
        "serve --dev-token a --insecure",
        "serve --dev-token a --jwks keys.json --any-issuer --any-audience",
        "serve --log-format xml",
    ] {
        assert_eq!(run(&[], line).0, 2, "{line}");
    }
}

/// Returns an answer as it comes: its head, and its body.
fn get(address: &str, path: &str) -> String {
    let mut stream = std::net::TcpStream::connect(address).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn what_a_service_has_done_is_counted_at_metrics() {
    let directory = tempfile::tempdir().unwrap();
    let service = spawn_serve(directory.path());
    let push = |id: &str| run(&["--url", &service.url], &format!("push head mydb {id} 1 --monotonic")).0;
    assert_eq!(run(&["--url", &service.url], "create mydb").0, 0);
    assert_eq!((push(ID), push(ID), push(OTHER)), (0, 0, 9));
    assert_ne!(run(&["--url", &service.url], "show nobody").0, 0);

    let text = get(service.url.trim_start_matches("http://"), "/metrics");
    assert!(text.contains("content-type: text/plain; version=0.0.4; charset=utf-8"), "{text}");
    let heads = "nameservice_requests_total{operation=\"PUT /v1/heads/{address}\",outcome=";
    for line in [
        format!("{heads}\"updated\"}} 1"),
        format!("{heads}\"replayed\"}} 1"),
        format!("{heads}\"stale\"}} 1"),
        "nameservice_requests_total{operation=\"GET /v1/records/{address}\",outcome=\"unknown_record\"} 1".to_owned(),
        // That for the metrics itself.
        "nameservice_requests_in_flight 1".to_owned(),
        // The record, its status, and its head.
        "nameservice_feed_position 3".to_owned(),
        "nameservice_log_commit_commands_count 2".to_owned(),
    ] {
        assert!(text.lines().any(|shown| shown == line), "{line}:\n{text}");
    }
    assert!(!text.contains("mydb") && !text.contains("nobody"), "addresses of records are no labels: {text}");
}

#[test]
fn a_service_over_a_table_measures_its_requests_there_its_leases_and_the_stream() {
    let engine = Engine::start();
    let service = spawn(&["--listen", "127.0.0.1:0", "--endpoint-url", engine.url()]);
    let target = ["--url", service.url.as_str()];
    for (line, code) in [
        ("create mydb", 0),
        ("lease acquire mydb --name index_lock --holder one", 0),
        ("lease refresh mydb --name index_lock --holder one --lease-token 1", 0),
        ("lease acquire mydb --name index_lock --holder two", 3),
        ("push head mydb ID 1 --monotonic --lease-name index_lock --lease-holder one --lease-token 7", 3),
        ("lease release mydb --name index_lock --holder one --lease-token 1", 0),
        ("lease release mydb --name index_lock --holder one --lease-token 1", 3),
    ] {
        assert_eq!(run(&target, line).0, code, "{line}");
    }
    let metrics = || get(service.url.trim_start_matches("http://"), "/metrics");
    eventually("the feed has what was written", || metrics().contains("\nnameservice_feed_position 5\n"));
    let text = metrics();
    for line in [
        "nameservice_leases_total{outcome=\"held\"} 2",
        "nameservice_leases_total{outcome=\"busy\"} 1",
        "nameservice_leases_total{outcome=\"lost\"} 2",
        "nameservice_leases_total{outcome=\"released\"} 1",
        "nameservice_feed_batch_changes_sum 5",
    ] {
        assert!(text.lines().any(|shown| shown == line), "{line}:\n{text}");
    }
    assert!(text.contains("\nnameservice_feed_lag_seconds_count "), "{text}");
    // Five items at two units each, as it is a transaction, and their indexes.
    let created = "nameservice_store_capacity_units_sum{operation=\"create a ledger\"} ";
    let units = text.lines().find_map(|line| line.strip_prefix(created)?.parse::<f64>().ok());
    assert!(units.is_some_and(|units| units >= 10.0), "{text}");
}

#[test]
fn metrics_have_a_listener_of_their_own_where_one_is_named() {
    let directory = tempfile::tempdir().unwrap();
    let free = free_address();
    let _service = spawn_serve_with(directory.path(), &["--listen", "127.0.0.1:0", "--metrics", &free]);
    let text = get(&free, "/metrics");
    assert!(text.contains("nameservice_feed_position 0"), "{text}");
    assert!(get(&free, "/v1/health").starts_with("HTTP/1.1 404"));
}

#[test]
fn a_service_that_measures_nothing_has_no_metrics() {
    let directory = tempfile::tempdir().unwrap();
    let service = spawn_serve_with(directory.path(), &["--listen", "127.0.0.1:0", "--no-metrics"]);
    assert!(get(service.url.trim_start_matches("http://"), "/metrics").starts_with("HTTP/1.1 404"));
    assert_eq!(run(&[], "serve --memory --no-metrics --metrics 127.0.0.1:0").0, 2);
}
