//! The search sink and the search over OpenSearch: on a server of the tests, or on the one that `NAMESERVICE_TEST_OPENSEARCH` names.

mod searching;
mod server;

use std::{
    collections::{BTreeMap, BTreeSet},
    env,
    sync::{Arc, Mutex},
};

use async_trait::async_trait;
use nameservice_embedded::{Embedded, Options};
use nameservice_opensearch::{Created, Document, MAX_READ_AGE, OpenSearch, mapping, rebuild};
use nameservice_tests::prelude::*;
use rand::{RngExt as _, SeedableRng as _, rngs::StdRng, seq::SliceRandom as _};
use search_sink::{DeadLetters, Message, Sink};
use topic_publisher::cloud_event;

use self::server::Server;

/// If this variable names an OpenSearch, the tests that need no faults run there, too.
const ENDPOINT: &str = "NAMESERVICE_TEST_OPENSEARCH";
const NAMES: [&str; 8] = [
    "a:main",
    "a:dev",
    "tenant/a/books:main",
    "tenant/b/old-books:main",
    "books:dev",
    "s:main",
    "t_x:main",
    "ünïcode:main",
];

/// Keeps dead letters, unless it has to fail.
#[derive(Default)]
struct Kept(Mutex<(Vec<(Message, String)>, bool)>);

#[async_trait]
impl DeadLetters for Kept {
    async fn store(&self, message: &Message, reason: &str) -> Result<(), BoxError> {
        let mut kept = self.0.lock().unwrap();
        if kept.1 {
            return Err("the queue is away".into());
        }
        kept.0.push((message.clone(), reason.to_owned()));
        Ok(())
    }
}

struct Ground {
    names: Embedded,
    index: OpenSearch,
    sink: Sink,
    dead: Arc<Kept>,
}

/// The engine of CI where there is one, else a server of the tests: its URL, and the name of an index there.
async fn engine() -> (String, String) {
    match env::var(ENDPOINT) {
        Ok(url) => (url, format!("names-{}", uuid::Uuid::new_v4())),
        Err(_) => (format!("http://{}", Server::start().await.1), "names".to_owned()),
    }
}

/// Creates an index as somebody else would.
async fn put_index(url: &str, index: &str, body: &Value) {
    let put = reqwest::Client::new().put(format!("{url}/{index}")).header("content-type", "application/json");
    assert!(put.body(body.to_string()).send().await.unwrap().status().is_success());
}

impl Ground {
    async fn over(index: OpenSearch) -> Self {
        assert_eq!(index.create().await.unwrap(), Created::Created);
        assert_eq!(index.create().await.unwrap(), Created::Exists);
        Self::before_the_index(index)
    }

    fn before_the_index(index: OpenSearch) -> Self {
        let names = Embedded::memory(Options::default()).unwrap();
        let dead = Arc::new(Kept::default());
        let sink = Sink::new(Arc::new(names.clone()), index.clone(), dead.clone());
        Self { names, index, sink, dead }
    }

    /// Over a server of the tests.
    async fn new() -> (Self, Server) {
        let (server, address) = Server::start().await;
        let index = OpenSearch::new(&format!("http://{address}"), "names", None).unwrap();
        (Self::over(index).await, server)
    }

    /// Over the engine of CI where there is one, else over a server of the tests.
    async fn on_the_engine() -> Self {
        let (url, name) = engine().await;
        Self::over(OpenSearch::new(&url, &name, None).unwrap()).await
    }

    /// The messages of the changes after a position, as the topic sends them to the queue.
    async fn messages(&self, after: u64) -> Vec<Value> {
        let Run::Changes(changes) = self.names.changes(after, Limit::MAX).await.unwrap() else { panic!("gone") };
        changes.iter().map(message).collect()
    }

    async fn deliver(&self, messages: &[Value]) -> Vec<String> {
        let response = self.sink.handle(json!({ "Records": messages })).await;
        response.failed().into_iter().map(str::to_owned).collect()
    }

    /// The documents of all names that are there, without their versions.
    async fn documents(&self) -> BTreeMap<String, Document> {
        let mut found = BTreeMap::new();
        for name in NAMES {
            if let Some(document) = self.index.get(&at(name)).await.unwrap() {
                found.insert(name.to_owned(), Document { position: 0, ..document });
            }
        }
        found
    }

