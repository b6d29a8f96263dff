//! Transactions that append to the chains of several records, and read: checked by Elle for cycles of dependencies, and judged
//! for strict serializability as any history.
//!
//! A client reads by `check`s, by the heads that it expects to replace, and by what a rejection shows; if the backend can read
//! all records at one position, it does that too. In the end the change feed shows each chain whole.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
    time::Duration,
};

use futures_util::future::join_all;
use http::Method;
use nameservice_http::Auth;
use nameservice_tests::{cids::id_of, in_process::InProcess, prelude::*};
use rand::{RngExt as _, SeedableRng as _, rngs::StdRng, seq::IndexedRandom as _};

use super::{
    CLIENTS, Figures, Mix, RATE, SEED, STEPS, both_judge,
    clients::{Client, Sent, World},
    create,
    elle::{self, Checked, Seen, Transaction, Version},
    feed,
    judge::Entry,
    process::Process,
    replicas::two_replicas,
    seeds,
    spec::{Answered, Asked, Concern, Spot},
};

const RECORDS: usize = 3;

fn prefix(round: usize) -> String {
    format!("a{round}-")
}

fn names(round: usize) -> Vec<String> {
    (0..RECORDS).map(|n| format!("{}{n}:main", prefix(round))).collect()
}

/// A read of all records of a history together.
struct View {
    transaction: Transaction,
    /// Of a replica: the position that it was at; else `None`.
    position: Option<u64>,
}

/// Where all records can be read together.
#[derive(Clone)]
enum Views {
    Nowhere,
    At(String),
    AtReplicas(Vec<String>),
}

/// A client that appends and reads.
struct Appender {
    client: Client,
    prefix: String,
    views: Views,
    seen: Vec<View>,
}

impl Appender {
    async fn run(mut self) -> Vec<View> {
        for _ in 0..STEPS {
            match self.client.random.random_range(0..10) {
                0..2 => self.read().await,
                2..4 => self.read_all().await,
                _ => self.transaction(0.3).await,
            }
        }
        self.seen
    }

    async fn read(&mut self) {
        let record = self.client.record();
        let path = format!("/v1/records/{record}?concerns=head");
        let invoked = self.client.world.recorder.tick();
        let Sent::Answered(answer) = self.client.send(Method::GET, &path, None, None).await else { return };
        let returned = self.client.world.recorder.tick();
        if answer.problem() == "unavailable" {
            return;
        }
        assert_eq!(answer.status, 200, "GET {path}: {answer:?}");
        let (spot, head) = (Spot::new(&record, Concern::Head), answer.body["head"].clone());
        self.client.learn(&spot, &head);
        self.client.world.recorder.record(Entry {
            client: self.client.number,
            asked: Arc::new(Asked::Read(spot)),
            invoked,
            returned: Some((returned, Arc::new(Answered { status: 200, body: head }))),
            repeated: false,
        });
    }

    /// Reads all records at one position: by a snapshot, or else by a transaction of checks alone.
    async fn read_all(&mut self) {
        let place = match &self.views {
            Views::Nowhere => None,
            Views::At(url) => Some((url.clone(), None)),
            Views::AtReplicas(urls) => {
                let replica = self.client.random.random_range(0..urls.len());
                Some((urls[replica].clone(), Some(replica)))
            }
        };
        let Some((url, replica)) = place else { return self.transaction(1.0).await };
        let path = format!("/v1/snapshot?limit=1000&prefix={}", self.prefix);
        let invoked = self.client.world.recorder.tick();
        let Some(page) = feed::get(&url, &path).await else { return };
        let returned = self.client.world.recorder.tick();
        // The position of a page is taken before its records are read: they belong to it if it is still the same afterwards.
        let position = match replica {
            None => None,
            Some(_) => match feed::get(&url, "/v1/snapshot?limit=1").await {
                Some(after) if after["position"] == page["position"] => page["position"].as_u64(),
                _ => return,
            },
        };
        let mut reads = Vec::new();
        for record in page["records"].as_array().unwrap() {
            let address = record["address"].as_str().unwrap().to_owned();
            self.client.learn(&Spot::new(&address, Concern::Head), &record["head"]);
            reads.push((address, Seen::Last(Version::shown(&record["head"]).unwrap())));
        }
        let transaction = Transaction::reading(self.client.number, invoked, returned, reads);
        self.seen.push(View { transaction: Transaction { replica, ..transaction }, position });
    }

    /// Commits a transaction; `checks` is the share of its operations that are checks.
    async fn transaction(&mut self, checks: f64) {
        let mut spots: Vec<Spot> = Vec::new();
        for _ in 0..self.client.random.random_range(2..5) {
            let spot = Spot::new(&self.client.record(), Concern::Head);
            if !spots.contains(&spot) {
                spots.push(spot);
            }
        }
        let operations: Vec<Value> = spots.iter().map(|spot| self.operation(spot, checks)).collect();
        let body = json!({ "operations": operations });
        let asked = Asked::Transaction(operations);
        let Some(answer) = self.client.call(asked, Method::POST, "/v1/transactions", Some(body)).await else { return };
        let results = answer.body["results"].as_array().cloned().unwrap_or_default();
        for (spot, result) in spots.iter().zip(results) {
            self.client.learn(spot, result.get("value").or(result.get("actual")).unwrap_or(&Value::Null));
        }
    }

