//! Leases that a command holds while another runs.

use std::{
    process::ExitStatus,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Instant, SystemTime, UNIX_EPOCH},
};

use nameservice_embedded::{Embedded, Options};
use nameservice_http::App;

use super::{
    replica::{ask, eventually},
    *,
};

/// How long a lease of these tests lasts, in seconds: longer than any stall. It is refreshed after a third of it.
const TTL: u64 = 30;

/// The clock of a service under test. It stands unless it is moved, so no lease expires by itself.
#[derive(Clone)]
struct Clock(Arc<AtomicU64>);

impl Clock {
    fn new() -> Self {
        Self(Arc::new(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs().into()))
    }

    fn now(&self) -> SystemTime {
        UNIX_EPOCH + Duration::from_secs(self.0.load(Ordering::SeqCst))
    }

    /// Moves it forward.
    fn advance(&self, seconds: u64) {
        self.0.fetch_add(seconds, Ordering::SeqCst);
    }
}

/// Starts `lease run` around a line of shell, whose stdin stays open until it is finished.
fn hold(url: &str, options: &str, shell: &str) -> Child {
    let mut command = program();
    command.args(["--url", url, "lease", "run", "--name", "index_lock", "mydb"]);
    command.args(options.split_whitespace()).args(["--", "sh", "-c", shell]).stdin(Stdio::piped());
    command.env("NAMESERVICE", env!("CARGO_BIN_EXE_nameservice")).env("NAMESERVICE_URL", url);
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

fn signal(process: &Child, name: &str) {
    let sent = Command::new("kill").args([name, &process.id().to_string()]).status().unwrap();
    assert!(sent.success());
}

/// Reads the first line that the command prints, which shows that it runs.
fn first_line(process: &mut Child) -> (String, BufReader<std::process::ChildStdout>) {
    let mut stdout = BufReader::new(process.stdout.take().unwrap());
    let mut line = String::new();
    stdout.read_line(&mut line).unwrap();
    (line.trim().to_owned(), stdout)
}

fn finished(mut process: Child) -> (ExitStatus, String) {
    let status = process.wait().unwrap();
    let mut stderr = String::new();
    process.stderr.take().unwrap().read_to_string(&mut stderr).unwrap();
    (status, stderr)
}

/// Runs a test beside a service that has a ledger, and the clock of the service.
fn with_service(test: impl FnOnce(&str, &Clock)) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let clock = Clock::new();
    let service = runtime.block_on(async {
        let read = clock.clone();
        let names = Arc::new(Embedded::memory(Options::default()).unwrap().with_clock(move || read.now()));
        let listener = serve::bind(([127, 0, 0, 1], 0).into()).await.unwrap();
        serve::start(listener, App::new(names.clone(), names, Auth::Open), None).unwrap()
    });
    let url = service.url();
    assert_eq!(run(&["--url", &url], "create mydb").0, 0);
    test(&url, &clock);
    runtime.block_on(service.stop());
}

/// Moves the clock beyond the time for which the lease was granted. It is refreshed in between.
fn outlast(url: &str, clock: &Clock) {
    let expires_at = || {
        let status = ask(url, "GET", "/v1/records/mydb", "").2["status"].take();
        status["payload"]["index_lock"]["expires_at"].as_i64().unwrap_or_else(|| panic!("no lease: {status}"))
    };
    let granted = expires_at();
    clock.advance(TTL - 1);
    eventually("a refresh", || expires_at() > granted);
    clock.advance(TTL - 1);
}

#[test]
fn one_that_was_stopped_past_its_time_ends_its_command_and_publishes_nothing() {
    with_service(|url, clock| {
        let ttl = format!("--ttl {TTL}");
        // Its stdout shows that it was asked to end, and its child is in its group.
        let shell = "trap 'echo asked to end; exit 0' TERM; echo $NAMESERVICE_LEASE_TOKEN; sleep 600 & wait";
        let mut first = hold(url, &format!("--holder first {ttl}"), shell);
        let (token, mut stdout) = first_line(&mut first);
        assert_eq!(token, "1");
        signal(&first, "-STOP");
        let publish = format!(
            "echo $NAMESERVICE_LEASE_TOKEN; \"$NAMESERVICE\" push head mydb {ID} 1 --monotonic; read _; exit 0"
        );
        let mut second = hold(url, &format!("--holder second {ttl} --wait"), &publish);
        let mut waiting = String::new();
        BufReader::new(second.stderr.as_mut().unwrap()).read_line(&mut waiting).unwrap();
        assert!(waiting.starts_with("waiting: mydb:main is locked"), "{waiting}");
        clock.advance(TTL + 1);
        let (token, _rest) = first_line(&mut second);
        assert_eq!(token, "2", "the first one's time is over");
        signal(&first, "-CONT");
        let mut line = String::new();
        stdout.read_line(&mut line).unwrap();
        assert_eq!(line, "asked to end\n");
        // No process of its group holds the pipe any longer.
        assert_eq!(stdout.read_line(&mut line).unwrap(), 0);
        let (status, stderr) = finished(first);
        assert_eq!(status.code(), Some(124), "{stderr}");
        assert!(stderr.contains("lost the lease on mydb:main"), "{stderr}");
        let late = "push head mydb OTHER 9 --monotonic --lease-name index_lock --lease-holder first --lease-token 1";
        assert_eq!(run(&["--url", url], late).0, 3, "its token is spent");
        let (status, stderr) = finished(second);
        assert_eq!(status.code(), Some(0), "{stderr}");
        assert!(run(&["--url", url], "show mydb").1.contains("@1"));
        assert!(run(&["--url", url], "lease show mydb").1.contains("no lease is held"));
    });
}

