//! Buckets: lost replies, other writers, and how many requests are made.

use std::{
    collections::VecDeque,
    fmt,
    ops::Range,
    sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
};

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::{
    StreamExt as _,
    future::{BoxFuture, join_all},
    stream,
    stream::BoxStream,
};
use object_store::{
    CopyOptions, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, PutMultipartOptions, PutOptions,
    PutPayload, PutResult, Result as StoreResult, path::Path,
};

use super::*;

/// What happens to one write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// It is applied, and its answer is lost.
    LostReply,
    /// The request itself is lost.
    LostRequest,
    /// Another write is under way: S3's 409.
    Busy,
    /// It is applied, its answer is lost, and Fluree writes another index meanwhile.
    Overwritten,
    /// Fluree writes another index before it.
    Preceded,
    /// The store does not allow it.
    Forbidden,
}

/// What becomes of a request beside which others write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Request {
    /// It is applied after the others have written.
    After,
    /// It is applied before the others write, and its answer is lost.
    Lost,
    /// It is lost.
    Never,
}

/// What others do beside the next write or deletion of a file.
pub(super) struct Meanwhile {
    /// How the path ends.
    pub(super) of: &'static str,
    pub(super) request: Request,
    pub(super) others: BoxFuture<'static, ()>,
}

impl fmt::Debug for Meanwhile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Meanwhile").field("of", &self.of).field("request", &self.request).finish_non_exhaustive()
    }
}

/// What becomes of the whole bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outage {
    /// It does not exist: the same status as for a missing object.
    Gone,
    /// It may no longer be read.
    Forbidden,
    /// It rejects the credentials.
    Unauthenticated,
    /// Its listings break off after the first object.
    Partial,
}

/// A store in memory that counts requests and loses answers.
#[derive(Debug, Default)]
pub(super) struct Faulty {
    inner: Arc<InMemory>,
    pub(super) outage: Mutex<Option<Outage>>,
    deletions: Arc<Mutex<Option<Meanwhile>>>,
    writes: Arc<Mutex<Option<Meanwhile>>>,
    gets: AtomicUsize,
    puts: AtomicUsize,
    lists: AtomicUsize,
    /// How many reads are in flight, and the maximum so far.
    reading: AtomicUsize,
    most: AtomicUsize,
    /// What happens to the next writes; a write after them succeeds.
    faults: Mutex<VecDeque<Option<Fault>>>,
}

impl fmt::Display for Faulty {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Faulty")
    }
}

impl Faulty {
    fn next(&self, fault: Fault) {
        self.then([Some(fault)]);
    }

    /// Has others write beside the next deletion of a file.
    pub(super) fn beside_deletion(&self, meanwhile: Meanwhile) {
        *self.deletions.lock().unwrap() = Some(meanwhile);
    }

    /// Has others write beside the next write of a file.
    pub(super) fn beside_write(&self, meanwhile: Meanwhile) {
        *self.writes.lock().unwrap() = Some(meanwhile);
    }

    /// Has others write beside the next write or deletion of a file, whichever comes first.
    pub(super) fn beside(&self, of: &'static str, mut others: impl FnMut() -> BoxFuture<'static, ()>) {
        let mut meanwhile = || Some(Meanwhile { of, request: Request::After, others: others() });
        *self.deletions.lock().unwrap() = meanwhile();
        *self.writes.lock().unwrap() = meanwhile();
    }

    pub(super) fn then<const N: usize>(&self, faults: [Option<Fault>; N]) {
        *self.faults.lock().unwrap() = VecDeque::from(faults);
    }

    /// The error of a read, if there is an outage.
    fn out(&self, location: &str) -> Option<object_store::Error> {
        use object_store::Error as E;
        let (path, source) = (location.to_owned(), "<Error><Code>NoSuchBucket</Code></Error>".into());
        match (*self.outage.lock().unwrap())? {
            Outage::Gone => Some(E::NotFound { path, source }),
            Outage::Forbidden => Some(E::PermissionDenied { path, source: "403".into() }),
            Outage::Unauthenticated => Some(E::Unauthenticated { path, source: "401".into() }),
            Outage::Partial => None,
        }
    }

    fn counted(&self) -> (usize, usize, usize) {
        [&self.lists, &self.gets, &self.puts].map(|count| count.swap(0, SeqCst)).into()
    }
}

