//! Plants the bugs of `bugs.rs`, one at a time, in a copy of the working tree, and checks that some test fails for each.
//!
//! `cargo planted` plants all, `cargo planted WORD…` those whose names contain one of the words. The copy and its build stay in
//! `NAMESERVICE_PLANTED` (by default a folder of the system's temporary one) to make the next run faster.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a tool that cannot continue reports why and exits"
)]

mod bugs;

use std::{
    env, fs,
    io::Read as _,
    path::{Path, PathBuf},
    process::{Command, ExitCode, Stdio},
    thread,
    time::{Duration, Instant},
};

use serde_json::Value;

use crate::bugs::{BUGS, Bug, misplaced};

/// A bug may also make its tests hang, which counts as noticed.
const TIMEOUT: Duration = Duration::from_secs(180);

enum Verdict {
    /// These tests failed.
    Caught { failed: Vec<String>, output: String },
    /// They did not end in time.
    Hung,
    /// All of them passed.
    Survived,
    /// The tree cannot be built with it.
    Broken(String),
}

fn main() -> ExitCode {
    let words: Vec<String> = env::args().skip(1).collect();
    let wanted: Vec<&Bug> = BUGS
        .iter()
        .filter(|bug| words.is_empty() || words.iter().any(|word| bug.name.contains(word.as_str())))
        .collect();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let misplaced = misplaced(root);
    assert!(misplaced.is_empty(), "{}", misplaced.join("\n"));
    println!("{} bugs, each with its one place in the tree", BUGS.len());
    let copy = Copy::of(root);
    let mut filters: Vec<&str> = wanted.iter().flat_map(|bug| bug.tests).copied().collect();
    filters.sort_unstable();
    filters.dedup();
    match copy.judge(&filters) {
        Verdict::Survived => println!("without a bug all of these tests pass"),
        Verdict::Caught { failed, output } => {
            // A random sequence of requests may have found one that is not planted.
            println!("{}", output.split_once("\nfailures:\n").map_or("", |(_, output)| output));
            panic!("these fail without any bug: {failed:?}")
        }
        Verdict::Hung => panic!("the tests do not end even without a bug"),
        Verdict::Broken(why) => panic!("the tree does not build:\n{why}"),
    }
    let mut caught = 0;
    for bug in &wanted {
        let begun = Instant::now();
        let path = copy.root.join(bug.file);
        let whole = fs::read_to_string(&path).unwrap();
        fs::write(&path, whole.replacen(bug.find, bug.put, 1)).unwrap();
        let verdict = copy.judge(bug.tests);
        fs::write(&path, whole).unwrap();
        let summary = match verdict {
            Verdict::Caught { failed, .. } => {
                caught += 1;
                let more = if failed.len() > 1 { format!(" and {} more", failed.len() - 1) } else { String::new() };
                format!("caught by {}{more}", failed[0])
            }
            Verdict::Hung => {
                caught += 1;
                "caught: its tests do not end".to_owned()
            }
            Verdict::Survived => "SURVIVED".to_owned(),
            Verdict::Broken(why) => format!("BROKEN, it does not build:\n{why}"),
        };
        println!("{} s  {}: {summary}", begun.elapsed().as_secs(), bug.name);
    }
    println!("{caught} of {} planted bugs caught", wanted.len());
    if caught == wanted.len() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// A copy of the tree to plant bugs in.
struct Copy {
    root: PathBuf,
}

impl Copy {
    /// Copies every file that is tracked or not ignored.
    fn of(root: &Path) -> Self {
        let to = env::var_os("NAMESERVICE_PLANTED").map_or(env::temp_dir().join("nameservice-planted"), PathBuf::from);
        let files = |args: &[&str]| {
            let listed = Command::new("git").arg("-C").arg(root).args(args).output().expect("git");
            assert!(listed.status.success(), "git {args:?}");
            let listed = String::from_utf8(listed.stdout).expect("names in UTF-8");
            listed.split('\0').filter(|name| !name.is_empty()).map(str::to_owned).collect::<Vec<_>>()
        };
        let names = files(&["ls-files", "-z", "--cached", "--others", "--exclude-standard"]);
        let there: Vec<PathBuf> = names.iter().map(PathBuf::from).filter(|name| root.join(name).is_file()).collect();
        remove_others(&to.join("tree"), &to.join("tree"), &there);
        for name in there {
            let (from, to) = (fs::read(root.join(&name)).unwrap(), to.join("tree").join(&name));
            // Unchanged files keep their times, and so the build.
            if fs::read(&to).ok().as_ref() != Some(&from) {
                fs::create_dir_all(to.parent().unwrap()).unwrap();
                fs::write(&to, from).unwrap();
            }
        }
        Self { root: to.join("tree") }
    }

    /// Builds the suite and runs the tests under these names.
    fn judge(&self, filters: &[&str]) -> Verdict {
        let built = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
            .args(["test", "--package", "nameservice-tests", "--test", "suite", "--no-run", "--message-format", "json"])
            .current_dir(&self.root)
            .env("CARGO_TARGET_DIR", self.root.parent().unwrap().join("target"))
            .output()
            .expect("cargo");
        if !built.status.success() {
            let output = String::from_utf8_lossy(&built.stderr).into_owned();
            let from = output.find("error").unwrap_or_default();
            return Verdict::Broken(output[from..].to_owned());
        }
        let messages = String::from_utf8(built.stdout).expect("messages in UTF-8");
        let suite = messages
            .lines()
            .filter_map(|line| serde_json::from_str::<Value>(line).ok())
            .filter(|message| message["target"]["name"] == "suite")
            .find_map(|message| Some(message["executable"].as_str()?.to_owned()))
            .expect("cargo names the suite");
        run(&suite, filters, &self.root.join("tests"))
    }
}

fn remove_others(folder: &Path, root: &Path, keep: &[PathBuf]) {
    for entry in fs::read_dir(folder).into_iter().flatten() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            remove_others(&path, root, keep);
        } else if !keep.iter().any(|name| root.join(name) == path)
            && path.file_name().is_some_and(|n| n != "Cargo.lock")
        {
            fs::remove_file(&path).unwrap();
        }
    }
}

fn run(suite: &str, filters: &[&str], folder: &Path) -> Verdict {
    let mut tests = Command::new(suite)
        .args(filters)
        .current_dir(folder)
        .env("RUST_BACKTRACE", "0")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("the suite");
    let mut output = tests.stdout.take().expect("piped");
    let reading = thread::spawn(move || {
        let mut text = String::new();
        output.read_to_string(&mut text).map(|_| text)
    });
    let begun = Instant::now();
    let status = loop {
        if let Some(status) = tests.try_wait().expect("a child") {
            break status;
        }
        if begun.elapsed() > TIMEOUT {
            tests.kill().expect("a child");
            tests.wait().expect("a child");
            return Verdict::Hung;
        }
        thread::sleep(Duration::from_millis(50));
    };
    let text = reading.join().expect("a reader").unwrap_or_default();
    if status.success() {
        let none = text.contains("running 0 tests");
        assert!(!none, "no test has one of the names {filters:?}");
        return Verdict::Survived;
    }
    let failed = text.lines().filter_map(|line| line.strip_prefix("test ")?.strip_suffix(" ... FAILED"));
    let mut failed: Vec<String> = failed.map(str::to_owned).collect();
    if failed.is_empty() {
        failed.push("a test that aborted the others".to_owned());
    }
    Verdict::Caught { failed, output: text }
}
