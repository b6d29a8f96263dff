//! Between two places: `copy`, `compare`, `export`, `import`, `remote`.

use std::process::Stdio;

use serde_json::Value;

use super::{ID, OTHER, answering, program, run, spawn, spawn_serve};

/// A directory with records of both kinds, and one for copies of it.
struct Places {
    parent: tempfile::TempDir,
}

impl Places {
    fn new() -> Self {
        let places = Self { parent: tempfile::tempdir().unwrap() };
        let data = places.path("data");
        let target = ["--data", data.as_str()];
        for line in [
            "create mydb",
            "push head mydb ID 5 --monotonic",
            "push index mydb OTHER 4 --monotonic",
            "branch create mydb:dev",
            "config mydb {\"a\":1}",
            "status mydb error --meta {\"why\":\"disk\"}",
            "create search --source-type f:Bm25Index --depends-on mydb:dev",
            "create old",
            "retract old",
        ] {
            let (code, stdout, stderr) = run(&target, line);
            assert_eq!(code, 0, "{line}: {stdout}{stderr}");
        }
        places
    }

    fn path(&self, name: &str) -> String {
        self.parent.path().join(name).to_str().unwrap().to_owned()
    }

    fn place(&self, name: &str) -> String {
        format!("embedded:{}", self.path(name))
    }
}

#[test]
fn a_copy_is_the_same_and_can_be_repeated() {
    let places = Places::new();
    let (from, to) = (places.place("data"), places.place("copy"));
    let (code, stdout, stderr) = run(&[], &format!("copy {from} {to} --dry-run"));
    assert!(code == 0 && stdout.contains("4 would be copied") && stdout.contains("mydb:dev"), "{stdout}{stderr}");
    let (code, stdout, stderr) = run(&[], &format!("copy {from} {to}"));
    assert!(code == 0 && stdout.contains("4 copied, 0 already there"), "{stdout}{stderr}");
    assert!(run(&[], &format!("copy {from} {to}")).1.contains("0 copied, 4 already there"));
    let (code, stdout, _) = run(&[], &format!("compare {from} {to}"));
    assert_eq!((code, stdout.trim()), (0, "4 the same"));
    assert!(run(&["--data", &places.path("copy")], "show search").1.contains("mydb:dev"));
    // What is newer at the target is left, and reported.
    assert_eq!(run(&["--data", &places.path("copy")], "push head mydb OTHER 9 --monotonic").0, 0);
    let (code, stdout, _) = run(&[], &format!("copy {from} {to}"));
    assert!(code == 3 && stdout.contains("1 newer at the target, left") && stdout.contains("mydb:main"), "{stdout}");
    // Both values as `reset` and `push` take them.
    let (code, stdout, _) = run(&[], &format!("compare {from} {to}"));
    assert!(code == 3 && stdout.contains(&format!("head: {ID}@5 and {OTHER}@9")), "{stdout}");
    let (code, stdout, _) = run(&[], &format!("compare {from} {to} --json"));
    let compared: Value = serde_json::from_str(&stdout).unwrap();
    assert_eq!((code, &compared["newer_there"]["records"][0]["differences"][0]["concern"]), (3, &"head".into()));
    let (code, stdout, stderr) = run(&[], &format!("copy {from} {to} --force mydb"));
    assert!(code == 0 && stdout.contains("1 copied"), "{stdout}{stderr}");
    assert!(run(&["--data", &places.path("copy")], "show mydb").1.contains("@5"));
}

#[test]
fn a_rejected_id_names_the_option_that_copies_it_and_then_the_doctor_finds_nothing_to_do() {
    let places = Places::new();
    let (from, files) = (places.place("data"), format!("file://{}", places.path("files")));
    let (code, stdout, stderr) = run(&[], &format!("copy {from} {files}"));
    assert!(code == 3 && stdout.contains("3 rejected by the target"), "{stdout}{stderr}");
    let named = stdout.lines().find(|line| line.contains("mydb:main: head.id")).unwrap();
    assert!(named.contains("`--allow-foreign`"), "{stdout}{stderr}");
    let (code, stdout, stderr) = run(&[], &format!("copy {from} {files} --allow-foreign"));
    assert!(code == 0 && stdout.contains("3 copied, 1 already there"), "{stdout}{stderr}");
    let (code, stdout, stderr) = run(&["--at", &files, "--json"], "doctor");
    let report: Value = serde_json::from_str(&stdout).unwrap();
    assert_eq!((code, &report["healthy"]), (0, &Value::Bool(true)), "{stdout}{stderr}");
    let found = report["findings"].as_array().unwrap();
    let all_are_notes = found.iter().all(|found| found["code"] == "id-foreign" && found["severity"] == "note");
    assert!(found.len() == 3 && all_are_notes, "{stdout}");
}

