//! `serve` with a token, below a path, with a log for programs.

use std::io::{BufRead as _, BufReader, Read as _};

use serde_json::Value;

use super::*;

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
    assert!(String::from_utf8_lossy(&done.stdout).contains("at t 1"));
    // The push of the banner is a compare-and-set: it does not overwrite what it has not seen.
    let again = shell(&[commands[0], commands[2]].join("\n"));
    assert!(again.status.success(), "the same value is stored already");

    let (code, _, stderr) = run(&["--url", url], "show mydb");
    assert!(code == 5 && stderr.contains("NAMESERVICE_TOKEN"), "{stderr}");
    let (code, _, _) = run(&["--url", url, "--token", "it's secret"], "show mydb");
    assert_eq!(code, 0);
    let root = url.trim_end_matches("/names");
    assert_eq!(run(&["--url", root, "--token", "it's secret"], "show mydb").0, 4, "nothing is outside the path");

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
