//! What people stumbled over on a terminal and in scripts: each is as the documentation says.

use super::*;

fn target() -> (Serving, Vec<String>) {
    let service = spawn(&["--listen", "127.0.0.1:0", "--memory"]);
    let target = vec!["--url".to_owned(), service.url.clone()];
    (service, target)
}

#[test]
fn a_list_shows_the_columns_of_the_console_and_a_pattern_reads_full_pages() {
    let (_service, target) = target();
    let target: Vec<&str> = target.iter().map(String::as_str).collect();
    for i in 0..30 {
        assert_eq!(run(&target, &format!("create {}{i:02}", if i % 10 == 0 { "wanted" } else { "other" })).0, 0);
    }
    assert_eq!(run(&target, "push head wanted00 ID 7 --monotonic").0, 0);
    let (_, table, _) = run(&target, "list wanted*");
    let titles: Vec<&str> = table.lines().next().unwrap().split_whitespace().collect();
    assert_eq!(titles, ["ADDRESS", "KIND", "STATE", "HEAD", "INDEX", "UPDATED"]);
    assert!(table.contains("t 7") && table.contains("ready"), "{table}");
    // Pages of records that match, from cursor to cursor: all of them, each once.
    let (mut seen, mut cursor) = (Vec::new(), String::new());
    loop {
        let (code, page, _) = run(&target, &format!("list wanted* --limit 2 --json {cursor}"));
        assert_eq!(code, 0, "{page}");
        let page: Value = serde_json::from_str(&page).unwrap();
        let records = page["records"].as_array().unwrap();
        assert!(records.len() <= 2, "{page}");
        // Whatever is in the line of the table.
        for (record, line) in records.iter().zip(table.lines().skip(1 + seen.len())) {
            let head = record["head"]["t"].as_i64().unwrap();
            let head = if head == 0 { "-".to_owned() } else { format!("t {head}") };
            let cells =
                [&record["address"], &record["kind"], &record["status"]["payload"]["state"], &record["updated_at"]];
            let cells = cells.map(|cell| cell.as_str().unwrap());
            assert!(cells.iter().all(|cell| line.contains(*cell)) && line.contains(&head), "{line} {record}");
            assert_eq!(record["index"]["t"], 0, "{record}");
        }
        seen.extend(records.iter().map(|record| record["address"].as_str().unwrap().to_owned()));
        let Some(next) = page["cursor"].as_str() else { break };
        cursor = format!("--cursor {next}");
    }
    assert_eq!(seen, ["wanted00:main", "wanted10:main", "wanted20:main"]);
    let requests = |line: &str| {
        let before = counted(&target);
        assert_eq!(run(&target, line).0, 0);
        counted(&target) - before
    };
    // One page, and one for the cursor; not one for each record.
    assert_eq!(requests("list wanted* --limit 1"), 2);
    assert_eq!(requests("list wanted* --limit 3"), 1, "the last requested record is the last of its page");
    assert_eq!(requests("list wanted*"), 1);
    assert_eq!(requests("list --limit 1"), 1);
}

/// How many lists the service has answered.
fn counted(target: &[&str]) -> u64 {
    let address = target[1].trim_start_matches("http://");
    let mut stream = std::net::TcpStream::connect(address).unwrap();
    write!(stream, "GET /metrics HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n").unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    let lists = "nameservice_requests_total{operation=\"GET /v1/records\",outcome=\"ok\"} ";
    text.lines().find_map(|line| line.strip_prefix(lists)?.parse().ok()).unwrap_or(0)
}

#[test]
fn a_lease_is_waited_for_as_long_as_the_command_line_says() {
    let (_service, target) = target();
    let target: Vec<&str> = target.iter().map(String::as_str).collect();
    assert_eq!(run(&target, "create mydb").0, 0);
    let take = "lease run --name index_lock --holder";
    for wait in ["--wait 20", "--wait 20s", "--wait=5m", "--wait"] {
        assert_eq!(run(&target, &format!("{take} a {wait} mydb -- true")).0, 0, "{wait}");
    }
    assert_eq!(run(&target, &format!("{take} a mydb --wait -- true")).0, 0);
    for wrong in ["--wait soon mydb", "--wait 20s", ""] {
        assert_eq!(run(&target, &format!("{take} a {wrong} -- true")).0, 2, "{wrong}");
    }
    assert_eq!(run(&target, "lease acquire mydb --name index_lock --holder b --ttl 1h").0, 0);
    let (code, _, stderr) = run(&target, &format!("{take} a --wait 1s mydb -- true"));
    assert!(code == 123 && stderr.contains("waiting") && stderr.contains("is locked by b"), "{stderr}");
}

