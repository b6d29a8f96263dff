//! `serve` as in production: TLS, a Unix socket, a supervisor, backups, tokens without an identity provider, and `login`.

use std::{
    fs,
    io::{Read as _, Seek as _, SeekFrom, Write as _},
    os::unix::{
        fs::{FileTypeExt as _, PermissionsExt as _},
        net::{UnixDatagram, UnixStream},
    },
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
};

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use reqwest::{Certificate, Client, Identity};

use super::{
    replica::{ask, eventually, text},
    *,
};

/// An authority, and what it has signed.
struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Self(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    fn pem(&self) -> String {
        self.0.pem()
    }

    /// Returns a certificate for this machine, and its key.
    fn signed(&self) -> (String, String) {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
        (params.signed_by(&key, &self.0).unwrap().pem(), key.serialize_pem())
    }
}

/// The files of TLS in a directory of their own.
struct Files(tempfile::TempDir);

impl Files {
    fn of(authority: &Authority) -> Self {
        let files = Self(tempfile::tempdir().unwrap());
        files.replace(authority);
        files
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn replace(&self, authority: &Authority) {
        let (cert, key) = authority.signed();
        for (name, text) in [("cert", cert), ("key", key), ("ca", authority.pem())] {
            fs::write(self.path(name), text).unwrap();
        }
    }
}

fn serve(options: &[&str], paths: &[(&str, PathBuf)]) -> Serving {
    let mut command = program();
    command.stderr(Stdio::null());
    serve_with(command, options, paths)
}

pub(super) fn serve_with(mut command: Command, options: &[&str], paths: &[(&str, PathBuf)]) -> Serving {
    command.arg("serve").args(options);
    for (option, path) in paths {
        command.arg(option).arg(path);
    }
    let mut process = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut stdout = BufReader::new(process.stdout.take().unwrap());
    let mut line = String::new();
    stdout.read_line(&mut line).unwrap();
    let url = line.split_whitespace().nth(2).unwrap_or_default().trim_end_matches(',').to_owned();
    std::thread::spawn(move || stdout.read_to_end(&mut Vec::new()));
    Serving { process, url }
}

fn trusting(authority: &Authority, identity: Option<(String, String)>) -> Client {
    // Fails if another test of this process has installed it.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let ca = Certificate::from_pem(authority.pem().as_bytes()).unwrap();
    let mut client = Client::builder().no_proxy().tls_certs_only([ca]);
    if let Some((cert, key)) = identity {
        client = client.identity(Identity::from_pem(format!("{cert}{key}").as_bytes()).unwrap());
    }
    client.build().unwrap()
}

async fn until(holds: impl AsyncFn() -> bool) {
    let begun = std::time::Instant::now();
    while !holds().await {
        assert!(begun.elapsed() < LONG, "it did not come about");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

async fn is_answered(client: &Client, url: &str) -> bool {
    client.get(format!("{url}/v1/health")).send().await.is_ok_and(|answer| answer.status().is_success())
}

#[tokio::test]
async fn over_tls_new_files_are_taken_and_bad_ones_are_not() {
    let (first, second) = (Authority::new(), Authority::new());
    let files = Files::of(&first);
    let tls = [("--tls-cert", files.path("cert")), ("--tls-key", files.path("key"))];
    let log = files.path("log");
    let mut command = program();
    command.stderr(fs::File::create(&log).unwrap());
    let service = serve_with(command, &["--memory", "--listen", "127.0.0.1:0"], &tls);
    assert!(service.url.starts_with("https://localhost:"), "{}", service.url);
    // The command line trusts what the system trusts, or this file.
    let done =
        program().args(["--url", &service.url, "create", "mydb"]).env("SSL_CERT_FILE", files.path("ca")).output();
    let done = done.unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    assert!(is_answered(&trusting(&first, None), &service.url).await);
    assert!(!is_answered(&trusting(&second, None), &service.url).await);
    // Without TLS it does not answer.
    let plain = service.url.replace("https", "http");
    assert_eq!(run(&["--url", &plain], "health").0, 7);

    fs::write(files.path("cert"), "no certificate").unwrap();
    // The previous certificate stays.
    until(async || {
        assert!(is_answered(&trusting(&first, None), &service.url).await);
        fs::read_to_string(&log).unwrap().contains("the previous ones stay in use")
    })
    .await;
    files.replace(&second);
    until(async || is_answered(&trusting(&second, None), &service.url).await).await;
    assert!(!is_answered(&trusting(&first, None), &service.url).await);
}

#[tokio::test]
async fn with_an_authority_only_clients_that_it_has_certified_connect() {
    let (ours, clients, others) = (Authority::new(), Authority::new(), Authority::new());
    let files = Files::of(&ours);
    fs::write(files.path("clients"), clients.pem()).unwrap();
    let tls = [("--tls-cert", "cert"), ("--tls-key", "key"), ("--client-ca", "clients")];
    let tls = tls.map(|(option, name)| (option, files.path(name)));
    // It needs neither tokens nor --insecure to listen on every address.
    let service = serve(&["--memory", "--listen", "0.0.0.0:0"], &tls);
    assert!(is_answered(&trusting(&ours, Some(clients.signed())), &service.url).await);
    for stranger in [None, Some(others.signed())] {
        assert!(!is_answered(&trusting(&ours, stranger), &service.url).await);
    }
}

#[test]
fn commands_doctor_copies_and_replicas_authenticate_themselves_by_a_certificate() {
    let (ours, clients) = (Authority::new(), Authority::new());
    let (files, own) = (Files::of(&ours), Files::of(&clients));
    fs::write(files.path("clients"), clients.pem()).unwrap();
    let tls = [("--tls-cert", "cert"), ("--tls-key", "key"), ("--client-ca", "clients")];
    let tls = tls.map(|(option, name)| (option, files.path(name)));
    let service = serve(&["--memory", "--listen", "localhost:0"], &tls);
    let (cert, key) = (own.path("cert"), own.path("key"));
    let both = own.path("both");
    fs::write(&both, [fs::read(&cert).unwrap(), fs::read(&key).unwrap()].concat()).unwrap();
    let command = || {
        let mut command = program();
        command.env("SSL_CERT_FILE", files.path("ca"));
        command
    };
    let done = |command: &mut Command| {
        let done = command.output().unwrap();
        (done.status.code(), String::from_utf8_lossy(&done.stderr).into_owned())
    };
    let with_files = || {
        let mut command = command();
        command.arg("--client-cert").arg(&cert).arg("--client-key").arg(&key);
        command
    };
    let stranger = done(command().args(["--url", &service.url, "list"]));
    assert_eq!(stranger.0, Some(7), "{stranger:?}");
    let url = ["--url", &service.url];
    assert_eq!(done(with_files().args(url).args(["create", "mydb"])), (Some(0), String::new()));
    // By the environment, in one file.
    assert_eq!(done(command().env("NAMESERVICE_CLIENT_CERT", &both).args(url).args(["show", "mydb"])).0, Some(0));
    assert_eq!(done(with_files().args(url).arg("doctor")).0, Some(0));
    let copy = format!("embedded:{}", own.path("copy").display());
    let copied = done(with_files().args(["copy", &service.url, &copy]));
    assert_eq!(copied.0, Some(0), "{copied:?}");
    let mut replica = command();
    replica.env("NAMESERVICE_CLIENT_CERT", &both).stderr(Stdio::null());
    let replica = serve_with(replica, &["--memory", "--listen", "127.0.0.1:0", "--upstream", &service.url], &[]);
    // Over http there is nothing to authenticate by.
    let begun = std::time::Instant::now();
    while done(with_files().args(["--url", &replica.url, "show", "mydb"])).0 != Some(0) {
        assert!(begun.elapsed() < LONG, "the replica has no record");
    }
    let missing = done(command().args(["--client-cert", "none"]).args(url).arg("list"));
    assert!(missing.0 == Some(2) && missing.1.contains("--client-cert"), "{missing:?}");
    let alone = done(command().env("NAMESERVICE_CLIENT_KEY", &key).args(url).arg("list"));
    assert!(alone.0 == Some(2) && alone.1.contains("--client-cert"), "{alone:?}");
    // An empty variable names nothing.
    let empty = done(with_files().args(url).arg("list").env("NAMESERVICE_CLIENT_KEY", ""));
    assert_eq!(empty.0, Some(0), "{empty:?}");
    let wrong = done(command().arg("--client-cert").arg(files.path("clients")).args(url).arg("list"));
    assert!(wrong.0 == Some(2) && wrong.1.contains("the client certificate cannot be used"), "{wrong:?}");
}

#[test]
fn files_that_cannot_be_used_for_tls_are_bad_usage_and_named() {
    let files = Files::of(&Authority::new());
    let other = Files::of(&Authority::new());
    fs::write(files.path("text"), "text").unwrap();
    for (cert, key, words) in [
        (files.path("none"), files.path("key"), "cannot read"),
        (files.path("text"), files.path("key"), "has no certificate in PEM"),
        (files.path("cert"), files.path("text"), "has no private key in PEM"),
        (files.path("cert"), other.path("key"), "cannot be used with the key"),
    ] {
        let mut command = program();
        command
            .args(["serve", "--memory", "--listen", "127.0.0.1:0", "--tls-cert"])
            .arg(cert)
            .arg("--tls-key")
            .arg(key);
        let done = command.output().unwrap();
        let stderr = String::from_utf8_lossy(&done.stderr);
        assert!(done.status.code() == Some(2) && stderr.contains(words), "{words}: {stderr}");
    }
    assert_eq!(run(&[], "serve --memory --tls-cert a").0, 2);
    assert_eq!(run(&[], "serve --memory --client-ca a").0, 2);
}

/// Starts a service on a socket. Returns it, and the lines that it prints.
fn greeted(options: &[&str], socket: &std::path::Path) -> (Serving, Vec<String>) {
    let url = format!("unix:{}", socket.display());
    let mut command = program();
    command.args(["serve", "--memory", "--listen", &url]).args(options).stderr(Stdio::null());
    let mut process = command.stdout(Stdio::piped()).spawn().unwrap();
    let stdout = BufReader::new(process.stdout.take().unwrap());
    let mut lines: Vec<String> = Vec::new();
    for line in stdout.lines().map(Result::unwrap) {
        let is_last = line.ends_with("stops the service.");
        lines.push(line);
        if is_last {
            break;
        }
    }
    (Serving { process, url }, lines)
}

#[test]
fn the_commands_that_are_printed_for_a_unix_socket_work_and_there_are_none_where_none_would() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a b");
    let (_service, lines) = greeted(&["--dev-token", "a token"], &path);
    let commands = lines.iter().filter(|line| line.starts_with("  ") && !line.contains(" watch"));
    let commands: Vec<&str> = commands.map(String::as_str).collect();
    assert_eq!(commands.len(), 4, "{lines:?}");
    let done = Command::new("sh").args(["-ec", &commands.join("\n")]).output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));

