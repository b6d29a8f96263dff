//! Nameservices of every older layout, copied to the current one: with writers on both sides, and copies that are killed.
//!
//! `NAMESERVICE_MIGRATION_RECORDS=10000 cargo migration` copies that many records of each layout.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst},
    thread,
    time::{Duration, Instant},
};

use aws_sdk_dynamodb::Client;
use serde_json::{Value, json};
use tokio::runtime::Runtime;

use super::{
    Engine, ID, LONG, OTHER,
    legacy::{first_layout, former, put, single_item, specification, table},
    program,
    replica::ask,
    run, spawn_serve,
};

const RECORDS: &str = "NAMESERVICE_MIGRATION_RECORDS";
const DEFAULT_RECORDS: usize = 100;
/// How many copies are killed before one may end.
const KILLS: usize = 3;

/// Makes the row, or the file, of a record whose head is at this `t`.
type Make = fn(&str, usize, i64) -> Value;

/// An older place, and how its writers write to it.
struct Shape {
    name: String,
    /// The place to copy from.
    from: String,
    make: Make,
    key: &'static str,
    store: Store,
}

enum Store {
    Table(Client),
    Files(PathBuf),
}

impl Shape {
    fn all(engine: &Engine, parent: &Path, runtime: &Runtime) -> Vec<Self> {
        let endpoint = engine.url().replace(':', "%3A").replace('/', "%2F");
        let mut shapes = Vec::new();
        let layouts: [(&str, Make); 2] = [("v1", first_layout), ("item", single_item)];
        for (layout, make) in layouts {
            for key in ["ledger_alias", "pk"] {
                let name = format!("{layout}-{key}");
                let client = engine.client();
                runtime.block_on(table(&client, &name, key));
                let from = format!("{layout}:{name}?endpoint={endpoint}");
                shapes.push(Self { name, from, make, key, store: Store::Table(client) });
            }
        }
        let formats: [(&str, Make); 2] = [("fluree-3", former), ("specification", specification)];
        for (name, make) in formats {
            let directory = parent.join(name);
            fs::create_dir_all(directory.join("ns@v2")).unwrap();
            let from = format!("file://{}", directory.display());
            shapes.push(Self { name: name.into(), from, make, key: "", store: Store::Files(directory) });
        }
        shapes
    }

    /// Writes all records, and one entry that is not a record.
    fn fill(&self, records: usize, runtime: &Runtime) {
        match &self.store {
            Store::Table(client) => {
                let mut rows: Vec<Value> = (0..records).map(|n| (self.make)(self.key, n, t_of(n))).collect();
                rows.push(json!({self.key: "bad:name:main", "status": "ready"}));
                runtime.block_on(put(client, &self.name, &rows));
            }
            Store::Files(directory) => {
                for n in 0..records {
                    self.write_file(directory, n, t_of(n));
                }
                fs::create_dir_all(directory.join("ns@v2/bad")).unwrap();
                fs::write(directory.join("ns@v2/bad/main.json"), "{").unwrap();
            }
        }
    }

    /// Moves the head of a ledger, as a writer of the older place does.
    fn write(&self, n: usize, t: i64, runtime: &Runtime) {
        match &self.store {
            Store::Table(client) => runtime.block_on(put(client, &self.name, &[(self.make)(self.key, n, t)])),
            Store::Files(directory) => self.write_file(directory, n, t),
        }
    }

    fn write_file(&self, directory: &Path, n: usize, t: i64) {
        let file = (self.make)(self.key, n, t);
        let name = file["f:ledger"]["@id"].as_str().or(file["f:name"].as_str()).unwrap();
        let folder = directory.join("ns@v2").join(name);
        fs::create_dir_all(&folder).unwrap();
        let staged = folder.join("main.json.1.1.tmp");
        fs::write(&staged, file.to_string()).unwrap();
        fs::rename(staged, folder.join("main.json")).unwrap();
    }

