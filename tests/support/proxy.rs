//! A proxy in front of the engine, or of the service, that counts what passes and can lose, delay or reject
//! it: the next request of a kind, or random ones, drawn from a seed.

use std::{
    collections::BTreeMap,
    fmt,
    future::Future,
    io,
    marker::PhantomData,
    ops::Deref,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use http::{HeaderMap, Request as HttpRequest, Response, Uri, header, request::Parts};
use http_body_util::{BodyExt, Full};
use hyper::{
    body::{Bytes, Incoming},
    service::service_fn,
};
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::TokioIo,
};
use rand::{RngExt, SeedableRng, rngs::StdRng, seq::IndexedRandom};
use serde_json::{Value, json};
use tokio::{net::TcpListener, task::AbortHandle};

/// One request that reached the proxy.
#[derive(Clone, Debug)]
pub struct Request {
    /// `UpdateItem`, `Query`, …; for a request that is not DynamoDB's, the method.
    pub operation: String,
    /// The body of the request.
    pub body: Value,
    /// The status that the client was answered with; `None` if it got no answer.
    pub status: Option<u16>,
    /// The capacity units that it took, with those of indexes, if [`Remote::measure`] is on.
    pub units: f64,
}

type Hook = Arc<dyn Fn() -> Pin<Box<dyn Future<Output = ()> + Send>> + Send + Sync>;

/// What happens to requests.
#[derive(Clone)]
pub struct Fault {
    step: Step,
    times: usize,
    skipped: usize,
    /// Whether it has happened, or need not happen.
    is_met: bool,
    /// A text that the request must contain.
    about: Option<String>,
    before: Option<Hook>,
    after: Option<Hook>,
}

#[derive(Clone, Debug)]
enum Step {
    Forward,
    CutRequest,
    CutReply,
    Delay(Duration),
    Answer(u16, Value),
    DoneButAnswer(u16, Value),
    PartialBatch,
    UntouchedBatch,
}

impl Fault {
    fn of(step: Step) -> Self {
        Self { step, times: 1, skipped: 0, is_met: false, about: None, before: None, after: None }
    }

    /// No fault, for hooks alone.
    pub fn none() -> Self {
        Self::of(Step::Forward)
    }

    /// The connection is cut before the engine sees the request.
    pub fn cut_request() -> Self {
        Self::of(Step::CutRequest)
    }

    /// The engine executes the request, and the connection is cut instead of a reply.
    pub fn cut_reply() -> Self {
        Self::of(Step::CutReply)
    }

    /// The engine does what it is asked, and the answer arrives this much later.
    pub fn delay(by: Duration) -> Self {
        Self::of(Step::Delay(by))
    }

    /// The engine is not asked; the answer is this error.
    pub fn answer(status: u16, code: &str) -> Self {
        Self::of(Step::Answer(status, json!({ "__type": kind_of(code), "message": code })))
    }

    /// The engine does what it is asked, and the answer is this error all the same.
    pub fn done_but_answer(status: u16, code: &str) -> Self {
        Self::of(Step::DoneButAnswer(status, json!({ "__type": kind_of(code), "message": code })))
    }

    /// The engine is not asked; the transaction is cancelled for these reasons, one per action (`None` if the
    /// action was innocent).
    pub fn cancelled(reasons: &[&str]) -> Self {
        let listed: Vec<_> = reasons.iter().map(|code| json!({ "Code": code, "Message": code })).collect();
        let body = json!({
            "__type": kind_of("TransactionCanceledException"),
            "message": format!("Transaction cancelled, please refer cancellation reasons for specific reasons [{}]", reasons.join(", ")),
            "CancellationReasons": listed,
        });
        Self::of(Step::Answer(400, body))
    }

    /// The first half of a batch is done, the rest comes back unprocessed.
    pub fn partial_batch() -> Self {
        Self::of(Step::PartialBatch)
    }

    /// Nothing of a batch is done, all of it comes back unprocessed.
    pub fn untouched_batch() -> Self {
        Self::of(Step::UntouchedBatch)
    }

    /// It happens this many times instead of once.
    pub fn times(self, times: usize) -> Self {
        Self { times, ..self }
    }

    /// It happens forever.
    pub fn always(self) -> Self {
        self.times(usize::MAX)
    }

    /// It spares this many matching requests first.
    pub fn skipping(self, skipped: usize) -> Self {
        Self { skipped, ..self }
    }