#[test]
fn a_dump_goes_through_a_file_and_through_a_pipe() {
    let places = Places::new();
    let (data, file) = (places.path("data"), places.path("all.jsonl"));
    let (code, stdout, stderr) = run(&["--data", &data], &format!("export {file}"));
    assert!(code == 0 && stdout.contains("wrote 4 records"), "{stdout}{stderr}");
    let other = places.path("other");
    let (code, stdout, _) = run(&["--data", &other], &format!("import {file}"));
    assert!(code == 0 && stdout.contains("4 copied"), "{stdout}");
    assert_eq!(run(&[], &format!("compare dump:{file} embedded:{other}")).0, 0);
    assert_eq!(run(&[], &format!("compare embedded:{other} dump:{file}")).0, 0);
    let mut export = program().args(["--data", &data, "export", "-"]).stdout(Stdio::piped()).spawn().unwrap();
    let piped = places.path("piped");
    let import =
        program().args(["--data", &piped, "import", "-"]).stdin(export.stdout.take().unwrap()).output().unwrap();
    assert!(export.wait().unwrap().success() && import.status.success());
    assert_eq!(run(&[], &format!("compare embedded:{data} embedded:{piped}")).0, 0);
    // A truncated file is rejected before anything is written.
    let text = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, &text[..text.len() / 2]).unwrap();
    let nothing = places.path("nothing");
    let (code, _, stderr) = run(&["--data", &nothing], &format!("import {file}"));
    assert!(code == 2 && stderr.contains("cut off"), "{code} {stderr}");
    assert!(!std::path::Path::new(&nothing).exists());
}

#[test]
fn a_place_that_cannot_be_used_is_named() {
    let places = Places::new();
    let (data, lost) = (places.place("data"), places.place("lost"));
    for (line, code, words) in [
        (format!("copy {lost} {data}"), 2, "nameservice init"),
        (format!("copy {data} http://127.0.0.1:1"), 7, "127.0.0.1:1"),
        (format!("copy http://127.0.0.1:1 {data}"), 7, "127.0.0.1:1"),
        (format!("compare dump:x {lost}"), 2, "cannot use x"),
        ("compare dump:x dump:y".into(), 2, "two dumps"),
        (format!("copy {data} ftp://x"), 2, "does not name a nameservice"),
        (format!("copy {data} dump:x --follow"), 2, "--follow"),
    ] {
        let (found, stdout, stderr) = run(&[], &line);
        assert!(found == code && stderr.contains(words), "{line}: {found} {stdout}{stderr}");
    }
}

#[test]
fn a_remote_that_is_no_nameservice_or_takes_another_token_changes_nothing() {
    let places = Places::new();
    let (data, closed) = (places.path("data"), places.path("closed"));
    let site = answering(|_| (200, "<html>Hello</html>".to_owned()));
    let service = spawn(&["--listen", "127.0.0.1:0", "--dev-token", "right", "--data", &closed]);
    let target = ["--data", data.as_str()];
    let (site, service) = (site.as_str(), service.url.as_str());
    for (line, code, words) in [
        (format!("copy embedded:{data} {site}"), 1, "is this the URL of a nameservice"),
        (format!("copy {site} embedded:{data}"), 1, "is this the URL of a nameservice"),
        (format!("copy embedded:{data} {service} --to-token wrong"), 5, "token"),
        (format!("copy {service} embedded:{data} --from-token wrong"), 5, "token"),
        (format!("remote add site {site}"), 0, ""),
        ("remote pull site".into(), 1, "is this the URL of a nameservice"),
        (format!("remote add closed {service}"), 0, ""),
        ("remote pull closed".into(), 5, "token"),
        ("remote push closed".into(), 3, "4 rejected"),
    ] {
        let target: &[&str] = if line.starts_with("remote") { &target } else { &[] };
        let (found, stdout, stderr) = run(target, &line);
        let printed = format!("{stdout}{stderr}");
        assert!(found == code && printed.contains(words), "{line}: {found} {printed}");
    }
    assert_eq!(run(&["--url", service, "--token", "right"], "list").1.trim(), "no records");
    let (code, stdout, stderr) = run(&[], &format!("copy embedded:{data} {service} --to-token right"));
    assert!(code == 0 && stdout.contains("4 copied"), "{stdout}{stderr}");
    // A missing source directory is not created.
    let lost = places.path("lost");
    let (code, _, stderr) = run(&[], &format!("copy file://{lost} embedded:{data}"));
    assert!(code != 0 && stderr.contains("lost") && !std::path::Path::new(&lost).exists(), "{code} {stderr}");
}

