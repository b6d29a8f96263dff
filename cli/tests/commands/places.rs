//! `serve --at`: the whole service over Fluree's files, in a directory and in a bucket.
//!
//! The bucket is in the S3 at `NAMESERVICE_TEST_S3`, or a container of the account of Azure at `NAMESERVICE_TEST_AZURE`, if one is set;
//! `nameservice-test` must exist there.

use std::{
    fs,
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::{TcpListener, TcpStream},
    path::PathBuf,
    sync::{Arc, Mutex},
    thread,
};

use serde_json::{Value, json};
use tempfile::TempDir;

use super::{
    LONG, Serving, program,
    replica::{ask, eventually},
    run, spawn,
};

/// Commits of Fluree's: in a place that it shares, no others are accepted.
const ID: &str = "bagaybqabciqgzqtsjbrqbffrm4ty533it7ddqf64mij4qin6czev43pzhuhgqky";
const OTHER: &str = "bagaybqabciqbaenzogzwtubin7b3vtcpe3wcuo2nsxrcgn5whve2rha4r6254si";
/// An index root of Fluree's.
const ROOT: &str = "baghybqabciqphzejdjfwlxltxmclquh6o62cyiqgzkdrax4bzm5r6sgd6fcajmy";

/// A place, its feed, and what is removed at the end.
struct Place {
    at: String,
    parent: TempDir,
    /// Where the files are, of a directory.
    files: Option<PathBuf>,
}

impl Place {
    fn directory() -> Self {
        let parent = tempfile::tempdir().unwrap();
        let files = parent.path().join("fluree");
        fs::create_dir(&files).unwrap();
        Self { at: format!("file://{}", files.display()), parent, files: Some(files) }
    }

    fn bucket(variable: &str, scheme: &str, options: &str) -> Option<Self> {
        let endpoint = std::env::var(variable).ok()?.replace(':', "%3A").replace('/', "%2F");
        let parent = tempfile::tempdir().unwrap();
        let prefix = parent.path().file_name().unwrap().to_str().unwrap().trim_start_matches('.').to_owned();
        let at = format!("{scheme}://nameservice-test/serve/{prefix}?{options}endpoint={endpoint}");
        Some(Self { at, parent, files: None })
    }

    fn all() -> Vec<Self> {
        let s3 = Self::bucket("NAMESERVICE_TEST_S3", "s3", "region=us-east-1&");
        let azure = Self::bucket("NAMESERVICE_TEST_AZURE", "az", "");
        [Some(Self::directory()), s3, azure].into_iter().flatten().collect()
    }

    fn serve(&self) -> Serving {
        let feed = self.parent.path().join("feed");
        spawn(&["--listen", "127.0.0.1:0", "--at", &self.at, "--feed-data", feed.to_str().unwrap()])
    }
}

fn changes(url: &str, after: u64) -> Vec<Value> {
    let (status, _, page) = ask(url, "GET", &format!("/v1/changes?after={after}&limit=1000"), "");
    assert_eq!(status, 200, "{page}");
    page["changes"].as_array().unwrap().clone()
}

/// Whether a change of the head to this `t` is in the feed.
fn shows_head(url: &str, address: &str, t: i64) -> bool {
    changes(url, 0).iter().any(|change| {
        (&change["address"], &change["concern"], &change["watermark"]) == (&json!(address), &json!("head"), &json!(t))
    })
}

/// Reads the event stream until a line holds this text.
fn read_events(url: &str, path: &str, until: &str) {
    let host = url.strip_prefix("http://").unwrap();
    let mut stream = TcpStream::connect(host).unwrap();
    stream.set_read_timeout(Some(LONG)).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nhost: {host}\r\naccept: text/event-stream\r\n\r\n").unwrap();
    let lines = BufReader::new(stream).lines();
    assert!(lines.map(|line| line.unwrap()).any(|line| line.contains(until)), "{path} ends without {until}");
}

fn push(url: &str, body: &Value) -> (u16, Value) {
    let (status, _, answer) = ask(url, "PUT", "/v1/heads/mydb", &body.to_string());
    (status, answer)
}

