//! Commands that show: `lease list`, `top`, `diff`, lists in every format, manual pages.

use serde_json::Value;

use super::*;

/// A directory with two ledgers, a graph source and a lease.
fn filled() -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    let target = ["--data", directory.path().to_str().unwrap()];
    for line in [
        "create mydb",
        "push head mydb ID 5 --expect-unborn",
        "push head mydb OTHER 9 --monotonic",
        "create tenant/a,b",
        "publish search --source-type f:Bm25Index --config {\"k\":1} --depends-on mydb",
        "lease acquire mydb --name index_lock --holder indexer-7 --target-t 9 --ttl 1h",
    ] {
        let (code, _, stderr) = run(&target, line);
        assert_eq!(code, 0, "{line}: {stderr}");
    }
    directory
}

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

#[test]
fn every_list_is_printed_as_a_table_json_lines_of_json_and_csv() {
    let directory = filled();
    let target = ["--data", directory.path().to_str().unwrap()];
    for (line, member, entries) in [
        ("list", "records", 3),
        ("list --summary", "records", 3),
        ("snapshot", "records", 3),
        ("branch list mydb", "branches", 1),
        ("lease list", "leases", 1),
        ("changes --concern head", "changes", 2),
        ("history mydb --concern head", "changes", 2),
    ] {
        let form = |format: &str| {
            let (code, stdout, stderr) = run(&target, &format!("{line} --format {format}"));
            assert_eq!((code, stderr.as_str()), (0, ""), "{line} {format}");
            stdout
        };
        // The remaining time of a lease decreases meanwhile.
        let timeless = |mut entries: Value| {
            for entry in entries.as_array_mut().into_iter().flatten() {
                entry.as_object_mut().map(|members| members.remove("seconds_left"));
            }
            entries
        };
        let document = json(&form("json"));
        assert_eq!(document[member].as_array().map(Vec::len), Some(entries), "{line}");
        let shown = timeless(document[member].clone());
        assert_eq!(shown, timeless(json(&run(&target, &format!("{line} --json")).1)[member].take()), "{line}");
        let lines: Vec<Value> = form("ndjson").lines().map(json).collect();
        assert_eq!(timeless(Value::from(lines)), shown, "{line}");
        let table = form("csv");
        let mut rows = csv::Reader::from_reader(table.as_bytes());
        let titles = rows.headers().unwrap().clone();
        let address = titles.iter().position(|title| title == "address").unwrap();
        let shown: Vec<String> = rows.records().map(|row| row.unwrap()[address].to_owned()).collect();
        let expected: Vec<_> =
            document[member].as_array().unwrap().iter().map(|entry| entry["address"].as_str().unwrap()).collect();
        assert_eq!(shown, expected, "{line}");
        let is_time = |word: &str| word.contains(':') && word.chars().all(|c| c == ':' || c.is_ascii_digit());
        let table = |text: &str| text.split_whitespace().filter(|word| !is_time(word)).collect::<Vec<_>>().join(" ");
        assert_eq!(table(&form("table")), table(&run(&target, line).1), "{line}");
        assert_eq!(run(&target, &format!("{line} --json --format csv")).0, 2, "{line}");
    }
    let titles = |line: &str| run(&target, &format!("{line} --format csv")).1.lines().next().map(str::to_owned);
    assert_eq!(titles("list nothing"), titles("list"));
    let (code, stdout, stderr) = run(&target, "list --limit 2 --format ndjson");
    assert_eq!((code, stdout.lines().count()), (0, 2));
    assert!(stderr.contains("--cursor"), "{stderr}");
}

#[test]
fn a_list_of_leases_shows_who_holds_what_and_for_how_long() {
    let directory = filled();
    let target = ["--data", directory.path().to_str().unwrap()];
    let (code, stdout, _) = run(&target, "lease list");
    assert_eq!(code, 0);
    let row: Vec<_> = stdout.lines().nth(1).unwrap().split_whitespace().collect();
    assert_eq!(row[..5], ["indexer-7", "mydb:main", "index_lock", "t", "9"], "{stdout}");
    assert!(row[5] == "1:00:00" || row[5].starts_with('5'), "{stdout}");
    for line in ["lease list --holder another", "lease list --prefix tenant"] {
        assert_eq!(run(&target, line).1, "no lease is held\n", "{line}");
    }
}