    /// It spares requests whose body does not contain this text.
    pub fn about(self, text: impl Into<String>) -> Self {
        Self { about: Some(text.into()), ..self }
    }

    /// It may as well never happen: a test must meet each other fault that it arms and does not disarm.
    pub fn perhaps(self) -> Self {
        Self { is_met: true, ..self }
    }

    /// Something happens before the engine is asked.
    pub fn before<F, R>(self, hook: F) -> Self
    where
        F: Fn() -> R + Send + Sync + 'static,
        R: Future<Output = ()> + Send + 'static,
    {
        Self { before: Some(Arc::new(move || Box::pin(hook()))), ..self }
    }

    /// Something happens between the engine's answer and the client's.
    pub fn after<F, R>(self, hook: F) -> Self
    where
        F: Fn() -> R + Send + Sync + 'static,
        R: Future<Output = ()> + Send + 'static,
    {
        Self { after: Some(Arc::new(move || Box::pin(hook()))), ..self }
    }
}

fn kind_of(code: &str) -> String {
    match code {
        "ThrottlingException" => format!("com.amazon.coral.availability#{code}"),
        _ => format!("com.amazonaws.dynamodb.v20120810#{code}"),
    }
}

struct Armed {
    operations: Vec<String>,
    fault: Fault,
}

impl fmt::Debug for Armed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} at {}, after {} more", self.fault.step, self.operations.join(" or "), self.fault.skipped)
    }
}

/// An action of IAM on a table, or on one of its indexes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Action {
    /// The table.
    pub table: String,
    /// The index, if one is read.
    pub index: Option<String>,
    /// `dynamodb:GetItem`, …
    pub name: String,
}

/// How often each kind of fault has happened.
pub type Tally = BTreeMap<&'static str, u64>;

/// Faults that strike at random, the same in every run with the same seed and the same requests.
struct Dice {
    random: StdRng,
    rate: f64,
    tally: Tally,
}

impl Dice {
    /// What happens to a request, if anything. Only what can happen to this operation.
    fn throw(&mut self, operation: &str, body: &Value) -> Option<Fault> {
        if !self.random.random_bool(self.rate) {
            return None;
        }
        let mut kinds = vec!["request cut", "reply cut", "latency"];
        let to_engine =
            body.get("TableName").is_some() || body.get("TransactItems").is_some() || operation.contains("Batch");
        if to_engine {
            kinds.extend(["throttled", "internal error, not done", "internal error, done"]);
        }
        match operation {
            "TransactWriteItems" => kinds.extend(["transaction conflict", "transaction in progress"]),
            "UpdateItem" | "PutItem" | "DeleteItem" => kinds.push("transaction conflict"),
            "BatchGetItem" | "BatchWriteItem" => kinds.extend(["partial batch", "untouched batch"]),
            _ => {}
        }
        let kind = *kinds.choose(&mut self.random)?;
        *self.tally.entry(kind).or_default() += 1;
        Some(match kind {
            "request cut" => Fault::cut_request(),
            "reply cut" => Fault::cut_reply(),
            "throttled" => Fault::answer(
                400,
                ["ThrottlingException", "ProvisionedThroughputExceededException", "RequestLimitExceeded"]
                    .choose(&mut self.random)?,
            ),
            "internal error, not done" => Fault::answer(500, "InternalServerError"),
            "internal error, done" => Fault::done_but_answer(500, "InternalServerError"),
            "transaction in progress" => Fault::answer(400, "TransactionInProgressException"),
            "transaction conflict" => match body["TransactItems"].as_array() {
                // One action met another writer, the others are innocent.
                Some(actions) => {
                    let guilty = self.random.random_range(0..actions.len().max(1));
                    let reasons: Vec<_> = (0..actions.len())
                        .map(|action| if action == guilty { "TransactionConflict" } else { "None" })
                        .collect();
                    Fault::cancelled(&reasons)
                }
                None => Fault::answer(400, "TransactionConflictException"),
            },
            "partial batch" => Fault::partial_batch(),
            "untouched batch" => Fault::untouched_batch(),
            _ => Fault::delay(Duration::from_millis(self.random.random_range(1..25))),
        })
    }
}

#[derive(Default)]
struct State {
    log: Vec<Request>,
    actions: Vec<Action>,
    armed: Vec<Armed>,
    dice: Option<Dice>,
    forgetful: bool,
    measures: bool,
}

struct Inner {
    url: String,
    target: String,
    client: Client<HttpConnector, Full<Bytes>>,
    state: Mutex<State>,
}