    /// The documents that should be there, from a scan.
    async fn scanned(&self) -> BTreeMap<String, Document> {
        let page = self.names.snapshot(Limit::MAX, None, &anything).await.unwrap();
        page.items.iter().map(|record| (record.address.as_str().to_owned(), Document::of(record, 0))).collect()
    }
}

fn message(change: &Change) -> Value {
    let event = serde_json::to_string(&cloud_event("/nameservice/test", change).unwrap()).unwrap();
    let body = json!({ "Type": "Notification", "Message": event }).to_string();
    json!({ "messageId": format!("m{}", change.position), "body": body })
}

/// One random write. Outcomes of any kind are fine.
async fn write(names: &Embedded, rng: &mut StdRng) {
    let (call, address, t) = (Call::fresh(), at(NAMES[rng.random_range(0..NAMES.len())]), rng.random_range(1..9));
    match rng.random_range(0..8) {
        0 | 1 => drop(names.create_ledger(&call, &address, None, None).await.unwrap()),
        2 => drop(names.push_head(&call, &address, &older(new_head(t))).await.unwrap()),
        3 => {
            let Some(expected) = names.config(&address).await.unwrap() else { return };
            let new = new_config(json!({ "url": format!("https://books.example/{t}"), "password": "Hidden" }));
            drop(names.push_config(&call, &address, &cas(expected, new)).await.unwrap());
        }
        4 => drop(names.retract(&call, &address, None).await.unwrap()),
        5 => drop(names.restore(&call, &address).await.unwrap()),
        6 => drop(names.purge(&call, &address).await.unwrap()),
        _ => drop(
            names.publish_graph_source(&call, &bm25(&address, json!({ "k": t, "of": "Books" }), &[])).await.unwrap(),
        ),
    }
}

#[tokio::test]
async fn documents_are_what_a_scan_gives_however_messages_come() {
    for seed in 0..8 {
        let (ground, server) = Ground::new().await;
        let mut rng = StdRng::seed_from_u64(seed);
        let (mut queue, mut seen) = (Vec::new(), 0);
        for round in 0..12 {
            for _ in 0..10 {
                write(&ground.names, &mut rng).await;
            }
            let new = ground.messages(seen).await;
            seen += new.len() as u64;
            // Some of them twice, and in any order.
            queue.extend(new.iter().filter(|_| rng.random_bool(0.3)).cloned().collect::<Vec<_>>());
            queue.extend(new);
            queue.shuffle(&mut rng);
            server.fail(NAMES[rng.random_range(0..NAMES.len())], if round % 2 == 0 { 429 } else { 503 }, 2);
            server.down((round % 5 == 4).then_some(503));
            let taken: Vec<Value> = queue.drain(..queue.len() / 2).collect();
            let failed: BTreeSet<String> = ground.deliver(&taken).await.into_iter().collect();
            // What failed comes again, what did not is gone.
            queue.extend(taken.into_iter().filter(|message| failed.contains(message["messageId"].as_str().unwrap())));
        }
        server.down(None);
        for _ in 0..3 {
            queue.shuffle(&mut rng);
            let failed = ground.deliver(&queue).await;
            queue.retain(|message| failed.iter().any(|id| message["messageId"] == id.as_str()));
        }
        assert!(queue.is_empty(), "seed {seed}: {queue:?}");
        assert_eq!(ground.documents().await, ground.scanned().await, "seed {seed}");
        assert!(ground.dead.0.lock().unwrap().0.is_empty());
    }
}

#[tokio::test]
async fn documents_on_the_engine_are_what_a_scan_gives() {
    let ground = Ground::on_the_engine().await;
    let mut rng = StdRng::seed_from_u64(11);
    for _ in 0..100 {
        write(&ground.names, &mut rng).await;
    }
    let mut messages = ground.messages(0).await;
    messages.shuffle(&mut rng);
    for some in messages.chunks(7) {
        assert!(ground.deliver(some).await.is_empty());
    }
    assert!(ground.deliver(&messages).await.is_empty(), "all of them again");
    assert_eq!(ground.documents().await, ground.scanned().await);
}