    fn operation(&mut self, spot: &Spot, checks: f64) -> Value {
        let known = self.client.known(spot);
        let expected = json!({ "id": known["id"], "t": known["t"] });
        if self.client.random.random_bool(checks) {
            return json!({ "op": "check", "address": spot.record, "concern": "head", "expected": expected });
        }
        let id = id_of(&format!("element {}", self.client.number()));
        let ahead = *[1, 1, 1, 2].choose(&mut self.client.random).unwrap();
        let new = json!({ "id": id.as_str(), "t": known["t"].as_i64().unwrap() + ahead });
        match self.client.random.random_bool(0.75) {
            true => json!({ "op": "push_head", "address": spot.record, "expected": expected, "new": new }),
            // Appends to any head below it.
            false => json!({ "op": "push_head", "address": spot.record, "new": new }),
        }
    }
}

/// Lets clients append to the records of a round; returns their calls, and what they saw of all records together.
async fn append(world: &Arc<World>, round: usize, seed: u64, views: Views) -> (Vec<Entry>, Vec<View>) {
    let clients = (0..CLIENTS).map(|number| {
        let client = Client::new(number, seed, world.clone());
        let appender = Appender { client, prefix: prefix(round), views: views.clone(), seen: Vec::new() };
        tokio::spawn(appender.run())
    });
    let mut seen = Vec::new();
    for views in join_all(clients).await {
        seen.extend(views.unwrap_or_else(|error| panic!("{SEED}={seed}: {error}")));
    }
    (world.recorder.take(), seen)
}

/// The heads in a change feed, in its order.
struct Chains {
    url: String,
    after: u64,
    heads: Vec<(u64, String, Version)>,
}

impl Chains {
    fn of(url: &str) -> Self {
        Self { url: url.to_owned(), after: 0, heads: Vec::new() }
    }

    /// Reads the rest of the feed, and returns the chains that it has of these records.
    async fn read(&mut self, world: &World, records: &[String]) -> Transaction {
        let invoked = world.recorder.tick();
        loop {
            let page = feed::get(&self.url, &format!("/v1/changes?after={}&limit=1000", self.after)).await.unwrap();
            let changes = page["changes"].as_array().unwrap();
            if changes.is_empty() {
                break;
            }
            self.after = page["position"].as_u64().unwrap();
            for change in changes.iter().filter(|change| change["concern"] == "head") {
                let version = Version::shown(&change["payload"]).filter(|version| version.id.is_some());
                let Some(version) = version else { continue };
                let (position, address) = (change["position"].as_u64().unwrap(), change["address"].as_str().unwrap());
                self.heads.push((position, address.to_owned(), version));
            }
        }
        let mut chains: BTreeMap<&String, Vec<Version>> = records.iter().map(|record| (record, Vec::new())).collect();
        for (_, address, version) in &self.heads {
            if let Some(chain) = chains.get_mut(address) {
                chain.push(version.clone());
            }
        }
        let reads = chains.into_iter().map(|(record, chain)| (record.clone(), Seen::All(chain))).collect();
        Transaction::reading(CLIENTS, invoked, world.recorder.tick(), reads)
    }

    /// The ranges of positions that lie within transactions: from the first change of each until before its last.
    fn within(&self, transactions: &[Transaction]) -> Vec<(u64, u64)> {
        let positions: HashMap<(&str, &Version), u64> =
            self.heads.iter().map(|(position, address, version)| ((address.as_str(), version), *position)).collect();
        let of = |transaction: &Transaction| {
            let at =
                transaction.appends.iter().filter_map(|(record, version)| positions.get(&(record.as_str(), version)));
            let (first, last) = (at.clone().min()?, at.max()?);
            Some((*first, *last))
        };
        transactions.iter().filter_map(of).collect()
    }
}

/// What the checks have counted.
#[derive(Default)]
struct Counts {
    figures: Figures,
    checked: Checked,
    views: usize,
    /// Views at a replica that fall within a transaction, and show a part of it.
    within: usize,
}

impl Counts {
    /// Judges a history: `others` are reads that are not among the calls.
    async fn judge(&mut self, seed: u64, entries: Vec<Entry>, others: impl IntoIterator<Item = Transaction>) {
        let transactions: Vec<Transaction> = entries.iter().flat_map(elle::transactions_of).chain(others).collect();
        let checked = elle::check(&transactions).unwrap_or_else(|anomaly| panic!("{SEED}={seed}\n{anomaly}"));
        self.checked.add(&checked);
        self.figures.judged.add(&both_judge(entries, false, seed).await);
    }