/// A running proxy. Ends when it is dropped, and panics then if no request has met a fault that the test armed.
///
/// It is not `Send`, so that this panic is the test's: in a task, another thread or a hook of a fault, nobody might notice it. These
/// take the [`Remote`].
pub struct Proxy {
    remote: Remote,
    accepting: AbortHandle,
    /// Not `Send`, but `Sync`.
    stays: PhantomData<MutexGuard<'static, ()>>,
}

/// What a proxy is controlled by, from anywhere.
#[derive(Clone)]
pub struct Remote {
    inner: Arc<Inner>,
}

/// The operations that write.
pub const WRITES: [&str; 5] = ["PutItem", "UpdateItem", "DeleteItem", "TransactWriteItems", "BatchWriteItem"];

impl Proxy {
    /// Starts one in front of an engine, on the runtime of the test.
    pub async fn start(target: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let inner = Arc::new(Inner {
            url,
            target: target.trim_end_matches('/').to_owned(),
            client: crate::service::client(),
            state: Mutex::default(),
        });
        let accepting = tokio::spawn(accept(listener, inner.clone())).abort_handle();
        Self { remote: Remote { inner }, accepting, stays: PhantomData }
    }

    /// What tasks, threads and hooks control it by.
    pub fn remote(&self) -> Remote {
        self.remote.clone()
    }
}

impl Deref for Proxy {
    type Target = Remote;

    fn deref(&self) -> &Remote {
        &self.remote
    }
}

impl Remote {
    /// Where the proxy listens.
    pub fn url(&self) -> &str {
        &self.inner.url
    }

    /// Arms a fault for the next requests of this operation.
    pub fn on(&self, operation: &str, fault: Fault) {
        self.on_each(&[operation], fault);
    }

    /// Arms a fault for the next requests that write.
    pub fn on_writes(&self, fault: Fault) {
        self.on_each(&WRITES, fault);
    }

    /// Arms a fault for the next requests of any of these operations.
    pub fn on_each(&self, operations: &[&str], fault: Fault) {
        let operations = operations.iter().map(|&name| name.to_owned()).collect();
        self.inner.state.lock().unwrap().armed.push(Armed { operations, fault });
    }

    /// From now on the engine does not recognise a transaction that it has seen: a token is good for ten minutes in
    /// DynamoDB, and for the life of the process in the embedded engine.
    pub fn forget_tokens(&self) {
        self.inner.state.lock().unwrap().forgetful = true;
    }

    /// From now on the engine is asked what requests cost.
    pub fn measure(&self) {
        self.inner.state.lock().unwrap().measures = true;
    }

    /// Whether every armed fault has happened as often as it should.
    pub fn is_spent(&self) -> bool {
        self.inner.state.lock().unwrap().armed.is_empty()
    }

    /// From now on this share of all requests meets a fault that the seed draws.
    pub fn strike_at_random(&self, seed: u64, rate: f64) {
        let dice = Dice { random: StdRng::seed_from_u64(seed), rate, tally: Tally::new() };
        self.inner.state.lock().unwrap().dice = Some(dice);
    }

    /// Ends [`Self::strike_at_random`]; returns how often each kind of fault has struck.
    pub fn stop_striking(&self) -> Tally {
        self.inner.state.lock().unwrap().dice.take().map(|dice| dice.tally).unwrap_or_default()
    }

    /// Forgets all faults that have not happened; ends [`Self::forget_tokens`].
    pub fn disarm(&self) {
        let mut state = self.inner.state.lock().unwrap();
        state.armed.clear();
        state.forgetful = false;
    }

    /// What has passed since the last call of this.
    pub fn take_requests(&self) -> Vec<Request> {
        std::mem::take(&mut self.inner.state.lock().unwrap().log)
    }

    /// The operations that have passed since the log was last taken, in order; takes it.
    pub fn take_operations(&self) -> Vec<String> {
        self.take_requests().into_iter().map(|request| request.operation).collect()
    }

    /// How many actions of IAM have passed so far.
    pub fn actions_passed(&self) -> usize {
        self.inner.state.lock().unwrap().actions.len()
    }

    /// The actions of IAM that have passed after the first `passed`.
    pub fn actions_after(&self, passed: usize) -> Vec<Action> {
        self.inner.state.lock().unwrap().actions[passed..].to_vec()
    }