    let files = Files::of(&Authority::new());
    let [cert, key] = ["cert", "key"].map(|name| files.path(name).to_str().unwrap().to_owned());
    let encrypted = ["--tls-cert", cert.as_str(), "--tls-key", key.as_str()];
    for (options, reason) in [(&encrypted[..], "does not speak TLS"), (&["--base-path", "/names"][..], "below /names")]
    {
        let (_service, lines) = greeted(options, &directory.path().join(reason.split('/').next_back().unwrap()));
        assert!(lines[0].contains(reason), "{lines:?}");
        assert!(!lines.iter().any(|line| line.starts_with("  ")), "{lines:?}");
    }
}

/// Under the umask of the unit, whose user exists while the service runs: no proxy is of its group.
#[test]
fn a_unix_socket_has_the_mode_that_is_named_whatever_the_umask() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("socket");
    let url = format!("unix:{}", path.display());
    for (umask, mode) in [("0077", "0666"), ("0000", "0600"), ("0077", "0660")] {
        let mut command = Command::new("sh");
        command.args(["-c", "umask $0; exec \"$@\"", umask, env!("CARGO_BIN_EXE_nameservice")]);
        let mut service = serve_with(command, &["--memory", "--listen", &url, "--socket-mode", mode], &[]);
        let permissions = fs::metadata(&path).unwrap().permissions();
        assert_eq!(format!("{:04o}", permissions.mode() & 0o777), mode, "under {umask}");
        assert_eq!(run(&["--url", &url], "list").0, 0);
        service.kill();
        fs::remove_file(&path).unwrap();
    }
    for wrong in ["--listen 127.0.0.1:0 --socket-mode 0666", "--listen unix:/s --socket-mode 888"] {
        assert_eq!(run(&[], &format!("serve --memory {wrong}")).0, 2, "{wrong}");
    }
}

