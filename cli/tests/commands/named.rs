//! Which nameservice a command is for: none ignores what names it.

use std::{
    fs,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use clap::CommandFactory as _;
use nameservice_cli::args::Cli;

use super::*;

/// What a command does with a service that `--url` or `NAMESERVICE_URL` names.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Does {
    /// It asks that service.
    Ask,
    /// It rejects both, since it is for data.
    Reject,
    /// It rejects the option, since other arguments name its places, or it has none. The variable is for other commands.
    RejectOption,
    /// It changes a list that is kept beside the data, or reads what is in it.
    Keep,
    /// It asks something else first.
    Elsewhere,
}
use Does::{Ask, Elsewhere, Keep, Reject, RejectOption};

/// Every command, in the order in which they run, with arguments. `HERE` is a directory with data.
const COMMANDS: &[(&str, &str, Does)] = &[
    ("serve", "--listen 127.0.0.1:0", RejectOption),
    ("init", "", Reject),
    ("create", "mydb", Ask),
    ("publish", "words --source-type f:Bm25Index --config {}", Ask),
    ("show", "mydb", Ask),
    ("list", "", Ask),
    ("search", "words", Ask),
    ("aws search-index init", "http://127.0.0.1:1", RejectOption),
    ("aws search-index rebuild", "http://127.0.0.1:1", Elsewhere),
    ("snapshot", "", Ask),
    ("watch", "", Ask),
    ("changes", "", Ask),
    ("history", "mydb", Ask),
    ("diff", "mydb 1 2", Ask),
    ("push head", "mydb ID 1 --monotonic", Ask),
    ("push index", "mydb ID 1 --monotonic", Ask),
    ("status", "mydb", Ask),
    ("config", "mydb", Ask),
    ("branch create", "mydb:dev --commit ID@1", Ask),
    ("branch list", "mydb", Ask),
    ("branch drop", "mydb:dev --yes", Ask),
    ("lease acquire", "mydb --name index_lock --holder a", Ask),
    ("lease refresh", "mydb --name index_lock --holder a --lease-token 1", Ask),
    ("lease release", "mydb --name index_lock --holder a --lease-token 1", Ask),
    ("lease show", "mydb", Ask),
    ("lease list", "", Ask),
    ("lease run", "--name index_lock --holder a mydb -- true", Ask),
    ("top", "--once", Ask),
    ("transaction", "HERE/transaction.json", Ask),
    ("retract", "mydb", Ask),
    ("restore", "mydb", Ask),
    ("protect", "mydb", Ask),
    ("unprotect", "mydb", Ask),
    ("purge", "mydb --yes", Ask),
    ("reset", "mydb --head unborn --index unborn --yes", Ask),
    ("health", "", Ask),
    ("doctor", "", Ask),
    ("backup", "HERE/saved", Reject),
    ("restore-backup", "HERE/data", Reject),
    ("copy", "embedded:HERE/data embedded:HERE/other", RejectOption),
    ("compare", "embedded:HERE/data embedded:HERE/data", RejectOption),
    ("export", "-", Ask),
    ("import", "HERE/records.jsonl", Ask),
    ("remote add", "origin embedded:HERE/data", Keep),
    ("remote list", "", Keep),
    ("remote fetch", "origin", Keep),
    ("remote status", "origin", Ask),
    ("remote pull", "origin", Ask),
    ("remote push", "origin", Ask),
    ("remote remove", "origin", Keep),
    ("archive", "file://HERE/archive", Ask),
    ("aws deadletters list", "http://127.0.0.1:1/queue", RejectOption),
    ("aws deadletters replay", "http://127.0.0.1:1/queue --to http://127.0.0.1:1/source", RejectOption),
    ("aws deadletters drop", "http://127.0.0.1:1/queue --all", RejectOption),
    ("token keys", "--key HERE/key --jwks HERE/jwks", RejectOption),
    ("token mint", "--key HERE/key --subject a --scope read", RejectOption),
    ("login", "--issuer http://127.0.0.1:1 --client-id a", RejectOption),
    ("generate openapi", "", RejectOption),
    ("generate graphql-schema", "", RejectOption),
    ("generate completions", "bash", RejectOption),
    ("generate man", "", RejectOption),
];