#[test]
fn remotes_are_fetched_pulled_and_pushed() {
    let places = Places::new();
    let service = spawn_serve(places.path("data").as_ref());
    let (local, remote) = (places.path("local"), ["--url", service.url.as_str()]);
    let target = ["--data", local.as_str()];
    for (line, code, words) in [
        ("remote pull origin", 2, "there is no remote `origin`"),
        (&format!("remote add origin {}", service.url), 0, "added origin"),
        ("remote add origin http://x", 2, "remove it first"),
        ("remote list", 0, "origin"),
        ("remote fetch origin", 0, "4 records, 4 changed, 0 gone"),
        ("remote pull origin", 0, "4 pulled"),
        ("remote status origin", 0, "4 up to date"),
        ("push head mydb OTHER 8 --monotonic", 0, "@8"),
        ("remote status origin", 0, "1 ahead of the remote"),
        ("remote push origin --dry-run", 0, "1 would be pushed"),
        ("remote push origin", 0, "1 pushed"),
        ("push head mydb:dev OTHER 9 --monotonic", 0, "@9"),
    ] {
        let (found, stdout, stderr) = run(&target, line);
        let printed = if code == 0 { &stdout } else { &stderr };
        assert!(found == code && printed.contains(words), "{line}: {found} {stdout}{stderr}");
    }
    assert!(run(&remote, "show mydb").1.contains("@8"));
    // A push without a fetch of the current value writes nothing.
    assert_eq!(run(&remote, "push head mydb:dev ID 7 --monotonic").0, 0);
    let (code, stdout, _) = run(&target, "remote push origin");
    assert!(code == 3 && stdout.contains("fetch again") && stdout.contains("mydb:dev"), "{stdout}");
    assert!(run(&remote, "show mydb:dev").1.contains("@7"));
    let (code, stdout, _) = run(&target, "remote pull origin");
    assert!(code == 3 && stdout.contains("1 diverged"), "{stdout}");
    assert!(run(&target, "show mydb:dev").1.contains("@9"));
    let (code, stdout, _) = run(&target, "remote push origin --by-watermark");
    assert!(code == 0 && stdout.contains("1 pushed"), "{stdout}");
    assert_eq!(run(&target, "remote remove origin").0, 0);
    assert!(run(&target, "remote list").1.contains("no remotes"));
}

#[test]
fn a_read_waits_until_it_is_fresh_enough() {
    let places = Places::new();
    let service = spawn_serve(places.path("data").as_ref());
    let target = ["--url", service.url.as_str()];
    assert_eq!(run(&target, "show mydb --min-t 5").0, 0);
    let (code, _, stderr) = run(&target, "show mydb --min-t 6 --wait 1");
    assert!(code == 7 && stderr.contains("has not reached t 6"), "{code} {stderr}");
    let mut waiting = program()
        .args(["--url", &service.url, "show", "mydb", "--min-t", "42", "--wait", "15s"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    assert_eq!(run(&target, "push head mydb OTHER 42 --monotonic").0, 0);
    assert!(waiting.wait().unwrap().success());
    assert_eq!(run(&target, "show mydb --min-v 2 --concern status").0, 0);
    assert_eq!(run(&target, "show mydb --min-v 2").0, 2);
    assert_eq!(run(&target, "show mydb --min-t 1 --wait 21").0, 2);
}