#[test]
fn a_unix_socket_serves_the_same_commands_to_its_owner_and_group_and_is_removed() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("socket");
    let url = format!("unix:{}", path.display());
    let mut service = serve(&["--memory", "--listen", &url], &[]);
    assert_eq!(service.url, url);
    let file = fs::metadata(&path).unwrap();
    assert!(file.file_type().is_socket());
    assert_eq!(file.permissions().mode() & 0o777, 0o660);
    for target in [["--url", &url], ["--at", &url]] {
        assert_eq!(run(&target, "list").0, 0);
    }
    assert_eq!(run(&["--url", &url], "create mydb").0, 0);
    assert_eq!(run(&["--url", &url], "changes").1.lines().count(), 2);
    assert_eq!(run(&["--url", &format!("{url}x")], "list").0, 7);
    // A page that reaches the socket through something else is not of this machine.
    let asked = |host: &str| {
        let mut stream = UnixStream::connect(&path).unwrap();
        write!(stream, "GET /v1/health HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    };
    assert!(asked("localhost").starts_with("HTTP/1.1 200"));
    assert!(asked("evil.example").starts_with("HTTP/1.1 403"));
    let in_use = program().args(["serve", "--memory", "--listen", &url]).output().unwrap();
    assert!(in_use.status.code() == Some(7) && String::from_utf8_lossy(&in_use.stderr).contains("is in use"));
    terminate(&mut service);
    assert!(!path.exists());
}

fn terminate(service: &mut Serving) {
    let pid = rustix::process::Pid::from_raw(service.process.id().try_into().unwrap()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    assert!(service.process.wait().unwrap().success());
}

#[test]
fn a_supervisor_learns_that_the_service_is_ready_runs_and_stops() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("notify");
    let socket = UnixDatagram::bind(&path).unwrap();
    socket.set_read_timeout(Some(LONG)).unwrap();
    let mut command = program();
    command.env("NOTIFY_SOCKET", &path).env("WATCHDOG_USEC", "200000");
    let mut service = serve_with(command, &["--memory", "--listen", "127.0.0.1:0"], &[]);
    let next = || {
        let mut bytes = [0; 256];
        let read = socket.recv(&mut bytes).unwrap();
        String::from_utf8(bytes[..read].to_vec()).unwrap()
    };
    assert_eq!(next().trim(), "READY=1");
    // A reload, which a service without keys survives.
    let pid = rustix::process::Pid::from_raw(service.process.id().try_into().unwrap()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::HUP).unwrap();
    assert_eq!(run(&["--url", &service.url], "health").0, 0);
    for _ in 0..3 {
        assert_eq!(next().trim(), "WATCHDOG=1");
    }
    terminate(&mut service);
    while next().trim() != "STOPPING=1" {}
}

#[test]
fn backups_are_made_by_the_service_can_be_served_and_have_an_age() {
    let directory = tempfile::tempdir().unwrap();
    let (data, to) = (directory.path().join("data"), directory.path().join("backups"));
    let options = ["--listen", "127.0.0.1:0", "--backup-every", "1s", "--backup-keep", "2"];
    let mut service = serve(&options, &[("--data", data), ("--backup-to", to.clone())]);
    assert_eq!(run(&["--url", &service.url], "create mydb").0, 0);
    let backups = || {
        let mut found: Vec<_> = fs::read_dir(&to).unwrap().map(|entry| entry.unwrap().path()).collect();
        // Neither what is being made, nor what is being removed.
        found.retain(|path| path.file_name().unwrap() != "partial" && path.extension().is_none());
        found.sort();
        found
    };
    let holds = |backup: &Path| run(&["--data", backup.to_str().unwrap()], "show mydb").0 == 0;
    let mut seen = Vec::new();
    eventually("three backups, the last of which holds the record", || {
        for backup in backups() {
            if !seen.contains(&backup) {
                seen.push(backup);
            }
        }
        seen.len() >= 3
    });
    eventually("the age of a backup", || {
        let metrics = text(&service.url, "/metrics");
        let age = metrics.lines().find_map(|line| line.strip_prefix("nameservice_backup_age_seconds "));
        let age = age.unwrap_or_else(|| panic!("{metrics}")).parse::<f64>().unwrap();
        assert!(age >= 0.0, "{metrics}");
        for step in ["make", "check", "remove"] {
            let none = format!("nameservice_backup_failures_total{{step=\"{step}\"}} 0");
            assert!(metrics.lines().any(|line| line == none), "{metrics}");
        }
        assert!(metrics.lines().any(|line| line == "nameservice_backup_leftovers 0"), "{metrics}");
        age < 60.0
    });
    terminate(&mut service);
    let left = backups();
    assert!((1..=2).contains(&left.len()), "{left:?}");
    assert!(holds(left.last().unwrap()));
    for line in
        ["serve --memory --backup-to B", "serve --backup-every 1h", "serve --memory --backup-to B --backup-keep 0"]
    {
        let line = line.replace('B', to.to_str().unwrap());
        assert_eq!(run(&[], &line).0, 2, "{line}");
    }
}

#[test]
fn a_directory_of_backups_that_cannot_be_used_fails_the_backups_and_not_the_service() {
    let directory = tempfile::tempdir().unwrap();
    // As of a volume that is not mounted, in a place where this user creates nothing.
    let volume = directory.path().join("volume");
    fs::write(&volume, "").unwrap();
    let paths = [("--data", directory.path().join("data")), ("--backup-to", volume.join("backups"))];
    let service = serve(&["--listen", "127.0.0.1:0"], &paths);
    assert_eq!(run(&["--url", &service.url], "create mydb").0, 0);
    let failed = "nameservice_backup_failures_total{step=\"make\"} 1";
    eventually("the failure is counted", || text(&service.url, "/metrics").lines().any(|line| line == failed));
}

#[test]
fn damage_is_noticed_while_the_data_is_served_until_the_record_is_written() {
    let directory = tempfile::tempdir().unwrap();
    let (data, said) = (directory.path().join("data"), directory.path().join("log"));
    let start = || {
        let mut command = program();
        command.stderr(fs::File::create(&said).unwrap());
        serve_with(command, &["--listen", "127.0.0.1:0", "--scrub-every", "1s"], &[("--data", data.clone())])
    };
    let mut service = start();
    for name in ["damaged/record", "sound"] {
        assert_eq!(run(&["--url", &service.url], &format!("create {name}")).0, 0);
    }
    // What is in the write-ahead file is moved into the other.
    terminate(&mut service);
    let mut service = start();
    let log = || fs::read_to_string(&said).unwrap();
    let health = |service: &Serving| ask(&service.url, "GET", "/v1/health?deep=true", "");
    let findings = |service: &Serving| {
        let metrics = text(&service.url, "/metrics");
        assert!(metrics.contains("nameservice_scrub_age_seconds "), "{metrics}");
        let found = metrics.lines().find_map(|line| line.strip_prefix("nameservice_scrub_findings "));
        found.unwrap_or_else(|| panic!("{metrics}")).to_owned()
    };
    eventually("a scrub", || log().contains("the data was compared with memory"));
    assert_eq!((health(&service).2["status"].as_str(), &*findings(&service)), (Some("ok"), "0"));

    // The row of the record: its address with its length before it, and its id.
    let row = b"\x13damaged/record:main\x01";
    let file = data.join("nameservice.log.db");
    let bytes = fs::read(&file).unwrap();
    let rows: Vec<_> = (0..bytes.len() - row.len()).filter(|at| bytes[*at..].starts_with(row)).collect();
    assert!(!rows.is_empty());
    let mut file = fs::File::options().write(true).open(file).unwrap();
    for at in rows {
        file.seek(SeekFrom::Start(at as u64 + 1)).unwrap();
        file.write_all(b"D").unwrap();
    }
    eventually("the degraded health", || health(&service).2["status"] == "degraded");
    let (status, _, degraded) = health(&service);
    assert!(status == 200 && degraded["reason"].as_str().unwrap().contains("damaged"), "{degraded}");
    assert!(!degraded.to_string().contains("damaged/record"), "health needs no token: {degraded}");
    let named = "record-unreadable: record 1 cannot be read: its checksum is wrong (`damaged/record:main`)";
    assert!(log().lines().any(|line| line.contains("ERROR") && line.contains(named)), "{}", log());
    assert_eq!(findings(&service), "1");

    assert_eq!(run(&["--url", &service.url], "push head damaged/record ID 7 --monotonic").0, 0);
    eventually("the health of sound data", || health(&service).2["status"] == "ok");
    assert_eq!((&health(&service).2["reason"], &*findings(&service)), (&Value::Null, "0"));
    terminate(&mut service);
    let mut service = start();
    assert!(run(&["--url", &service.url], "show damaged/record").1.contains("@7"));
    terminate(&mut service);
}

#[test]
fn a_backup_is_restored_once_the_service_is_stopped_and_the_loss_accepted() {
    let root = tempfile::tempdir().unwrap();
    let path = |name: &str| root.path().join(name).to_str().unwrap().to_owned();
    let (data, saved) = (path("data"), path("saved"));
    let mut service = serve(&["--listen", "127.0.0.1:0"], &[("--data", root.path().join("data"))]);
    assert_eq!(run(&["--url", &service.url], "create mydb").0, 0);
    assert_eq!(run(&["--data", &data], &format!("backup {saved}")).0, 0);
    assert_eq!(run(&["--url", &service.url], "create later").0, 0);
    let restore = |options: &str| {
        let line = format!("restore-backup {saved} --data {data} {options}");
        let done = program().args(line.split_whitespace()).output().unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        (done.status.code().unwrap(), text(done.stdout), text(done.stderr))
    };
    let (code, _, said) = restore("--accept-loss");
    assert!(code == 7 && said.contains("is in use"), "{said}");
    terminate(&mut service);
    let (code, _, said) = restore("");
    assert!(code == 3 && said.contains("it is at position 4 (") && said.contains("--accept-loss"), "{said}");
    let (code, said, _) = restore("--accept-loss");
    assert!(code == 0 && said.contains("at position 2") && said.contains("the replaced data is in"), "{said}");
    assert_eq!((run(&["--data", &data], "show mydb").0, run(&["--data", &data], "show later").0), (0, 4));
    let (code, said, _) = restore("--json");
    let answer: Value = serde_json::from_str(&said).unwrap();
    assert_eq!((code, &answer["position"], &answer["lost"]), (0, &Value::from(2), &Value::Null));
    assert!(answer["replaced"].as_str().unwrap().starts_with(&format!("{data}.replaced-")), "{answer}");
    let nothing = path("nothing");
    assert_eq!(run(&["--data", &data], &format!("restore-backup {nothing}")).0, 2);
}

/// Without its lock, the next process that closes the log would remove what has just been answered.
#[test]
#[cfg(target_os = "linux")]
fn a_service_that_makes_backups_keeps_its_lock_of_the_log() {
    use rustix::process::{Flock, FlockOffsetType, FlockType, fcntl_getlk};
    /// The first byte and the number of those that a reader of SQLite locks one of.
    const SHARED: (u64, u64) = (0x4000_0002, 510);
    let root = tempfile::tempdir().unwrap();
    let (data, to) = (root.path().join("data"), root.path().join("backups"));
    let options = ["--listen", "127.0.0.1:0", "--backup-every", "1s"];
    let service = serve(&options, &[("--data", data.clone()), ("--backup-to", to.clone())]);
    assert_eq!(run(&["--url", &service.url], "create mydb").0, 0);
    let holder = || {
        let log = fs::File::options().read(true).write(true).open(data.join("nameservice.log.db")).unwrap();
        let mut asked = Flock::from(FlockType::WriteLock);
        (asked.offset_type, asked.start, asked.length) = (FlockOffsetType::Set, SHARED.0, SHARED.1);
        fcntl_getlk(&log, &asked).unwrap().and_then(|held| held.pid).map(|pid| pid.as_raw_nonzero().get())
    };
    let own = i32::try_from(service.process.id()).unwrap();
    assert_eq!(holder(), Some(own));
    let backups = || fs::read_dir(&to).unwrap().filter(|entry| entry.as_ref().unwrap().path().extension().is_none());
    eventually("several backups", || backups().count() >= 4);
    assert_eq!(holder(), Some(own));
    // Another process reads and closes the log.
    let saved = root.path().join("saved");
    assert_eq!(run(&["--data", data.to_str().unwrap()], &format!("backup {}", saved.display())).0, 0);
    assert_eq!(holder(), Some(own));
    assert!(fs::metadata(data.join("nameservice.log.db-wal")).unwrap().len() > 0);
}

#[test]
fn minted_tokens_open_what_their_scope_and_addresses_name_and_keys_are_replaced() {
    let directory = tempfile::tempdir().unwrap();
    let (key, other, jwks) = ("key.pem", "other.pem", "jwks.json");
    let token = |line: &str| {
        let done = program().current_dir(directory.path()).arg("token").args(line.split(' ')).output().unwrap();
        (done.status.code().unwrap(), String::from_utf8(done.stdout).unwrap().trim().to_owned())
    };
    let keys = |key: &str| token(&format!("keys --key {key} --jwks {jwks}")).0;
    assert_eq!((keys(key), keys(key)), (0, 0));
    let mode = fs::metadata(directory.path().join(key)).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600, "a private key is private");
    let options = ["--memory", "--listen", "0.0.0.0:0", "--issuer", "nameservice", "--audience", "nameservice"];
    let service = serve(&options, &[("--jwks", directory.path().join(jwks))]);
    let mint = |rest: &str| token(&format!("mint --subject ci {rest}")).1;
    let with = |token: &str, line: &str| run(&["--url", &service.url, "--token", token], line).0;
    let admin = mint("--key key.pem --scope admin");
    assert_eq!(with(&admin, "create mydb"), 0);
    assert_eq!(with(&admin, "purge mydb --yes"), 0);
    let writer = mint("--key key.pem --scope write --address mydb:* --ttl 1h");
    assert_eq!(with(&writer, "create mydb"), 0);
    assert_eq!(with(&writer, "create another"), 5);
    assert_eq!(with(&writer, "purge mydb --yes"), 5);
    let reader = mint("--key key.pem --scope read");
    assert_eq!((with(&reader, "show mydb"), with(&reader, "create b")), (0, 5));
    for wrong in ["--audience other", "--issuer other"] {
        assert_eq!(with(&mint(&format!("--key key.pem --scope admin {wrong}")), "list"), 5, "{wrong}");
    }
    // A second key beside the first: tokens of both are valid, without a restart.
    assert_eq!(keys(other), 0);
    let successor = mint("--key other.pem --scope read");
    eventually("the new key is known", || with(&successor, "list") == 0);
    assert_eq!(with(&reader, "list"), 0);
    let set: Value = serde_json::from_slice(&fs::read(directory.path().join(jwks)).unwrap()).unwrap();
    assert_eq!(set["keys"].as_array().unwrap().len(), 2);
    assert!(set["keys"][0].get("d").is_none(), "the set has no private half");

    for line in [
        "mint --key nowhere.pem --subject a --scope read",
        "mint --key jwks.json --subject a --scope read",
        "mint --key key.pem --subject a --scope all",
        "mint --key key.pem --subject a --scope read --ttl 0",
        "mint --key key.pem --subject a --scope read --address a@b",
        "keys --key new.pem --jwks key.pem",
    ] {
        assert_eq!(token(line).0, 2, "{line}");
    }
    assert!(!directory.path().join("new.pem").exists(), "no key without a set");
}