#[test]
fn a_lease_that_another_holds_is_waited_for() {
    let directory = filled();
    let service = spawn_serve(directory.path());
    let target = ["--url", service.url.as_str()];
    let line = "lease acquire mydb --name index_lock --holder two --wait 20s";
    assert_eq!(run(&target, "lease acquire mydb --name index_lock --holder two --wait 0").0, 3);
    let (code, stdout, stderr) = std::thread::scope(|scope| {
        let waiting = scope.spawn(|| run(&target, line));
        let released = run(&target, "lease release mydb --name index_lock --holder indexer-7 --lease-token 1");
        assert_eq!(released.0, 0, "{}", released.2);
        waiting.join().unwrap()
    });
    assert!(code == 0 && stdout.contains("by two"), "{stdout}{stderr}");
}

#[test]
fn diff_shows_what_has_changed_between_two_positions() {
    let directory = filled();
    let target = ["--data", directory.path().to_str().unwrap()];
    let history = json(&run(&target, "history mydb --oldest-first --json").1);
    let positions: Vec<u64> = history["changes"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|change| change["concern"] == "head")
        .map(|change| change["position"].as_u64().unwrap())
        .collect();
    let (first, second) = (positions[0], positions[1]);
    let (code, stdout, _) = run(&target, &format!("diff mydb {first} {second}"));
    assert_eq!(code, 0);
    assert!(stdout.contains(&format!("head: {ID}@5 -> {OTHER}@9")), "{stdout}");
    assert!(!stdout.contains("status"), "{stdout}");
    let since = json(&run(&target, &format!("diff mydb {second} --json")).1);
    let paths: Vec<_> =
        since["differences"].as_array().unwrap().iter().map(|it| it["path"].as_str().unwrap()).collect();
    assert!(paths.contains(&"payload.index_lock.holder") && paths.contains(&"payload.state"), "{since}");
    assert_eq!(run(&target, &format!("diff mydb {second} {first}")).0, 2);
    assert_eq!(run(&target, "diff nobody 1 2").0, 4);
}

#[test]
fn top_without_a_terminal_is_printed_once() {
    let directory = filled();
    let target = ["--data", directory.path().to_str().unwrap()];
    let (code, stdout, stderr) = run(&target, "top");
    assert_eq!(code, 0, "{stderr}");
    for words in ["ledgers 2   graph sources 1", "LEASES 1", "indexer-7", "INDEXES BEHIND 1", "head 9"] {
        assert!(stdout.contains(words), "{words}\n{stdout}");
    }
    assert!(!stdout.contains('\u{1b}'), "{stdout:?}");
    let document = json(&run(&target, "top --json --prefix my").1);
    assert_eq!((&document["ledgers"], &document["behind"][0]["head_t"]), (&Value::from(1), &Value::from(9)));
}

#[test]
fn every_command_has_a_manual_page() {
    let (code, page, _) = run(&[], "generate man");
    assert!(code == 0 && page.contains(".TH") && page.contains("nameservice"), "{page}");
    let directory = tempfile::tempdir().unwrap();
    let out = directory.path().join("man1");
    assert_eq!(run(&[], &format!("generate man --out {}", out.display())).0, 0);
    for name in ["nameservice.1", "nameservice-serve.1", "nameservice-push-head.1", "nameservice-lease-run.1"] {
        let page = std::fs::read_to_string(out.join(name)).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert!(page.contains("NAME") && page.contains("OPTIONS"), "{name}: {page}");
    }
    for shell in ["bash", "zsh", "fish"] {
        let (code, script, _) = run(&[], &format!("generate completions {shell}"));
        assert!(code == 0 && script.contains("protect"), "{shell}");
    }
}

#[test]
fn what_is_piped_has_no_colours() {
    let directory = filled();
    let target = ["--data", directory.path().to_str().unwrap()];
    for line in ["list", "history mydb", "show nobody", "doctor"] {
        let (_, stdout, stderr) = run(&target, line);
        assert!(!stdout.contains('\u{1b}') && !stderr.contains('\u{1b}'), "{line}: {stdout:?} {stderr:?}");
    }
}