    fn print(&self, name: &str) {
        let Checked { transactions, unknown, appends, dependencies } = &self.checked;
        self.figures.print(name);
        println!(
            "  Elle: {transactions} transactions ({unknown} whose answers were lost), {appends} appends, {dependencies} \
             dependencies, no cycle; {} reads of all records at one position, {} of a replica within a transaction left out",
            self.views, self.within
        );
        assert!(*appends > 0, "nothing was appended");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn over_dynamodb_no_cycle_connects_transactions_whatever_is_lost_on_the_way() {
    let service = Service::on(Proxied::fresh().await, Auth::Open).await;
    let proxy = Proxy::start(service.url()).await;
    let mut counts = Counts::default();
    for (round, seed) in seeds().enumerate() {
        let names = names(round);
        create(service.url(), &names).await;
        service.table.proxy.strike_at_random(seed, RATE);
        proxy.strike_at_random(seed + 1, RATE);
        let urls = vec![proxy.url().to_owned(), service.url().to_owned()];
        let world = Arc::new(World::new(urls, names.clone(), Mix::TRANSACTIONS));
        let (entries, _) = append(&world, round, seed, Views::Nowhere).await;
        counts.figures.add(service.table.proxy.stop_striking());
        counts.figures.add(proxy.stop_striking());
        service.table.proxy.take_requests();
        proxy.take_requests();
        let mut last = Vec::new();
        for record in &names {
            let invoked = world.recorder.tick();
            let shown = feed::get(service.url(), &format!("/v1/records/{record}")).await.unwrap();
            let read = (record.clone(), Seen::Last(Version::shown(&shown["head"]).unwrap()));
            last.push(Transaction::reading(CLIENTS, invoked, world.recorder.tick(), vec![read]));
        }
        counts.judge(seed, entries, last).await;
    }
    counts.print("appends over DynamoDB");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn over_the_embedded_backend_no_cycle_connects_transactions_whatever_is_lost_on_the_way() {
    let service = InProcess::new();
    let url = service.serve().await;
    let proxy = Proxy::start(&url).await;
    let (mut counts, mut chains) = (Counts::default(), Chains::of(&url));
    for (round, seed) in seeds().enumerate() {
        let names = names(round);
        create(&url, &names).await;
        proxy.strike_at_random(seed, RATE);
        let urls = vec![proxy.url().to_owned(), url.clone()];
        let world = Arc::new(World::new(urls, names.clone(), Mix::TRANSACTIONS));
        let (entries, views) = append(&world, round, seed, Views::At(url.clone())).await;
        counts.figures.add(proxy.stop_striking());
        proxy.take_requests();
        let whole = chains.read(&world, &names).await;
        counts.views += views.len();
        let views = views.into_iter().map(|view| view.transaction);
        counts.judge(seed, entries, views.chain([whole])).await;
    }
    counts.print("appends over the embedded backend");
    assert!(counts.views > 0, "no client read all records together");
}

/// A replica may stop between two changes of a transaction and show a part of it, at a position at which its upstream never was.
/// It promises what the upstream was at its position, so reads there are left out.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn over_replicas_no_cycle_connects_transactions_whatever_is_cut_or_killed() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    let mut upstream = Process::start(&["--data", &path("upstream")]).await;
    let (mut links, mut replicas) = two_replicas(&upstream, path).await;
    let urls: Vec<String> = replicas.iter().map(Process::url).collect();
    let (mut counts, mut chains) = (Counts::default(), Chains::of(&upstream.url()));
    for (round, seed) in seeds().enumerate() {
        let names = names(round);
        create(&upstream.url(), &names).await;
        let all = [urls.clone(), vec![upstream.url()]].concat();
        let mut world = World::new(all, names.clone(), Mix::TRANSACTIONS);
        world.readable = vec![upstream.url()];
        let world = Arc::new(world);
        let mut random = StdRng::seed_from_u64(seed);
        let (entries, views) = {
            let history = append(&world, round, seed, Views::AtReplicas(urls.clone()));
            tokio::pin!(history);
            loop {
                let pause = Duration::from_millis(random.random_range(20..300));
                tokio::select! {
                    history = &mut history => break history,
                    () = world.until_the_next_fault(pause) => match random.random_range(0..8) {
                        0 => replicas[random.random_range(0..2)].kill_and_restart().await,
                        1 => upstream.kill_and_restart().await,
                        _ => links[random.random_range(0..2)].interrupt(pause / 2).await,
                    },
                }
            }
        };
        let whole = chains.read(&world, &names).await;
        let appended: Vec<Transaction> = entries.iter().flat_map(elle::transactions_of).collect();
        let within = chains.within(&appended);
        let is_whole = |view: &View| {
            let at = view.position.unwrap_or_default();
            !within.iter().any(|(first, last)| *first <= at && at < *last)
        };
        let (whole_views, parts): (Vec<View>, Vec<View>) = views.into_iter().partition(is_whole);
        counts.views += whole_views.len();
        counts.within += parts.len();
        let views = whole_views.into_iter().map(|view| view.transaction);
        counts.judge(seed, entries, views.chain([whole])).await;
    }
    let figures = &mut counts.figures;
    figures.count("links cut", links.iter().map(|link| link.cuts).sum());
    figures.count("upstream killed with -9", upstream.kills);
    figures.count("replicas killed with -9", replicas.iter().map(|replica| replica.kills).sum());
    counts.print("appends over two replicas");
}