#[test]
fn a_service_starts_while_its_issuer_is_away_and_takes_tokens_once_that_answers() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    assert_eq!(run(&[], &format!("token keys --key {} --jwks {}", path("key"), path("jwks"))).0, 0);
    let (_, token, _) = run(&[], &format!("token mint --key {} --subject ci --scope write", path("key")));
    let (set, is_there) = (fs::read_to_string(path("jwks")).unwrap(), Arc::new(AtomicBool::new(false)));
    let comes = is_there.clone();
    let issuer = answering(move |_| match is_there.load(Ordering::SeqCst) {
        true => (200, set.clone()),
        false => (503, String::new()),
    });
    let options = ["--memory", "--listen", "127.0.0.1:0", "--issuer", "nameservice", "--audience", "nameservice"];
    let service = serve(&options, &[("--jwks", format!("{issuer}/jwks.json").into())]);
    let create = || run(&["--url", &service.url, "--token", token.trim()], "create mydb");
    let health = || ask(&service.url, "GET", "/v1/health", "").2;
    let (code, _, stderr) = create();
    assert!(code == 7 && stderr.contains("could not be fetched from their issuer yet"), "{stderr}");
    let degraded = health();
    assert_eq!(degraded["status"], "degraded");
    assert!(degraded["reason"].as_str().unwrap().contains("requests with tokens are answered 503"), "{degraded}");
    comes.store(true, Ordering::SeqCst);
    eventually("tokens are taken", || create().0 == 0);
    assert_eq!(health()["status"], "ok");
}