fn lost() -> object_store::Error {
    object_store::Error::Generic { store: "Faulty", source: "the connection was closed".into() }
}

#[async_trait]
impl ObjectStore for Faulty {
    async fn put_opts(&self, location: &Path, payload: PutPayload, options: PutOptions) -> StoreResult<PutResult> {
        self.puts.fetch_add(1, SeqCst);
        // What becomes of writes is about files, and not about the first look at the store.
        if location.as_ref().contains("/.compares.") {
            return self.inner.put_opts(location, payload, options).await;
        }
        let meanwhile = self.writes.lock().unwrap().take_if(|meanwhile| location.as_ref().ends_with(meanwhile.of));
        if let Some(meanwhile) = meanwhile {
            *self.deletions.lock().unwrap() = None;
            if meanwhile.request == Request::Lost {
                self.inner.put_opts(location, payload.clone(), options.clone()).await?;
            }
            meanwhile.others.await;
            if meanwhile.request != Request::After {
                return Err(lost());
            }
        }
        let fault = self.faults.lock().unwrap().pop_front().flatten();
        match fault {
            None => self.inner.put_opts(location, payload, options).await,
            Some(Fault::LostReply) => {
                self.inner.put_opts(location, payload, options).await?;
                Err(lost())
            }
            Some(fault @ (Fault::Overwritten | Fault::Preceded)) => {
                let index = format!(r#"{{"@context": {{}}, "f:ledgerIndex": {{"f:cid": "{}", "f:t": 9}}}}"#, IDS[2]);
                let theirs = self.inner.put_opts(location, index.into(), PutOptions::default());
                if fault == Fault::Preceded {
                    theirs.await?;
                    return self.inner.put_opts(location, payload, options).await;
                }
                self.inner.put_opts(location, payload, options).await?;
                theirs.await?;
                Err(lost())
            }
            Some(Fault::LostRequest) => Err(lost()),
            Some(Fault::Forbidden) => {
                Err(object_store::Error::PermissionDenied { path: location.to_string(), source: "403".into() })
            }
            Some(Fault::Busy) => {
                Err(object_store::Error::AlreadyExists { path: location.to_string(), source: "409".into() })
            }
        }
    }

    async fn put_multipart_opts(
        &self,
        location: &Path,
        options: PutMultipartOptions,
    ) -> StoreResult<Box<dyn MultipartUpload>> {
        self.inner.put_multipart_opts(location, options).await
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> StoreResult<GetResult> {
        self.gets.fetch_add(1, SeqCst);
        if let Some(error) = self.out(location.as_ref()) {
            return Err(error);
        }
        let reading = self.reading.fetch_add(1, SeqCst) + 1;
        self.most.fetch_max(reading, SeqCst);
        // Yields to other tasks, as a request over a network would.
        tokio::task::yield_now().await;
        let got = self.inner.get_opts(location, options).await;
        self.reading.fetch_sub(1, SeqCst);
        got
    }

    async fn get_ranges(&self, location: &Path, ranges: &[Range<u64>]) -> StoreResult<Vec<Bytes>> {
        self.inner.get_ranges(location, ranges).await
    }

    fn delete_stream(&self, locations: BoxStream<'static, StoreResult<Path>>) -> BoxStream<'static, StoreResult<Path>> {
        let (inner, deletions, writes) = (self.inner.clone(), self.deletions.clone(), self.writes.clone());
        let each = move |location: StoreResult<Path>| {
            let (inner, deletions, writes) = (inner.clone(), deletions.clone(), writes.clone());
            async move {
                let location = location?;
                let meanwhile =
                    deletions.lock().unwrap().take_if(|meanwhile| location.as_ref().ends_with(meanwhile.of));
                let request = meanwhile.as_ref().map(|meanwhile| meanwhile.request);
                let delete = async || object_store::ObjectStoreExt::delete(&*inner, &location).await;
                if request == Some(Request::Lost) {
                    delete().await?;
                }
                if let Some(meanwhile) = meanwhile {
                    *writes.lock().unwrap() = None;
                    meanwhile.others.await;
                }
                match request {
                    Some(Request::Lost | Request::Never) => Err(lost()),
                    Some(Request::After) | None => delete().await.map(|()| location.clone()),
                }
            }
        };
        locations.then(each).boxed()
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, StoreResult<ObjectMeta>> {
        self.lists.fetch_add(1, SeqCst);
        if let Some(error) = self.out("") {
            return Box::pin(stream::once(async { Err(error) }));
        }
        match *self.outage.lock().unwrap() {
            Some(_) => Box::pin(self.inner.list(prefix).take(1).chain(stream::once(async { Err(lost()) }))),
            None => self.inner.list(prefix),
        }
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> StoreResult<ListResult> {
        self.inner.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> StoreResult<()> {
        self.inner.copy_opts(from, to, options).await
    }
}

pub(super) fn faulty() -> (Files, Arc<Faulty>) {
    let store = Arc::new(Faulty::default());
    (bucket(store.clone()), store)
}

#[tokio::test]
async fn a_lost_reply_is_judged_by_what_is_stored() {
    for fault in [Fault::LostReply, Fault::LostRequest, Fault::Busy] {
        let (files, store) = faulty();
        store.next(fault);
        let db = born(&files, "mydb", 1).await;
        store.next(fault);
        assert!(push(&files, &db, 1, 2).await.is_updated(), "{fault:?}");
        store.next(fault);
        let cas = HeadPush::cas(Head::new(2, id(1)), head(2, 3));
        assert!(files.push_head(&Call::fresh(), &db, &cas).await.unwrap().is_updated(), "{fault:?}");
        store.next(fault);
        let status = NewStatus::new(StatusPayload::state("syncing")).unwrap();
        let pushed = files.push_status(&Call::fresh(), &db, &StatusPush::cas(Status::stored(1, None), status)).await;
        assert!(pushed.unwrap().is_updated(), "{fault:?}");
        store.next(fault);
        let pushed = files.push_index(&Call::fresh(), &db, &IndexPush::monotonic(index(1, 3))).await.unwrap();
        assert!(pushed.is_updated(), "{fault:?}");
        // The branch is written, and counted once.
        store.next(fault);
        let dev = at("mydb:dev");
        let made = files.create_branch(&Call::fresh(), &dev, &db, None).await.unwrap();
        assert!(matches!(made, BranchCreated::Created(_)), "{fault:?} {made:?}");
        assert_eq!(files.lookup(&db).await.unwrap().unwrap().branches, 1, "{fault:?}");
        store.next(fault);
        let dropped = files.drop_branch(&Call::fresh(), &dev).await.unwrap();
        assert_eq!(dropped, Dropped::Dropped { parent_branches: 0 }, "{fault:?}");
        assert_eq!(files.lookup(&db).await.unwrap().unwrap().branches, 0, "{fault:?}");
        store.next(fault);
        assert!(
            matches!(files.retract(&Call::fresh(), &db, None).await.unwrap(), Retracted::Retracted(_)),
            "{fault:?}"
        );
        store.next(fault);
        assert_eq!(files.purge(&Call::fresh(), &db).await.unwrap(), Purged::Purged, "{fault:?}");
        assert_eq!(files.lookup(&db).await.unwrap(), None, "{fault:?}");
    }
}

#[tokio::test]
async fn the_second_write_of_a_branch_is_counted_once_whatever_becomes_of_its_answer() {
    for fault in [Fault::LostReply, Fault::LostRequest, Fault::Busy] {
        let (files, store) = faulty();
        let db = born(&files, "mydb", 1).await;
        store.then([None, Some(fault)]);
        let made = files.create_branch(&Call::fresh(), &at("mydb:dev"), &db, None).await.unwrap();
        assert!(matches!(made, BranchCreated::Created(_)), "{made:?}");
        assert_eq!(files.lookup(&db).await.unwrap().unwrap().branches, 1, "{fault:?}");
    }
}

#[tokio::test]
async fn an_outcome_that_nothing_shows_is_never_a_conflict() {
    let (files, store) = faulty();
    let db = born(&files, "mydb", 1).await;
    // Other programs write the index as Fluree does, without remembered calls.
    store.next(Fault::Overwritten);
    let pushed = files.push_index(&Call::fresh(), &db, &IndexPush::monotonic(index(1, 3))).await;
    assert!(matches!(pushed, Err(Error::OutcomeUnknown { .. })), "what was overwritten is not stale: {pushed:?}");
    assert_eq!(files.index(&db).await.unwrap().unwrap().v, 9);
}

#[tokio::test]
async fn a_repeated_push_whose_answer_can_no_longer_be_given_fails_immediately() {
    let (files, store) = faulty();
    let db = born(&files, "mydb", 1).await;
    let push = async |call: &Call, push: IndexPush| files.push_index(call, &db, &push).await;
    assert!(push(&Call::fresh(), IndexPush::monotonic(index(1, 5))).await.unwrap().is_updated());
    // An overwrite increments a revision that only the file knew.
    let call = Call::fresh();
    assert!(push(&call, IndexPush::overwrite(index(2, 5))).await.unwrap().is_updated());
    assert!(push(&Call::fresh(), IndexPush::monotonic(index(1, 6))).await.unwrap().is_updated());
    store.counted();
    let stale = push(&Call::fresh(), IndexPush::monotonic(index(1, 2))).await.unwrap();
    assert!(matches!(stale, PushOutcome::Stale { .. }), "{stale:?}");
    let one_look = store.counted();
    let again = push(&call, IndexPush::overwrite(index(2, 5))).await;
    assert!(matches!(again, Err(Error::OutcomeUnknown { .. })), "{again:?}");
    assert_eq!(store.counted(), one_look);
}

/// The two files of a record are two objects.
#[tokio::test]
async fn a_write_of_both_files_is_never_answered_as_done_while_only_the_first_is_written() {
    fn is_unknown<T: fmt::Debug>(answer: Result<T>) {
        assert!(matches!(answer, Err(Error::OutcomeUnknown { .. })), "{answer:?}");
    }
    let (files, store) = faulty();
    let db = born(&files, "mydb", 9).await;
    for (by, current) in [(1, 7), (2, 9)] {
        let pushed = files.push_index(&Call::fresh(), &db, &IndexPush::monotonic(index(by, current))).await.unwrap();
        assert!(pushed.is_updated());
        let to = ResetTo::new(Some(head(0, current - 1)), Some(index(0, 3))).unwrap();
        let call = Call::fresh();
        store.then([None, Some(Fault::Forbidden)]);
        is_unknown(files.reset_head(&call, &db, &to).await);
        assert_eq!(files.index(&db).await.unwrap().unwrap().v, current, "the index is not written");
        // Nor is it by a repetition, whatever has become of the record.
        is_unknown(files.reset_head(&call, &db, &to).await);
        assert_eq!(files.protect(&Call::fresh(), &db, true).await.unwrap(), Protection::Set);
        is_unknown(files.reset_head(&call, &db, &to).await);
        assert_eq!(files.protect(&Call::fresh(), &db, false).await.unwrap(), Protection::Set);
        let again = Call::fresh();
        for _ in 0..2 {
            let reset = files.reset_head(&again, &db, &to).await.unwrap();
            assert!(matches!(&reset, Reset::Reset { index, .. } if index.v == 3), "{reset:?}");
        }
        // What others write later does not make it unknown.
        let pushed = files.push_index(&Call::fresh(), &db, &IndexPush::monotonic(index(by, 4))).await.unwrap();
        assert!(pushed.is_updated());
        let reset = files.reset_head(&again, &db, &to).await.unwrap();
        assert!(matches!(&reset, Reset::Reset { index, .. } if index.v == 4), "{reset:?}");
    }

    let (new, call) = (at("new"), Call::fresh());
    let create = async |call: &Call| files.push_index(call, &new, &IndexPush::create(index(1, 3))).await;
    store.then([None, Some(Fault::Forbidden)]);
    is_unknown(create(&call).await);
    is_unknown(create(&call).await);
    assert_eq!(files.index(&new).await.unwrap(), Some(Index::unborn()));
    let conflict = create(&Call::fresh()).await.unwrap();
    assert!(matches!(conflict, PushOutcome::Conflict { .. }), "{conflict:?}");
    let pushed = files.push_index(&Call::fresh(), &new, &IndexPush::monotonic(index(1, 3))).await.unwrap();
    assert!(pushed.is_updated());
}

#[tokio::test]
async fn no_two_files_of_ours_have_equal_bytes() {
    let (files, store) = faulty();
    let db = born(&files, "mydb", 5).await;
    let path = Path::from("some/prefix/ns@v2/mydb/main.json");
    let mut seen = std::collections::HashSet::new();
    let mut status = files.status(&db).await.unwrap().unwrap();
    for _ in 0..4 {
        let read = object_store::ObjectStoreExt::get(&*store.inner, &path).await.unwrap().bytes().await.unwrap();
        assert!(seen.insert(read), "an ETag would be that of an earlier state");
        let to = ResetTo::new(Some(head(0, 5)), None).unwrap();
        assert!(matches!(files.reset_head(&Call::fresh(), &db, &to).await.unwrap(), Reset::Reset { .. }));
        let new = NewStatus::new(StatusPayload::state("ready")).unwrap();
        let pushed = files.push_status(&Call::fresh(), &db, &StatusPush::cas(status, new)).await.unwrap();
        let PushOutcome::Updated { value, .. } = pushed else { panic!("{pushed:?}") };
        status = value;
    }
}

#[tokio::test]
async fn many_clients_of_one_bucket_lose_nothing() {
    let (files, _store) = faulty();
    let db = born(&files, "mydb", 1).await;
    let clients = (0..16).map(|client| {
        let (files, db) = (files.clone(), db.clone());
        tokio::spawn(async move {
            let mut won = 0;
            for _ in 0..10 {
                let status = files.status(&db).await.unwrap().unwrap();
                let meta = Object::from_iter([("client".to_owned(), client.into())]);
                let new = NewStatus::new(StatusPayload { state: "ready".into(), meta }).unwrap();
                let pushed = files.push_status(&Call::fresh(), &db, &StatusPush::cas(status, new)).await;
                won += i64::from(pushed.unwrap().is_updated());
            }
            won
        })
    });
    let won: i64 = join_all(clients).await.into_iter().map(Result::unwrap).sum();
    assert_eq!(files.status(&db).await.unwrap().unwrap().v, 1 + won);
    let branches = (0..8).map(|n| {
        let (files, db) = (files.clone(), db.clone());
        tokio::spawn(async move { files.create_branch(&Call::fresh(), &at(&format!("mydb:b{n}")), &db, None).await })
    });
    for made in join_all(branches).await {
        assert!(matches!(made.unwrap().unwrap(), BranchCreated::Created(_)));
    }
    assert_eq!(files.lookup(&db).await.unwrap().unwrap().branches, 8);
    let creating = (0..8).map(|_| {
        let files = files.clone();
        tokio::spawn(async move { files.create_ledger(&Call::fresh(), &at("one"), None, None).await })
    });
    let created = join_all(creating).await;
    let created = created.into_iter().filter(|made| matches!(made, Ok(Ok(Created::Created(_)))));
    assert_eq!(created.count(), 1);
}

#[tokio::test]
async fn requests_are_as_few_as_the_format_allows() {
    let (files, store) = faulty();
    for n in 0..20 {
        let db = born(&files, &format!("db{n}"), 1).await;
        if n % 2 == 0 {
            let pushed = files.push_index(&Call::fresh(), &db, &IndexPush::monotonic(index(1, 1))).await.unwrap();
            assert!(pushed.is_updated());
        }
    }
    store.counted();
    // A list: one listing (a request for each 1,000 keys), and each file once.
    assert_eq!(files.list(&ListQuery::default(), &|_| true).await.unwrap().items.len(), 20);
    assert_eq!(store.counted(), (1, 30, 0));
    // Once more: the listing says that nothing has changed.
    assert_eq!(files.list(&ListQuery::default(), &|_| true).await.unwrap().items.len(), 20);
    assert_eq!(store.counted(), (1, 0, 0));
    assert!(push(&files, &at("db3"), 1, 2).await.is_updated());
    store.counted();
    // A page of one name reads that name alone.
    let named = ListQuery { name: Some("db3".into()), ..ListQuery::default() };
    assert_eq!(files.list(&named, &|_| true).await.unwrap().items.len(), 1);
    assert_eq!(store.counted(), (1, 1, 0));
    // A record: its two files. A push: the same, and one write.
    assert!(files.lookup(&at("db4")).await.unwrap().is_some());
    assert_eq!(store.counted(), (0, 2, 0));
    assert!(push(&files, &at("db4"), 1, 2).await.is_updated());
    assert_eq!(store.counted(), (0, 2, 1));
    // A comparison of what has not changed: the listing alone.
    files.compare().await.unwrap();
    store.counted();
    files.compare().await.unwrap();
    assert_eq!(store.counted(), (1, 0, 0));
}

#[tokio::test]
async fn a_thousand_records_are_listed_in_as_few_requests_as_they_have_files_a_few_at_a_time() {
    const RECORDS: usize = 1_000;
    let (files, store) = faulty();
    for n in 0..RECORDS {
        born(&files, &format!("db{n}"), 1).await;
    }
    // An instance that has read nothing yet.
    let fresh = bucket(store.clone());
    store.counted();
    store.most.store(0, SeqCst);
    let page = |cursor| ListQuery { limit: Limit::new(100).unwrap(), full: true, cursor, ..ListQuery::default() };
    let first = fresh.list(&page(None), &|_| true).await.unwrap();
    assert_eq!((first.items.len(), store.counted()), (100, (1, RECORDS, 0)));
    let most = store.most.load(SeqCst);
    assert!((2..=32).contains(&most), "{most} reads at a time");
    // The pages after it read nothing again.
    let (mut cursor, mut count) = (first.cursor, first.items.len());
    while cursor.is_some() {
        let next = fresh.list(&page(cursor), &|_| true).await.unwrap();
        assert_eq!(store.counted(), (1, 0, 0));
        count += next.items.len();
        cursor = next.cursor;
    }
    assert_eq!(count, RECORDS);
}

#[tokio::test]
async fn what_a_bucket_cannot_do_is_named() {
    let (files, _store) = faulty();
    let db = born(&files, "mydb", 1).await;
    let request = LeaseRequest::new(LeaseName::INDEX, "i1").unwrap();
    let Leased::Held(held) = files.acquire_lease(&Call::fresh(), &db, &request).await.unwrap() else { panic!() };
    let under = IndexPush::monotonic(index(1, 1)).under(request.claim(held.token)).unwrap();
    let graphs = IndexPush::monotonic(index(1, 1).with_graph("g", None).unwrap());
    for (push, lacks) in [(under, Capability::LeasedIndexPushes), (graphs, Capability::NamedGraphs)] {
        let pushed = files.push_index(&Call::fresh(), &db, &push).await;
        assert!(matches!(pushed, Err(Error::Unsupported { capability, .. }) if capability == lacks), "{pushed:?}");
        assert!(!files.capabilities().await.unwrap().has(lacks));
    }
    let operation = Operation::new(db.clone(), HeadPush::monotonic(head(1, 2)));
    let transaction = Transaction::new(vec![operation]).unwrap();
    let committed = files.commit(&Call::fresh(), &transaction).await;
    assert!(matches!(committed, Err(Error::Unsupported { capability: Capability::Transactions, .. })));
    assert_eq!(files.index(&db).await.unwrap(), Some(Index::unborn()), "nothing was written");
}

#[tokio::test]
async fn a_bucket_that_is_gone_or_closed_is_an_outage_and_not_empty() {
    let (files, store) = faulty();
    for name in ["a", "b"] {
        born(&files, name, 1).await;
    }
    files.compare().await.unwrap();
    let before = files.changes(0, Limit::MAX).await.unwrap();
    for outage in [Outage::Gone, Outage::Forbidden, Outage::Unauthenticated, Outage::Partial] {
        *store.outage.lock().unwrap() = Some(outage);
        fn is_out<T: fmt::Debug>(result: &Result<T>) -> bool {
            matches!(result, Err(Error::Unavailable { .. }))
        }
        let compared = files.compare().await;
        assert!(is_out(&compared), "{outage:?} {compared:?}");
        let listed = files.list(&ListQuery::default(), &|_| true).await;
        assert!(is_out(&listed), "{outage:?} {listed:?}");
        if outage != Outage::Partial {
            for address in [at("a"), at("nobody")] {
                let found = files.lookup(&address).await;
                assert!(is_out(&found), "{outage:?} {found:?}");
            }
            assert!(is_out(&files.ping().await), "{outage:?}");
            let created = files.create_ledger(&Call::fresh(), &at("new"), None, None).await;
            assert!(is_out(&created), "{outage:?} {created:?}");
        }
        assert_eq!(files.changes(0, Limit::MAX).await.unwrap(), before, "{outage:?}");
        *store.outage.lock().unwrap() = None;
        files.compare().await.unwrap();
        assert_eq!(files.changes(0, Limit::MAX).await.unwrap(), before, "{outage:?}");
    }
    // An object whose name has such a word is a missing object.
    assert_eq!(files.lookup(&at("NoSuchBucket")).await.unwrap(), None);
}