    /// The address of a record, and whether it is a ledger.
    fn address(&self, n: usize) -> (String, bool) {
        let record = (self.make)(self.key, n, 1);
        let names = ["name", "ledger_name", "f:name"].map(|member| record[member].as_str());
        let name = names.into_iter().flatten().next().or(record["f:ledger"]["@id"].as_str()).unwrap();
        (format!("{name}:main"), name.starts_with("db"))
    }
}

const fn t_of(n: usize) -> i64 {
    n as i64 + 1
}

/// Writers of the target begin here, far above those of the older place.
const TARGET_T: i64 = 1_000_000;

#[test]
fn every_older_shape_is_copied_beside_writers_on_both_sides_and_kills() {
    let records = std::env::var(RECORDS).ok().map_or(DEFAULT_RECORDS, |count| count.parse().unwrap());
    let (engine, runtime, parent) = (Engine::start(), Runtime::new().unwrap(), tempfile::tempdir().unwrap());
    for shape in Shape::all(&engine, parent.path(), &runtime) {
        shape.fill(records, &runtime);
        let target = spawn_serve(&parent.path().join(format!("{}-target", shape.name)));
        let (stop, written_here) = (AtomicBool::new(false), AtomicUsize::new(0));
        let (older_t, target_t) = thread::scope(|scope| {
            let older = scope.spawn(|| {
                let mut written = BTreeMap::new();
                for (round, n) in (0..records).filter(|n| n % 7 == 1 && n % 5 != 0).cycle().enumerate() {
                    if stop.load(SeqCst) || round > 2 * records {
                        break;
                    }
                    if shape.address(n).1 {
                        let t = t_of(n) + 1 + (round / records) as i64;
                        shape.write(n, t, &runtime);
                        written.insert(n, t);
                    }
                }
                written
            });
            let newer = scope.spawn(|| {
                let mut written = BTreeMap::new();
                for n in (0..records).filter(|n| n % 5 == 2).cycle() {
                    if stop.load(SeqCst) {
                        break;
                    }
                    let t = TARGET_T + written.len() as i64;
                    let body = json!({"new": {"id": OTHER, "t": t}}).to_string();
                    let (address, is_ledger) = shape.address(n);
                    if is_ledger && ask(&target.url, "PUT", &format!("/v1/heads/{address}"), &body).0 == 200 {
                        written.insert(n, t);
                        written_here.fetch_add(1, SeqCst);
                    }
                }
                written
            });
            for kill in 1..=KILLS {
                let mut copy = program().args(["copy", &shape.from, &target.url]).spawn().unwrap();
                thread::sleep(Duration::from_millis(150 * kill as u64));
                copy.kill().unwrap();
                copy.wait().unwrap();
            }
            // Independent of the number of records: the last copy is killed once the target's writer has found some of them.
            let mut copy = program().args(["copy", &shape.from, &target.url]).spawn().unwrap();
            let until = Instant::now() + LONG;
            while written_here.load(SeqCst) < 5 && Instant::now() < until {
                thread::sleep(Duration::from_millis(5));
            }
            copy.kill().unwrap();
            copy.wait().unwrap();
            stop.store(true, SeqCst);
            (older.join().unwrap(), newer.join().unwrap())
        });
        assert!(written_here.load(SeqCst) >= 5, "{}: the target's writer makes no progress", shape.name);
        let (code, stdout, stderr) = run(&["--json"], &format!("copy {} {}", shape.from, target.url));
        let report: Value = serde_json::from_str(&stdout).unwrap_or_else(|_| panic!("{stdout}{stderr}"));
        assert_eq!(code, 3, "one of them is no record: {report:#}");
        assert_eq!(report["unreadable"]["count"], 1, "{}: {report:#}", shape.name);
        for outcome in ["diverged", "behind", "rejected"] {
            assert_eq!(report[outcome]["count"], 0, "{}: {report:#}", shape.name);
        }
        let kept = (0..records).filter(|n| shape.address(*n).1 && is_kept(&shape, *n)).count();
        assert_eq!(report["kept_addresses"]["count"].as_u64().unwrap_or(0), kept as u64, "{}", shape.name);
        judge_target(&shape, &target.url, records, &older_t, &target_t);
        let (code, stdout, _) = run(&["--json"], &format!("copy {} {}", shape.from, target.url));
        let again: Value = serde_json::from_str(&stdout).unwrap();
        assert_eq!((code, &again["copied"]["count"]), (3, &json!(0)), "{}: {again:#}", shape.name);
        println!(
            "{}: {records} records, {} written there and {} here meanwhile, {kept} keep their addresses",
            shape.name,
            older_t.len(),
            target_t.len()
        );
    }
}