/// At and beyond each limit, in all combinations.
#[test]
fn what_is_minted_is_accepted_and_the_limit_is_named_of_what_is_not() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    assert_eq!(run(&[], &format!("token keys --key {} --jwks {}", path("key"), path("jwks"))).0, 0);
    // Of any issuer and audience: what is in them is counted, too.
    let issuers = ["nameservice".to_owned(), "i".repeat(2_000)];
    for issuer in &issuers {
        let options = ["--memory", "--listen", "0.0.0.0:0", "--issuer", issuer, "--audience", issuer];
        let service = serve(&options, &[("--jwks", path("jwks").into())]);
        let subjects = ["a".to_owned(), "\"\u{1b}é\u{1f600}".repeat(20), "s".repeat(4_000), "s".repeat(9_000)];
        for subject in &subjects {
            // How many patterns with wildcards, how many addresses, and how many bytes each has.
            for (globs, addresses, bytes) in [
                (0, 0, 0),
                (1, 1, 20),
                (100, 0, 20),
                (101, 0, 20),
                (100, 100, 20),
                (0, 101, 20),
                (20, 0, 200),
                (100, 0, 90),
                (0, 200, 90),
            ] {
                let pad = "p".repeat(bytes);
                let wide = (0..globs).map(|n| format!("{pad}{n}:*"));
                let exact = (0..addresses).map(|n| format!("{pad}{n}:dev"));
                let patterns: Vec<String> = wide.chain(exact).flat_map(|text| ["--address".into(), text]).collect();
                let key = path("key");
                let mut mint = vec!["token", "mint", "--key", &key, "--scope", "read", "--subject", subject];
                mint.extend(["--issuer", issuer, "--audience", issuer]);
                let done = program().args(mint).args(&patterns).output().unwrap();
                let [stdout, stderr] = [done.stdout, done.stderr].map(|text| String::from_utf8(text).unwrap());
                if done.status.success() {
                    let (code, _, stderr) = run(&["--url", &service.url, "--token", stdout.trim()], "list");
                    assert_eq!(code, 0, "{} patterns of {bytes}: {stderr}", patterns.len() / 2);
                } else {
                    let is_named = stderr.contains("more than 100 patterns") || stderr.contains("12288");
                    assert!(done.status.code() == Some(2) && is_named, "{stderr}");
                }
                let is_usual = issuer == "nameservice" && subject.len() < 1_000 && bytes <= 20 && globs <= 100;
                assert!(done.status.success() || !is_usual, "{} patterns of {bytes}: {stderr}", patterns.len() / 2);
            }
        }
    }
}