#[tokio::test]
async fn a_sink_before_the_index_creates_nothing_and_its_messages_come_again() {
    let (url, name) = engine().await;
    let ground = Ground::before_the_index(OpenSearch::new(&url, &name, None).unwrap());
    drop(ground.names.create_ledger(&Call::fresh(), &at("a:main"), None, None).await.unwrap());
    let documents = ground.messages(0).await;
    assert_eq!(ground.deliver(&documents).await.len(), documents.len(), "documents alone");
    drop(ground.names.create_ledger(&Call::fresh(), &at("s:main"), None, None).await.unwrap());
    let _ = ground.names.purge(&Call::fresh(), &at("s:main")).await.unwrap();
    let deletions = ground.messages(documents.len() as u64).await;
    assert_eq!(ground.deliver(&deletions).await.len(), deletions.len(), "deletions alone");
    let all = [documents, deletions].concat();
    assert_eq!(ground.deliver(&all).await.len(), all.len(), "both");
    let rejected = rebuild(&ground.index, &ground.names, &ground.names, &|_| {}).await.unwrap_err();
    assert!(chain(&rejected).contains("`nameservice aws search-index init` creates the index"), "{}", chain(&rejected));

    assert_eq!(ground.index.create().await.unwrap(), Created::Created, "nothing has created it");
    assert!(ground.deliver(&all).await.is_empty());
    assert_eq!(ground.documents().await, ground.scanned().await);
    assert!(ground.dead.0.lock().unwrap().0.is_empty());
}

#[tokio::test]
async fn an_index_that_differs_is_named_with_what_differs() {
    let guessed = json!({ "properties": { "address": { "type": "text" }, "other": { "type": "long" } } });
    for is_alias in [false, true] {
        let (url, name) = engine().await;
        let index = OpenSearch::new(&url, &name, None).unwrap();
        let alias = name.as_str();
        let (made, aliases) = match is_alias {
            true => (format!("{name}-000001"), json!({ alias: {} })),
            false => (name.clone(), json!({})),
        };
        put_index(&url, &made, &json!({ "aliases": aliases, "mappings": guessed })).await;
        let error = index.create().await.unwrap_err().to_string();
        assert_eq!(error.contains("it is an index, and must be the alias of one"), !is_alias, "{error}");
        for part in [
            format!("`{made}` cannot be the search index: "),
            r#"the property `address` is {"type":"text"} instead of {"type":"keyword"}"#.to_owned(),
            r#"the property `other` is {"type":"long"} instead of null"#.to_owned(),
            r#"`dynamic` is null instead of "strict""#.to_owned(),
            r#"the setting `index.gc_deletes` is null instead of "3600s""#.to_owned(),
        ] {
            assert!(error.contains(&part), "{part}: {error}");
        }
    }
}

#[tokio::test]
async fn an_index_that_is_no_alias_is_not_written() {
    let (url, name) = engine().await;
    let ground = Ground::before_the_index(OpenSearch::new(&url, &name, None).unwrap());
    put_index(&url, &name, &mapping()).await;
    drop(ground.names.create_ledger(&Call::fresh(), &at("a:main"), None, None).await.unwrap());
    let messages = ground.messages(0).await;
    assert_eq!(ground.deliver(&messages).await.len(), messages.len(), "they come again");
    let rejected = rebuild(&ground.index, &ground.names, &ground.names, &|_| {}).await.unwrap_err();
    assert!(chain(&rejected).contains("`nameservice aws search-index init` creates the index"), "{}", chain(&rejected));
    assert!(ground.documents().await.is_empty());
    assert!(ground.dead.0.lock().unwrap().0.is_empty());
    assert_eq!(
        ground.index.create().await.unwrap_err().to_string(),
        format!(
            "`{name}` cannot be the search index: it is an index, and must be the alias of one. Delete it, or name another \
             index, and run `nameservice aws search-index init` and `rebuild`"
        )
    );
}

#[tokio::test]
async fn an_index_that_has_lost_its_alias_is_named() {
    let (url, name) = engine().await;
    let index = OpenSearch::new(&url, &name, None).unwrap();
    put_index(&url, &format!("{name}-000001"), &mapping()).await;
    let error = index.create().await.unwrap_err().to_string();
    let expected = format!("`{name}-000001` cannot be the search index: it exists without the alias `{name}`");
    assert!(error.starts_with(&expected), "{error}");
}