/// Whether the head of a record has an address without a content id.
fn is_kept(shape: &Shape, n: usize) -> bool {
    let record = (shape.make)(shape.key, n, 1);
    let address = ["/commit_address", "/f:commit/@id", "/f:ledgerCommit/@id"].map(|path| record.pointer(path));
    address.into_iter().flatten().any(|address| !address.as_str().unwrap().contains("bafy"))
}

/// Panics unless the target has every record as the older place shows it, or as others have written it here.
fn judge_target(
    shape: &Shape,
    url: &str,
    records: usize,
    older_t: &BTreeMap<usize, i64>,
    target_t: &BTreeMap<usize, i64>,
) {
    let (mut found, mut cursor) = (BTreeMap::new(), String::new());
    loop {
        let page = ask(url, "GET", &format!("/v1/snapshot?limit=1000{cursor}"), "").2;
        for record in page["records"].as_array().unwrap() {
            let before = found.insert(record["address"].as_str().unwrap().to_owned(), record.clone());
            assert_eq!(before, None);
        }
        match page["cursor"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => break,
        }
    }
    assert_eq!(found.len(), records, "{}", shape.name);
    for n in 0..records {
        let (address, is_ledger) = shape.address(n);
        let record = &found[&address];
        assert_eq!(record["kind"] == "ledger", is_ledger, "{record:#}");
        if !is_ledger {
            assert_eq!(record["dependencies"], json!([format!("db{}:main", n + 1)]), "{record:#}");
            continue;
        }
        let t = older_t.get(&n).copied().unwrap_or_else(|| t_of(n));
        let head = match target_t.get(&n) {
            Some(t) => json!({"id": OTHER, "t": t}),
            None if is_kept(shape, n) => {
                assert_eq!(record["config"]["payload"]["legacy_address"]["head"]["t"], json!(t), "{record:#}");
                json!({"id": null, "t": 0})
            }
            None => json!({"id": ID, "t": t}),
        };
        assert_eq!(record["head"], head, "{}: {record:#}", shape.name);
        assert_eq!(record["index"]["t"], json!(t_of(n)), "{}: {record:#}", shape.name);
    }
    // Whatever the order of writes, no head went back.
    let (mut after, mut heads) = (0, BTreeMap::new());
    loop {
        let page = ask(url, "GET", &format!("/v1/changes?after={after}&concern=head&limit=1000"), "").2;
        for change in page["changes"].as_array().unwrap() {
            // A retraction marks the head where it is.
            if change["change"] == "retracted" {
                continue;
            }
            let t = change["watermark"].as_i64().unwrap();
            let before = heads.insert(change["address"].clone().to_string(), t).unwrap_or(-1);
            assert!(t > before, "{change:#}");
        }
        let position = page["position"].as_u64().unwrap();
        if position == after {
            return;
        }
        after = position;
    }
}

#[test]
fn a_table_of_todays_layout_is_no_older_one() {
    let (engine, parent) = (Engine::start(), tempfile::tempdir().unwrap());
    let endpoint = engine.url().replace(':', "%3A").replace('/', "%2F");
    assert_eq!(run(&["--endpoint-url", engine.url()], "init").0, 0);
    let (code, _, stderr) =
        run(&[], &format!("copy v1:fluree-nameservice?endpoint={endpoint} embedded:{}/x", parent.path().display()));
    assert!(code == 2 && stderr.contains("today's layout"), "{code} {stderr}");
}