#[test]
fn a_key_of_openssl_signs_and_one_of_another_kind_is_rejected() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    let made = |key: &KeyPair, name: &str| fs::write(path(name), key.serialize_pem()).unwrap();
    made(&KeyPair::generate_for(&rcgen::PKCS_ED25519).unwrap(), "ed25519");
    made(&KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256).unwrap(), "p256");
    let keys = |key: &str| run(&[], &format!("token keys --key {} --jwks {}", path(key), path("jwks")));
    assert_eq!(keys("ed25519").0, 0);
    let (code, _, stderr) = keys("p256");
    assert!(code == 2 && stderr.contains("expected an Ed25519 key"), "{stderr}");
}

const PENDING: &str = r#"{"error":"authorization_pending"}"#;

/// An OpenID provider whose token endpoint answers in this order.
fn provider(answers: &'static [(u16, &'static str)]) -> String {
    counting_provider(r#""interval":0"#, answers).0
}

/// An OpenID provider, and how often its token endpoint was asked. `terms`: those of the code.
fn counting_provider(terms: &'static str, answers: &'static [(u16, &'static str)]) -> (String, Arc<AtomicUsize>) {
    let (asked, url) = (Arc::new(AtomicUsize::new(0)), Arc::new(std::sync::OnceLock::<String>::new()));
    let (own, count) = (url.clone(), asked.clone());
    let base = answering(move |path| {
        let base = own.get().cloned().unwrap_or_default();
        match path {
            "/.well-known/openid-configuration" => {
                (200, format!(r#"{{"device_authorization_endpoint":"{base}/device","token_endpoint":"{base}/token"}}"#))
            }
            "/device" => (
                200,
                format!(
                    r#"{{"device_code":"d","user_code":"WDJB-MJHT","verification_uri":"https://id.example/device",{terms}}}"#
                ),
            ),
            "/token" => {
                let (status, text) = answers[count.fetch_add(1, Ordering::SeqCst).min(answers.len() - 1)];
                (status, text.to_owned())
            }
            _ => (404, String::new()),
        }
    });
    url.set(base.clone()).unwrap();
    (base, asked)
}

#[test]
fn login_asks_once_a_second_at_most_and_takes_only_a_token_that_services_take() {
    let login = |issuer: &str| run(&[], &format!("login --issuer {issuer} --client-id cli"));
    let (issuer, asked) = counting_provider(r#""interval":0,"expires_in":2"#, &[(400, PENDING)]);
    let (code, _, stderr) = login(&issuer);
    assert!(code == 5 && stderr.contains("the code has expired"), "{stderr}");
    let asked = asked.load(Ordering::SeqCst);
    assert!((1..=2).contains(&asked), "asked {asked} times in 2 seconds");
    static GRANTS: [(&[(u16, &str)], &str); 4] = [
        (&[(200, r#"{"access_token":"","token_type":"Bearer"}"#)], "`access_token` that is empty"),
        (&[(200, r#"{"access_token":7,"token_type":"Bearer"}"#)], "expected a string"),
        (&[(200, r#"{"token_type":"Bearer"}"#)], "missing field `access_token`"),
        (&[(200, r#"{"access_token":"a.b.c","token_type":"DPoP"}"#)], "of the type DPoP"),
    ];
    for (answers, expected) in GRANTS {
        let (code, stdout, stderr) = login(&provider(answers));
        assert!(code == 5 && stdout.is_empty() && stderr.contains(expected), "{expected}: {stdout} {stderr}");
    }
}

#[test]
fn login_shows_the_code_waits_for_its_confirmation_and_prints_the_token_alone() {
    let login = |issuer: &str| run(&[], &format!("login --issuer {issuer} --client-id cli"));
    static GRANTED: &[(u16, &str)] =
        &[(400, PENDING), (503, ""), (200, r#"{"access_token":"abc.def.ghi","token_type":"bearer"}"#)];
    let (code, stdout, stderr) = login(&provider(GRANTED));
    assert_eq!((code, stdout.as_str()), (0, "abc.def.ghi\n"), "{stderr}");
    assert!(stderr.contains("https://id.example/device") && stderr.contains("WDJB-MJHT"), "{stderr}");
    static DENIED: &[(u16, &str)] = &[(400, r#"{"error":"access_denied","error_description":"not \u001b[31myou"}"#)];
    let (code, stdout, stderr) = login(&provider(DENIED));
    assert!(code == 5 && stdout.is_empty() && stderr.contains("access_denied: not \\u{1b}[31myou"), "{stderr}");
    assert_eq!(login("http://127.0.0.1:1").0, 7);
    assert_eq!(login("localhost").0, 2);
    assert_eq!(login(&answering(|_| (404, String::new()))).0, 5);
}