#[tokio::test]
async fn of_concurrent_inits_one_creates_the_index_and_the_others_find_it() {
    let (url, name) = engine().await;
    let index = OpenSearch::new(&url, &name, None).unwrap();
    let (one, two, three) = tokio::join!(index.create(), index.create(), index.create());
    let outcomes = [one.unwrap(), two.unwrap(), three.unwrap()];
    let created = outcomes.iter().filter(|outcome| **outcome == Created::Created).count();
    assert_eq!(created, 1, "{outcomes:?}");
}

#[tokio::test]
async fn each_message_of_a_batch_has_an_outcome_of_its_own() {
    let (ground, server) = Ground::new().await;
    for name in ["a:main", "books:dev", "s:main"] {
        drop(ground.names.create_ledger(&Call::fresh(), &at(name), None, None).await.unwrap());
    }
    let messages = ground.messages(0).await;
    let of = |name: &str| -> Vec<String> {
        let about = |message: &&Value| message["body"].as_str().unwrap().contains(&format!("{name}\\"));
        messages.iter().filter(about).map(|message| message["messageId"].as_str().unwrap().to_owned()).collect()
    };
    let poison = json!({ "messageId": "poison", "body": "no JSON" });
    let all: Vec<Value> = messages.iter().cloned().chain([poison]).collect();
    server.fail("a:main", 503, 1);
    server.fail("books:dev", 400, 1);
    assert_eq!(ground.deliver(&all).await, of("a:main"), "what may succeed later comes again");
    assert_eq!(ground.documents().await.into_keys().collect::<Vec<_>>(), ["s:main"], "the rest continues");
    let dead = ground.dead.0.lock().unwrap().0.clone();
    let poison: Vec<_> = dead.iter().filter(|(message, _)| message.body() == "no JSON").collect();
    assert_eq!(poison.len(), 1, "poison is kept as it was");
    let rejected: Vec<_> = dead.iter().filter(|(_, reason)| reason.starts_with("400")).collect();
    assert_eq!(rejected.len(), of("books:dev").len());
    // Dead letters can be delivered again as they are.
    let again: Vec<Value> = rejected
        .iter()
        .map(|(message, _)| json!({ "messageId": "again", "body": message.body() }))
        .chain(messages.clone())
        .collect();
    assert!(ground.deliver(&again).await.is_empty());
    assert_eq!(ground.documents().await, ground.scanned().await);

    // Dead letters that cannot be kept stay in the queue.
    ground.dead.0.lock().unwrap().1 = true;
    server.fail("s:main", 400, 1);
    drop(ground.names.push_head(&Call::fresh(), &at("s:main"), &older(new_head(5))).await.unwrap());
    let last = ground.messages(messages.len() as u64).await;
    let failed = ground.deliver(&[last.clone(), vec![json!({ "messageId": "poison", "body": "{}" })]].concat()).await;
    assert_eq!(failed.len(), 2, "{failed:?}");
    // So does everything while the index is away, or is missing.
    server.down(Some(403));
    assert_eq!(ground.deliver(&last).await.len(), 1);
}

#[tokio::test]
async fn a_purged_record_does_not_come_back() {
    let (ground, server) = Ground::new().await;
    drop(ground.names.create_ledger(&Call::fresh(), &at("a:main"), None, None).await.unwrap());
    let before = ground.messages(0).await;
    assert!(ground.deliver(&before).await.is_empty());
    let _ = ground.names.purge(&Call::fresh(), &at("a:main")).await.unwrap();
    let purge = ground.messages(before.len() as u64).await;
    assert!(ground.deliver(&purge).await.is_empty());
    assert!(ground.deliver(&before).await.is_empty());
    assert!(ground.documents().await.is_empty());
    // Also once the index has forgotten the deletion: a late message finds no record.
    server.forget_deletes();
    assert!(ground.deliver(&before).await.is_empty());
    assert!(ground.documents().await.is_empty());
}

/// A store that answers a read so late that the index may have forgotten a deletion since.
struct Late(Embedded);