#[test]
fn a_command_runs_longer_than_its_lease_lasts_and_pushes_under_it() {
    with_service(|url, clock| {
        let shell = format!(
            "echo up; read _; test \"$NAMESERVICE_ADDRESS $NAMESERVICE_LEASE_NAME $NAMESERVICE_LEASE_HOLDER\" = \
             'mydb:main index_lock one' || exit 9; \"$NAMESERVICE\" push head mydb {ID} 4 --monotonic || exit 8; \
             NAMESERVICE_LEASE_TOKEN=7 \"$NAMESERVICE\" push head mydb {OTHER} 5 --monotonic; exit $((40 + $?))"
        );
        let mut process = hold(url, &format!("--holder one --ttl {TTL}"), &shell);
        let (_, _stdout) = first_line(&mut process);
        outlast(url, clock);
        let (status, stderr) = finished(process);
        assert_eq!(status.code(), Some(43), "a push under another token is rejected: {stderr}");
        assert!(run(&["--url", url], "show mydb").1.contains("@4"));
        assert!(run(&["--url", url], "lease show mydb").1.contains("no lease is held"));
    });
}

/// The push that came too late is of a value that is stored already, or older: nothing has failed.
#[test]
fn a_command_whose_push_was_stale_sets_no_state_and_one_with_a_conflict_does() {
    with_service(|url, _| {
        assert_eq!(run(&["--url", url], "push head mydb ID 5 --monotonic").0, 0);
        for (push, code, state) in [
            (format!("push head mydb {OTHER} 5 --monotonic"), 9, "ready"),
            (format!("push head mydb {OTHER} 9 --expect {OTHER}@4"), 3, "error"),
        ] {
            let shell = format!("\"$NAMESERVICE\" {push}");
            let (status, stderr) = finished(hold(url, "--holder one --on-failure error", &shell));
            assert_eq!(status.code(), Some(code), "{stderr}");
            let status = ask(url, "GET", "/v1/records/mydb", "").2["status"].take();
            assert_eq!(status["payload"]["state"], state, "{push}: {status}");
        }
    });
}

#[test]
fn failures_of_the_lease_have_other_codes_than_those_of_the_command() {
    with_service(|url, _| {
        let run_under = |options: &str, shell: &str| finished(hold(url, options, shell));
        for code in [0, 1, 3, 7] {
            assert_eq!(run_under("--holder one", &format!("exit {code}")).0.code(), Some(code));
        }
        assert_eq!(run(&["--url", url], "lease acquire mydb --name index_lock --holder two").0, 0);
        let (status, stderr) = run_under("--holder one", "exit 3");
        assert!(status.code() == Some(123) && stderr.contains("is locked by two"), "{stderr}");
        assert_eq!(run(&["--url", url], "lease run --name index_lock --holder one nowhere -- true").0, 125);
        assert_eq!(
            run(&["--url", "http://127.0.0.1:1"], "lease run --name index_lock --holder one mydb -- true").0,
            125
        );
        // Data that is in use is 7 for every other command.
        let directory = tempfile::tempdir().unwrap();
        let _user = spawn_serve(directory.path());
        let target = ["--data", directory.path().to_str().unwrap()];
        assert_eq!(run(&target, "lease show mydb").0, 7);
        assert_eq!(run(&target, "lease run --name index_lock --holder one mydb -- true").0, 125);
    });
}