    /// How many requests of an operation are in the log.
    pub fn count(&self, operation: &str) -> usize {
        self.inner.state.lock().unwrap().log.iter().filter(|request| request.operation == operation).count()
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.accepting.abort();
        // A test that has failed already says why.
        let Some(state) = self.inner.state.lock().ok().filter(|_| !std::thread::panicking()) else { return };
        let never: Vec<&Armed> = state.armed.iter().filter(|armed| !armed.fault.is_met).collect();
        assert!(never.is_empty(), "no request met these faults: {never:?}");
    }
}

async fn accept(listener: TcpListener, inner: Arc<Inner>) {
    while let Ok((stream, _)) = listener.accept().await {
        stream.set_nodelay(true).ok();
        let inner = inner.clone();
        tokio::spawn(async move {
            let service = service_fn(move |request| inner.clone().pass(request));
            // A service that fails ends the connection without an answer: that is how a reply is cut.
            hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service).await.ok()
        });
    }
}

/// The actions of IAM that a request needs: a transaction needs those of its parts.
fn actions_of(operation: &str, body: &Value) -> Vec<Action> {
    let text = |value: &Value| value.as_str().map(ToOwned::to_owned);
    let action = |part: &Value, name: &str| Action {
        table: text(&part["TableName"]).unwrap_or_default(),
        index: text(&part["IndexName"]),
        name: format!("dynamodb:{name}"),
    };
    match operation {
        "TransactWriteItems" => {
            let parts = body["TransactItems"].as_array().into_iter().flatten().filter_map(Value::as_object).flatten();
            parts.map(|(kind, part)| action(part, &format!("{}Item", kind.trim_end_matches("Item")))).collect()
        }
        "BatchGetItem" | "BatchWriteItem" => {
            let tables = body["RequestItems"].as_object().into_iter().flatten();
            tables.map(|(table, _)| action(&json!({ "TableName": table }), operation)).collect()
        }
        _ => vec![action(body, operation)],
    }
}

/// The same transaction under a token that was never seen.
fn without_token(body: Bytes, json: &Value) -> Bytes {
    match json.get("ClientRequestToken") {
        Some(_) => {
            let mut json = json.clone();
            json["ClientRequestToken"] = uuid::Uuid::new_v4().to_string().into();
            serde_json::to_vec(&json).unwrap().into()
        }
        None => body,
    }
}

/// The same request, asking what it costs.
fn with_capacity(json: &Value) -> Bytes {
    let mut json = json.clone();
    json["ReturnConsumedCapacity"] = "INDEXES".into();
    serde_json::to_vec(&json).unwrap().into()
}

/// What an answer says of its costs: one number for a table with its indexes.
fn units(body: &[u8]) -> f64 {
    let body: Value = serde_json::from_slice(body).unwrap_or_default();
    let consumed = match &body["ConsumedCapacity"] {
        Value::Array(tables) => tables.clone(),
        table => vec![table.clone()],
    };
    consumed.iter().filter_map(|table| table["CapacityUnits"].as_f64()).sum()
}

struct Answer {
    status: u16,
    headers: HeaderMap,
    body: Bytes,
}

impl Inner {
    async fn pass(self: Arc<Self>, request: HttpRequest<Incoming>) -> Result<Response<Full<Bytes>>, io::Error> {
        let (parts, body) = request.into_parts();
        let body = body.collect().await.map_err(io::Error::other)?.to_bytes();
        let operation = parts
            .headers
            .get("x-amz-target")
            .and_then(|target| target.to_str().ok()?.rsplit('.').next())
            .unwrap_or(parts.method.as_str())
            .to_owned();
        let json: Value = serde_json::from_slice(&body).unwrap_or_default();
        let (entry, fault) = self.admit(&operation, &json);
        let (forgetful, measures) = {
            let state = self.state.lock().unwrap();
            (state.forgetful, state.measures)
        };
        let body = if forgetful { without_token(body, &json) } else { body };
        let body = if measures { with_capacity(&json) } else { body };
        if let Some(hook) = &fault.before {
            hook().await;
        }
        let answer = match &fault.step {
            Step::CutRequest => None,
            Step::Answer(status, body) => Some(Answer::json(*status, body)),
            Step::DoneButAnswer(status, answer) => {
                self.forward(&parts, body).await?;
                Some(Answer::json(*status, answer))
            }
            Step::UntouchedBatch => {
                let left = json.get("RequestItems").cloned().unwrap_or_default();
                Some(Answer::json(200, &json!({ "UnprocessedKeys": left, "UnprocessedItems": left, "Responses": {} })))
            }
            Step::PartialBatch => Some(self.half(&parts, json).await?),
            Step::Forward | Step::CutReply | Step::Delay(_) => Some(self.forward(&parts, body).await?),
        };
        if let Some(hook) = &fault.after {
            hook().await;
        }
        if let Step::Delay(by) = fault.step {
            tokio::time::sleep(by).await;
        }
        let answer = answer
            .filter(|_| !matches!(fault.step, Step::CutReply))
            .ok_or_else(|| io::Error::other("cut, as the test wished"))?;
        if let Some(entry) = self.state.lock().unwrap().log.get_mut(entry) {
            entry.status = Some(answer.status);
            entry.units = if measures { units(&answer.body) } else { 0.0 };
        }
        let mut response = Response::new(Full::new(answer.body));
        *response.status_mut() = answer.status.try_into().unwrap();
        *response.headers_mut() = answer.headers;
        Ok(response)
    }