#[test]
fn files_are_served_as_every_other_backend_is() {
    for place in Place::all() {
        let service = place.serve();
        let url = service.url.as_str();
        assert_eq!(ask(url, "POST", "/v1/ledgers", r#"{"address":"mydb"}"#).0, 201, "{}", place.at);
        assert_eq!(ask(url, "POST", "/v1/ledgers", r#"{"address":"mydb"}"#).0, 409);
        let unborn = json!({"id": null, "t": 0});
        let first = json!({"expected": unborn, "new": {"id": ID, "t": 1}});
        assert_eq!(push(url, &first), (200, json!({"status": "updated", "value": {"id": ID, "t": 1}})));
        let (status, problem) = push(url, &json!({"expected": unborn, "new": {"id": OTHER, "t": 2}}));
        assert_eq!((status, &problem["actual"]), (409, &json!({"id": ID, "t": 1})), "{problem}");
        let (status, stale) = push(url, &json!({"new": {"id": OTHER, "t": 1}}));
        assert_eq!((status, &stale["status"]), (200, &json!("stale")));
        assert_eq!(push(url, &json!({"expected": {"id": ID, "t": 1}, "new": {"id": OTHER, "t": 2}})).0, 200);
        let branch = r#"{"name":"mydb","branch":"dev","source":"main"}"#;
        assert_eq!(ask(url, "POST", "/v1/branches", branch).0, 201);
        let source = r#"{"source_type":"f:Bm25Index","config":{"k1":1.2},"dependencies":["mydb"]}"#;
        assert_eq!(ask(url, "PUT", "/v1/graph-sources/search", source).0, 201);
        assert_eq!(ask(url, "POST", "/v1/retractions/mydb", "{}").0, 409, "a branch and a graph source depend on it");

        // Every write is a change, in order and without a gap.
        let all = changes(url, 0);
        for (n, change) in (1_u64..).zip(&all) {
            assert_eq!(change["position"], json!(n), "{change}");
        }
        let heads: Vec<i64> = all
            .iter()
            .filter(|change| (&change["address"], &change["concern"]) == (&json!("mydb:main"), &json!("head")))
            .map(|change| change["watermark"].as_i64().unwrap())
            .filter(|t| *t > 0)
            .collect();
        assert_eq!(heads, [1, 2], "{}", place.at);
        read_events(url, "/v1/events?after=0&address=search:*", "search:main");
        read_events(url, "/fluree/events?all=true", "mydb:dev");

        // An operation that the format does not support is rejected by name, and changes nothing.
        for (method, path, body, capability) in [
            (
                "POST",
                "/v1/transactions",
                json!({"operations": [{"op": "push_head", "address": "mydb", "new": {"id": ID, "t": 9}}]}),
                "transactions",
            ),
            (
                "PUT",
                "/v1/indexes/mydb",
                json!({"new": {"id": ROOT, "t": 2, "graphs": {"g": {"id": ROOT, "t": 1}}}}),
                "named_graphs",
            ),
            ("POST", "/v1/ledgers", json!({"address": "mydb:release/v1"}), "any_address"),
        ] {
            let (status, _, problem) = ask(url, method, path, &body.to_string());
            assert_eq!((status, &problem["capability"]), (501, &json!(capability)), "{path}: {problem}");
        }
        let health = ask(url, "GET", "/v1/health", "").2;
        assert_eq!(health["capabilities"]["feed"], "comparison", "{health}");
        assert_eq!(health["capabilities"]["transactions"], false);
        assert_eq!(ask(url, "GET", "/v1/records/mydb", "").2["head"]["t"], 2);
        assert_eq!(changes(url, 0), all, "nothing was written");
    }
}

#[test]
fn what_another_process_writes_is_in_the_feed_and_positions_outlive_the_service() {
    for place in Place::all() {
        let mut service = place.serve();
        assert_eq!(ask(&service.url, "POST", "/v1/ledgers", r#"{"address":"mydb"}"#).0, 201);
        let target = ["--at", place.at.as_str()];
        let (code, stdout, stderr) = run(&target, &format!("push head mydb {ID} 5 --monotonic"));
        assert_eq!(code, 0, "{stdout}{stderr}");
        eventually("the head that another process has pushed", || shows_head(&service.url, "mydb:main", 5));
        // Written like the files of another program, without this one.
        if let Some(files) = &place.files {
            let ledger = json!({
                "@context": {"f": "https://ns.flur.ee/db#"}, "@id": "theirs:main", "@type": ["f:LedgerSource"],
                "f:ledger": {"@id": "theirs"}, "f:branch": "main", "f:commitCid": ID, "f:t": 7, "f:status": "ready",
            });
            fs::create_dir_all(files.join("ns@v2/theirs")).unwrap();
            fs::write(files.join("ns@v2/theirs/main.json"), ledger.to_string()).unwrap();
            eventually("the file of another program", || shows_head(&service.url, "theirs:main", 7));
            fs::remove_file(files.join("ns@v2/theirs/main.json")).unwrap();
            eventually("that it is gone", || {
                changes(&service.url, 0).iter().any(|change| change["change"] == "purged")
            });
        }
        let before = changes(&service.url, 0);
        service.kill();
        // Written while no service runs.
        assert_eq!(run(&target, &format!("push head mydb {OTHER} 6 --monotonic")).0, 0);
        let service = place.serve();
        let after = changes(&service.url, 0);
        assert_eq!(after[..before.len()], before[..], "positions mean what they meant");
        assert!(shows_head(&service.url, "mydb:main", 6), "{after:#?}");
    }
}

/// An S3 that holds nothing, an STS that gives a role, and what they were asked with.
struct Aws {
    url: String,
    heads: Arc<Mutex<Vec<String>>>,
}

impl Aws {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let heads: Arc<Mutex<Vec<String>>> = Arc::default();
        let seen = heads.clone();
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let seen = seen.clone();
                thread::spawn(move || answer(stream, &seen));
            }
        });
        Self { url, heads }
    }

    /// Lists the records of a bucket, and returns the heads of the requests in small letters.
    fn list(&self, variables: &[(&str, &str)]) -> Vec<String> {
        self.heads.lock().unwrap().clear();
        let endpoint = self.url.replace(':', "%3A").replace('/', "%2F");
        let at = format!("s3://names/prefix?region=eu-west-1&endpoint={endpoint}");
        let mut command = program();
        for variable in ["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE"] {
            command.env_remove(variable);
        }
        command.env("AWS_EC2_METADATA_DISABLED", "true").envs(variables.iter().copied());
        let done = command.args(["--at", &at, "list"]).output().unwrap();
        let heads = std::mem::take(&mut *self.heads.lock().unwrap());
        assert!(done.status.success(), "{}{heads:?}", String::from_utf8_lossy(&done.stderr));
        heads
    }
}

fn answer(stream: TcpStream, seen: &Mutex<Vec<String>>) {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let mut stream = stream;
    loop {
        let (mut head, mut length) = (String::new(), 0);
        loop {
            let mut line = String::new();
            if reader.read_line(&mut line).unwrap_or(0) == 0 {
                return;
            }
            if line == "\r\n" {
                break;
            }
            let line = line.to_lowercase();
            if let Some(value) = line.strip_prefix("content-length: ") {
                length = value.trim().parse().unwrap();
            }
            head.push_str(&line);
        }
        let mut body = vec![0; length];
        reader.read_exact(&mut body).unwrap();
        let is_role = String::from_utf8_lossy(&body).contains("Action=AssumeRole");
        seen.lock().unwrap().push(head);
        let xml = match is_role {
            true => concat!(
                "<AssumeRoleResponse xmlns=\"https://sts.amazonaws.com/doc/2011-06-15/\"><AssumeRoleResult><Credentials>",
                "<AccessKeyId>AKIAROLE</AccessKeyId><SecretAccessKey>s</SecretAccessKey><SessionToken>role-token</SessionToken>",
                "<Expiration>2099-01-01T00:00:00Z</Expiration></Credentials></AssumeRoleResult></AssumeRoleResponse>",
            ),
            false => concat!(
                "<?xml version=\"1.0\"?><ListBucketResult xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\"><Name>names</Name>",
                "<Prefix></Prefix><KeyCount>0</KeyCount><MaxKeys>1000</MaxKeys><IsTruncated>false</IsTruncated></ListBucketResult>",
            ),
        };
        let length = xml.len();
        let answered =
            write!(stream, "HTTP/1.1 200 OK\r\ncontent-type: application/xml\r\ncontent-length: {length}\r\n\r\n{xml}");
        if answered.is_err() {
            return;
        }
    }
}

#[test]
fn credentials_for_a_bucket_come_by_the_chain_that_every_aws_program_uses() {
    let aws = Aws::start();
    let home = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        let path = home.path().join(name);
        fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let keys = write(
        "credentials",
        "[work]\naws_access_key_id = AKIAPROFILE\naws_secret_access_key = s\naws_session_token = profile-token\n",
    );
    let helper =
        r#"{"Version": 1, "AccessKeyId": "AKIAHELPER", "SecretAccessKey": "s", "Expiration": "2099-01-01T00:00:00Z"}"#;
    let helper = write("helper.json", helper);
    let config = write(
        "config",
        &format!(
            "[profile helper]\ncredential_process = cat {helper}\n\n[profile role]\nrole_arn = arn:aws:iam::1:role/r\n\
             source_profile = work\nregion = eu-west-1\n"
        ),
    );
    let files = [("AWS_SHARED_CREDENTIALS_FILE", keys.as_str()), ("AWS_CONFIG_FILE", config.as_str())];
    let with = |more: &[(&'static str, &str)]| -> Vec<String> { aws.list(&[&files[..], more].concat()) };
    let variables = with(&[("AWS_ACCESS_KEY_ID", "AKIAVARIABLE"), ("AWS_SECRET_ACCESS_KEY", "s")]);
    let profile = with(&[("AWS_PROFILE", "work")]);
    let helper = with(&[("AWS_PROFILE", "helper")]);
    let role = with(&[("AWS_PROFILE", "role"), ("AWS_ENDPOINT_URL_STS", &aws.url)]);
    for (heads, key) in
        [(&variables, "akiavariable"), (&profile, "akiaprofile"), (&helper, "akiahelper"), (&role, "akiarole")]
    {
        let last = heads.last().unwrap();
        let signed = last.lines().find(|line| line.starts_with("authorization: ")).unwrap();
        assert!(signed.contains(&format!("credential={key}/")), "{last}");
        assert!(signed.contains("/eu-west-1/s3/aws4_request"), "{last}");
    }
    assert!(profile.last().unwrap().contains("x-amz-security-token: profile-token"), "{profile:?}");
    assert!(role.last().unwrap().contains("x-amz-security-token: role-token"), "{role:?}");
}