#[test]
fn signals_reach_the_command_and_its_end_is_passed_on() {
    with_service(|url, clock| {
        for (name, code) in [("-TERM", 143), ("-INT", 130)] {
            let mut process = hold(url, "--holder one", "echo up; exec sleep 600");
            first_line(&mut process);
            signal(&process, name);
            assert_eq!(finished(process).0.code(), Some(code), "{name}");
            assert!(run(&["--url", url], "lease show mydb").1.contains("no lease is held"), "{name}");
        }
        // A command that ignores the signal keeps running, and its lease is still refreshed.
        let options = format!("--holder one --ttl {TTL}");
        let mut process = hold(url, &options, "trap '' TERM; echo up; read _; exit 5");
        let (_, _stdout) = first_line(&mut process);
        signal(&process, "-TERM");
        outlast(url, clock);
        assert_eq!(finished(process).0.code(), Some(5));
    });
}

/// A service that accepts a request for a lease and never answers.
#[test]
fn signals_end_the_wait_for_a_lease_at_any_moment() {
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", silent.local_addr().unwrap());
    for (name, code) in [("-TERM", 143), ("-INT", 130)] {
        let process = hold(&url, "--holder one --wait", "echo up");
        let (_asking, _) = silent.accept().unwrap();
        signal(&process, name);
        assert_eq!(finished(process).0.code(), Some(code), "{name}");
    }
    with_service(|url, _| {
        let mut first = hold(url, "--holder first", "echo up; exec sleep 600");
        first_line(&mut first);
        let mut second = hold(url, "--holder second --wait", "echo up");
        let mut waiting = String::new();
        BufReader::new(second.stderr.as_mut().unwrap()).read_line(&mut waiting).unwrap();
        signal(&second, "-TERM");
        assert_eq!(finished(second).0.code(), Some(143), "{waiting}");
        signal(&first, "-TERM");
        finished(first);
        assert!(run(&["--url", url], "lease show mydb").1.contains("no lease is held"));
    });
}

/// Ctrl-Z stops the command with the program that keeps its lease, and `fg` continues it only under the lease.
#[cfg(target_os = "linux")]
#[test]
fn a_command_is_stopped_and_continued_with_the_program_that_keeps_its_lease() {
    let is_stopped = |id: &str| {
        let stat = std::fs::read_to_string(format!("/proc/{id}/stat")).unwrap_or_default();
        stat.rsplit(')').next().is_some_and(|rest| rest.trim().starts_with('T'))
    };
    let stop = |process: &Child, id: &str| {
        signal(process, "-TSTP");
        let until = Instant::now() + LONG;
        while !(is_stopped(id) && is_stopped(&process.id().to_string())) {
            assert!(Instant::now() < until, "it runs on");
            std::thread::sleep(Duration::from_millis(10));
        }
    };
    with_service(|url, clock| {
        // It starts nothing after its first line: a shell whose child is stopped before its `exec` shows another state.
        let shell = "trap 'kill $!; exit 5' USR1; trap 'kill $!; exit 6' TERM; sleep 600 & echo $$; wait";
        // Continued in time.
        let options = format!("--holder first --ttl {TTL}");
        let mut process = hold(url, &options, shell);
        let (id, _stdout) = first_line(&mut process);
        stop(&process, &id);
        signal(&process, "-CONT");
        assert!(Command::new("kill").args(["-USR1", &id]).status().unwrap().success());
        assert_eq!(finished(process).0.code(), Some(5));
        // Continued after its lease has gone to another.
        let mut process = hold(url, &options, shell);
        let (id, _stdout) = first_line(&mut process);
        stop(&process, &id);
        clock.advance(TTL + 1);
        let mut second = hold(url, "--holder second", "echo up; exec sleep 600");
        first_line(&mut second);
        assert!(is_stopped(&id));
        signal(&process, "-CONT");
        let (status, stderr) = finished(process);
        assert_eq!(status.code(), Some(124), "{stderr}");
        assert!(stderr.contains("lost the lease on mydb:main"), "{stderr}");
        signal(&second, "-TERM");
        finished(second);
    });
}

#[test]
fn a_command_ends_when_the_service_is_gone_for_as_long_as_the_lease_lasts() {
    const LASTS: u64 = 15;
    let directory = tempfile::tempdir().unwrap();
    let mut service = spawn_serve(directory.path());
    assert_eq!(run(&["--url", &service.url], "create mydb").0, 0);
    let began = Instant::now();
    let mut process = hold(&service.url, &format!("--holder one --ttl {LASTS}"), "echo up; exec sleep 600");
    first_line(&mut process);
    service.kill();
    let (status, stderr) = finished(process);
    assert_eq!(status.code(), Some(124), "{stderr}");
    assert!(stderr.contains("is not refreshed") && stderr.contains("it expired"), "{stderr}");
    assert!(began.elapsed() >= Duration::from_secs(LASTS), "the lease had not run out: {:?}", began.elapsed());
}