/// Returns the commands below one, without those that only have others below them.
fn commands(of: &clap::Command, path: &str) -> Vec<String> {
    let below = of.get_subcommands().flat_map(|command| {
        let path = format!("{path} {}", command.get_name());
        match command.has_subcommands() {
            true => commands(command, &path),
            false => vec![path.trim().to_owned()],
        }
    });
    below.collect()
}

#[test]
fn every_command_asks_the_service_that_is_named_or_says_that_it_does_not() {
    let named: Vec<&str> = COMMANDS.iter().map(|(command, ..)| *command).collect();
    let unnamed: Vec<String> =
        commands(&Cli::command(), "").into_iter().filter(|command| !named.contains(&command.as_str())).collect();
    assert!(unnamed.is_empty(), "name them in COMMANDS: {unnamed:?}");

    let directory = tempfile::tempdir().unwrap();
    let here = directory.path().to_str().unwrap();
    let hidden = format!("{here}/.nameservice");
    let local = ["--data", hidden.as_str()];
    // What a command that ignores the service would find.
    assert_eq!(run(&local, "create mydb").0, 0);
    let data = format!("{here}/data");
    assert_eq!(run(&["--data", &data], "create other").0, 0);
    assert_eq!(run(&["--data", &data], &format!("export {here}/records.jsonl")).0, 0);
    let push = serde_json::json!({"op": "push_head", "address": "mydb", "new": {"id": ID, "t": 1}});
    let transaction = serde_json::json!({ "operations": [push] }).to_string();
    fs::write(directory.path().join("transaction.json"), transaction).unwrap();

    let asked = Arc::new(AtomicUsize::new(0));
    let count = asked.clone();
    let url = answering(move |_| {
        count.fetch_add(1, Ordering::SeqCst);
        (404, String::new())
    });
    for (command, arguments, does) in COMMANDS {
        let arguments = arguments.replace("HERE", here);
        let words: Vec<String> = command.split(' ').chain(arguments.split_whitespace()).map(word).collect();
        let run = |by_option: bool| {
            let (before, mut process) = (asked.load(Ordering::SeqCst), program());
            process.current_dir(directory.path());
            if by_option {
                process.args(["--url", &url]);
            } else {
                process.env("NAMESERVICE_URL", &url);
            }
            let done = process.args(&words).output().unwrap();
            let stderr = String::from_utf8_lossy(&done.stderr).into_owned();
            (done.status.code(), stderr, asked.load(Ordering::SeqCst) > before)
        };
        match does {
            Ask => {
                for by_option in [true, false] {
                    let (_, stderr, was_asked) = run(by_option);
                    assert!(was_asked, "{command}, by the option: {by_option}: {stderr}");
                }
            }
            Reject | RejectOption => {
                let (code, stderr, was_asked) = run(true);
                assert!(code == Some(2) && stderr.contains("--url") && !was_asked, "{command}: {stderr}");
                if *does == Reject {
                    let (code, stderr, was_asked) = run(false);
                    let is_named = stderr.contains("NAMESERVICE_URL names the service http://");
                    assert!(code == Some(2) && is_named && !was_asked, "{command}: {stderr}");
                }
            }
            Keep => {
                let (code, stderr, _) = run(true);
                assert_eq!(code, Some(0), "{command}: {stderr}");
            }
            Elsewhere => {}
        }
    }
    assert!(!Path::new(&format!("{here}/saved")).exists(), "no other data was copied");
    assert_eq!(run(&local, "show mydb").0, 0);
}

#[test]
fn a_table_is_named_together_with_where_it_is() {
    for place in [&[][..], &["--data", "nowhere"][..]] {
        for line in ["serve --table names", "list --table names", "doctor --table names"] {
            let (code, _, stderr) = run(place, line);
            assert!(code == 2 && stderr.contains("--table"), "{place:?} {line}: {stderr}");
        }
    }
}
