//! Progress: a line on a terminal, and nothing elsewhere.

use nameservice_model::Address;

use super::*;

/// More than a page of a list.
const RECORDS: u64 = 1_001;

/// A directory with this many ledgers.
fn filled() -> tempfile::TempDir {
    let parent = tempfile::tempdir().unwrap();
    let data = format!("embedded:{}", parent.path().join("data").display());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let names = nameservice::connect(&data).await.unwrap();
        let mut creating = tokio::task::JoinSet::new();
        for n in 0..RECORDS {
            let names = names.clone();
            creating.spawn(async move { names.create_ledger(format!("l{n:04}")).await.unwrap() });
        }
        let created = creating.join_all().await;
        assert!(created.iter().any(|record| record.address == Address::parse("l1000").unwrap()));
    });
    parent
}

/// What a terminal is sent: both streams.
fn on_a_terminal(directory: &Path, line: &str) -> String {
    let program = env!("CARGO_BIN_EXE_nameservice");
    let mut command = Command::new("script");
    command.args(["--quiet", "--return", "--command", &format!("{program} {line}"), "/dev/null"]);
    command.current_dir(directory).env("TERM", "xterm").env("NO_COLOR", "1").stdin(Stdio::null());
    let Output { status, stdout, stderr } = command.output().unwrap();
    let text = String::from_utf8(stdout).unwrap();
    assert!(status.success(), "{line}: {text}{}", String::from_utf8_lossy(&stderr));
    text
}

#[test]
fn what_takes_long_shows_count_and_rate_on_a_terminal_and_with_a_total_percentage_and_what_is_left() {
    let parent = filled();
    let counted = "1,001 of 1,001 records, 100 %";
    for (line, words) in [
        ("--data data backup copy", &["copying data: █", "KiB of ", " %, ", "/s, ", "left"][..]),
        ("--data copy doctor", &["examining copy", " rows, 100 %", "/s, ", "left"]),
        (
            "copy embedded:data embedded:other",
            &["copying", counted, "/s, ", "left; 1001 written", "comparing both sides"],
        ),
        ("compare embedded:data embedded:other", &["comparing", counted, "/s, ", "left"]),
        ("--data data export all.jsonl", &["exporting", counted, "/s, ", "left"]),
        ("--data imported import all.jsonl", &["copying: 1,001 records, ", "/s, ", "; 1001 written"]),
        ("copy embedded:data file:///DIR/files", &["copying", counted]),
        ("--at file:///DIR/files doctor", &["examining", counted]),
        ("--data data snapshot --format csv", &["reading: 1,000 records, ", "/s, "]),
        ("--data data remote add origin embedded:other", &[]),
        ("--data data remote fetch origin", &["fetching origin: 1,001 records, ", "/s, "]),
        ("--data data remote pull origin", &["fetching origin", "pulling from origin: 1,001 records, "]),
    ] {
        let line = line.replace("DIR", parent.path().to_str().unwrap());
        let shown = on_a_terminal(parent.path(), &line);
        for words in words {
            assert!(shown.contains(words), "{line}: `{words}` in {shown:?}");
        }
    }
}

#[test]
fn neither_a_pipe_nor_a_program_is_shown_any_progress() {
    let parent = filled();
    let data = parent.path().join("data");
    let data = data.to_str().unwrap();
    for (n, line) in ["backup TO", "doctor", "export TO", "snapshot --format csv"].into_iter().enumerate() {
        let line = line.replace("TO", parent.path().join(n.to_string()).to_str().unwrap());
        let (code, _, stderr) = run(&["--data", data], &line);
        assert_eq!((code, stderr.as_str()), (0, ""), "{line}");
    }
    for line in ["--data data backup copy --json", "--data copy doctor --json", "--data data snapshot --json"] {
        let shown = on_a_terminal(parent.path(), line);
        assert!(serde_json::from_str::<Value>(&shown).is_ok(), "{line}: {shown:?}");
    }
}