    /// Writes the request down and finds the fault that it meets.
    fn admit(&self, operation: &str, body: &Value) -> (usize, Fault) {
        let mut state = self.state.lock().unwrap();
        state.actions.extend(actions_of(operation, body));
        state.log.push(Request { operation: operation.to_owned(), body: body.clone(), status: None, units: 0.0 });
        let entry = state.log.len() - 1;
        let (mut found, mut text) = (None, None);
        for armed in state.armed.iter_mut().filter(|armed| armed.operations.iter().any(|name| name == operation)) {
            if let Some(about) = &armed.fault.about
                && !text.get_or_insert_with(|| body.to_string()).contains(about)
            {
                continue;
            }
            if armed.fault.skipped > 0 {
                armed.fault.skipped -= 1;
            } else if found.is_none() {
                armed.fault.times -= 1;
                armed.fault.is_met = true;
                found = Some(armed.fault.clone());
            }
        }
        state.armed.retain(|armed| armed.fault.times > 0);
        let found = found.or_else(|| state.dice.as_mut()?.throw(operation, body));
        (entry, found.unwrap_or_else(Fault::none))
    }

    async fn forward(&self, asked: &Parts, body: Bytes) -> Result<Answer, io::Error> {
        let target: Uri = format!("{}{}", self.target, asked.uri).parse().map_err(io::Error::other)?;
        let mut request = HttpRequest::new(Full::new(body));
        *request.method_mut() = asked.method.clone();
        *request.uri_mut() = target;
        for (name, value) in &asked.headers {
            if ![header::HOST, header::CONTENT_LENGTH, header::CONNECTION].contains(name) {
                request.headers_mut().append(name, value.clone());
            }
        }
        let (parts, body) = self.client.request(request).await.map_err(io::Error::other)?.into_parts();
        let body = body.collect().await.map_err(io::Error::other)?.to_bytes();
        let mut headers = parts.headers;
        for name in [header::CONTENT_LENGTH, header::TRANSFER_ENCODING, header::CONNECTION] {
            headers.remove(name);
        }
        Ok(Answer { status: parts.status.as_u16(), headers, body })
    }

    /// Forwards the first half of every table's part of a batch and hands the rest back as unprocessed.
    async fn half(&self, parts: &Parts, mut asked: Value) -> Result<Answer, io::Error> {
        let mut rest = json!({});
        let reads = asked["RequestItems"].as_object().unwrap().values().all(Value::is_object);
        for (table, part) in asked["RequestItems"].as_object_mut().unwrap() {
            let list = if reads { &mut part["Keys"] } else { &mut *part };
            let list = list.as_array_mut().unwrap();
            let left = list.split_off(list.len().div_ceil(2));
            if !left.is_empty() && reads {
                let mut again = part.clone();
                again["Keys"] = left.into();
                rest[table] = again;
            } else if !left.is_empty() {
                rest[table] = left.into();
            }
        }
        let body = serde_json::to_vec(&asked).unwrap();
        let answer = self.forward(parts, body.into()).await?;
        let mut body: Value = serde_json::from_slice(&answer.body).unwrap();
        body[if reads { "UnprocessedKeys" } else { "UnprocessedItems" }] = rest;
        Ok(Answer::json(answer.status, &body))
    }
}

impl Answer {
    fn json(status: u16, body: &Value) -> Self {
        let mut headers = HeaderMap::new();
        headers.insert(header::CONTENT_TYPE, "application/x-amz-json-1.0".parse().unwrap());
        Self { status, headers, body: serde_json::to_vec(body).unwrap().into() }
    }
}