#[test]
fn a_position_beyond_the_end_is_the_same_for_every_command() {
    let (_service, target) = target();
    let target: Vec<&str> = target.iter().map(String::as_str).collect();
    assert_eq!(run(&target, "create mydb").0, 0);
    for line in ["changes", "history mydb", "watch"] {
        let (code, _, stderr) = run(&target, &format!("{line} --after 99"));
        let named = "position 99 is beyond the end of the feed, which is at position 2: continue with --after 2";
        assert!(code == 8 && stderr.contains(named), "{line}: {stderr}");
    }
    // What follows a position begins with the next one, for each of them.
    assert_eq!(run(&target, "push head mydb ID 1 --monotonic").0, 0);
    for line in ["changes --after 2", "history mydb --after 2 --oldest-first", "watch --after 2 --count 1"] {
        let (code, stdout, stderr) = run(&target, line);
        assert_eq!((code, stdout.split_whitespace().next()), (0, Some("3")), "{line}: {stdout}{stderr}");
    }
    assert_eq!(run(&target, "history mydb --after 1").0, 0);
}

#[test]
fn every_value_that_is_printed_can_be_typed_as_the_expected_one() {
    let (_service, target) = target();
    let target: Vec<&str> = target.iter().map(String::as_str).collect();
    let printed = |line: &str, code: i32| {
        let (found, stdout, stderr) = run(&target, line);
        assert_eq!(found, code, "{line}: {stdout}{stderr}");
        format!("{stdout}{stderr}")
    };
    // What stands behind a title, up to the next blank.
    let row = |text: &str, title: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(title)).unwrap_or_else(|| panic!("{title}: {text}"));
        line.split_whitespace().next().unwrap().to_owned()
    };
    printed("create mydb", 0);
    let unborn = row(&printed("show mydb", 0), "head ");
    printed(&format!("push head mydb ID 1 --expect {unborn}"), 0);
    printed(&format!("push index mydb ID 1 --expect {}", row(&printed("show mydb", 0), "index ")), 0);
    // The last head of each output is the stored one, whether it is an answer, a list or the reason for a rejection.
    let mut t = 1;
    for (line, code) in [
        ("show mydb --concern head --min-t 1", 0),
        ("history mydb --concern head --limit 1", 0),
        ("changes mydb --concern head", 0),
        ("diff mydb 3", 0),
        ("push head mydb OTHER 90 --expect-unborn", 3),
        ("push head mydb OTHER 1 --monotonic", 9),
        ("branch create mydb:dev", 0),
    ] {
        let text = printed(line, code);
        let heads = text.lines().filter(|line| !line.trim_start().starts_with("index"));
        let value = heads.flat_map(str::split_whitespace).rfind(|word| word.contains('@'));
        let value = value.unwrap_or_else(|| panic!("{line}: {text}")).trim_end_matches(',');
        t += 1;
        printed(&format!("push head mydb ID {t} --expect {value}"), 0);
    }
    let head = row(&printed("show mydb", 0), "head ");
    for line in ["branch create mydb:fix --commit", "create copy --head", "reset copy --index unborn --yes --head"] {
        printed(&format!("{line} {head}"), 0);
    }
    // Indexes also have a revision; statuses and configurations have a version.
    printed("push index mydb OTHER 1 --allow-equal", 0);
    let number = |text: &str, title: &str, of: &str| {
        let line = text.lines().find(|line| line.starts_with(title)).unwrap();
        line.rsplit_once(of).unwrap_or_else(|| panic!("{of}: {text}")).1.trim_end_matches(')').to_owned()
    };
    let shown = printed("show mydb", 0);
    let (index, rev) = (row(&shown, "index "), number(&shown, "index ", "(rev "));
    printed(&format!("push index mydb ID 2 --expect {index} --expect-rev {rev}"), 0);
    for version in 0..2 {
        let shown = printed("show mydb", 0);
        let (status, config) = (number(&shown, "status ", "(v "), number(&shown, "config ", "(v "));
        printed(&format!("status mydb busy --expect-v {status}"), 0);
        printed(&format!(r#"config mydb {{"a":{version}}} --expect-v {config}"#), 0);
    }
}

#[test]
fn a_reader_that_closes_the_pipe_is_no_failure() {
    let (_service, target) = target();
    let url = target[1].as_str();
    for name in ["a", "b"] {
        assert_eq!(run(&["--url", url], &format!("create {name}")).0, 0);
    }
    let mut process =
        program().args(["--url", url, "export", "-"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(process.stdout.take());
    let mut stderr = String::new();
    process.stderr.take().unwrap().read_to_string(&mut stderr).unwrap();
    assert_eq!(process.wait().unwrap().code(), Some(0), "{stderr}");
}

#[test]
fn a_protected_record_says_which_command_unprotects_it() {
    let (_service, target) = target();
    let target: Vec<&str> = target.iter().map(String::as_str).collect();
    assert_eq!((run(&target, "create mydb").0, run(&target, "protect mydb").0), (0, 0));
    let (code, _, stderr) = run(&target, "retract mydb");
    assert!(code == 3 && stderr.contains("`nameservice unprotect`") && !stderr.contains("/v1/"), "{stderr}");
}