#[async_trait]
impl GraphSourceLookup for Late {
    async fn graph_source(&self, address: &Address) -> Result<Option<Record>, Error> {
        self.0.graph_source(address).await
    }
}

#[async_trait]
impl NameService for Late {
    async fn lookup(&self, address: &Address) -> Result<Option<Record>, Error> {
        self.0.lookup(address).await
    }

    async fn lookup_all(&self, addresses: &[Address]) -> Result<Vec<Record>, Error> {
        let found = self.0.lookup_all(addresses).await;
        tokio::time::pause();
        tokio::time::advance(MAX_READ_AGE).await;
        tokio::time::resume();
        found
    }

    async fn list(&self, query: &ListQuery, visible: Visible<'_>) -> Result<Page<Listed>, Error> {
        self.0.list(query, visible).await
    }

    async fn snapshot(
        &self,
        limit: Limit,
        after: Option<&Cursor>,
        visible: Visible<'_>,
    ) -> Result<Page<Record>, Error> {
        self.0.snapshot(limit, after, visible).await
    }

    async fn dependents(&self, address: &Address) -> Result<Vec<Address>, Error> {
        self.0.dependents(address).await
    }

    async fn ping(&self) -> Result<(), Error> {
        self.0.ping().await
    }
}

#[tokio::test]
async fn what_was_read_too_long_ago_is_not_written() {
    let (ground, server) = Ground::new().await;
    drop(ground.names.create_ledger(&Call::fresh(), &at("a:main"), None, None).await.unwrap());
    let messages = ground.messages(0).await;
    let late = Sink::new(Arc::new(Late(ground.names.clone())), ground.index.clone(), ground.dead.clone());
    let response = late.handle(json!({ "Records": messages })).await;
    assert_eq!(response.failed().len(), messages.len(), "all are delivered again");
    assert_eq!(server.index().bulks, 0);
}

#[tokio::test]
async fn a_rebuild_beside_the_sink_leaves_the_documents_of_a_scan() {
    for round in 0..4 {
        let ground = if round == 0 { Ground::on_the_engine().await } else { Ground::new().await.0 };
        let mut rng = StdRng::seed_from_u64(round);
        for _ in 0..60 {
            write(&ground.names, &mut rng).await;
        }
        let messages = ground.messages(0).await;
        // Some were lost, and one document is of a record that nobody has ever written.
        for some in messages.chunks(5).filter(|_| rng.random_bool(0.5)) {
            assert!(ground.deliver(some).await.is_empty());
        }
        let rebuilt = rebuild(&ground.index, &ground.names, &ground.names, &|_| {}).await.unwrap();
        assert_eq!(ground.documents().await, ground.scanned().await, "round {round}");
        assert_eq!((rebuilt.records as usize, rebuilt.rejected.len()), (ground.scanned().await.len(), 0));
        // Late messages change nothing.
        assert!(ground.deliver(&messages).await.is_empty());
        assert_eq!(ground.documents().await, ground.scanned().await, "round {round}");
        let again = rebuild(&ground.index, &ground.names, &ground.names, &|_| {}).await.unwrap();
        assert_eq!((again.removed, again.records), (0, rebuilt.records));
    }
}

#[tokio::test]
async fn a_rebuild_removes_what_is_gone_and_names_what_the_index_rejects() {
    let (ground, server) = Ground::new().await;
    for name in ["a:main", "s:main", "books:dev"] {
        drop(ground.names.create_ledger(&Call::fresh(), &at(name), None, None).await.unwrap());
    }
    assert!(ground.deliver(&ground.messages(0).await).await.is_empty());
    let _ = ground.names.purge(&Call::fresh(), &at("a:main")).await.unwrap();
    server.fail("s:main", 400, 1);
    let rebuilt = rebuild(&ground.index, &ground.names, &ground.names, &|_| {}).await.unwrap();
    assert_eq!((rebuilt.records, rebuilt.removed), (2, 1));
    assert_eq!(rebuilt.rejected.iter().map(|(address, _)| address.clone()).collect::<Vec<_>>(), [at("s:main")]);
    assert!(ground.index.get(&at("a:main")).await.unwrap().is_none());
    server.fail("s:main", 429, 1);
    assert!(rebuild(&ground.index, &ground.names, &ground.names, &|_| {}).await.is_err());
}
