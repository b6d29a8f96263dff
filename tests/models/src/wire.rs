//! The code of a service, run up to the next request that it sends to DynamoDB.
//!
//! The code is the product's, down to the SDK: its HTTP client is replaced by one that gives the replies of a script, in order,
//! and takes the request that comes after them. To run the code further is to run it again with one reply more. It is
//! deterministic (pauses between attempts pass immediately), so that a run is known by its replies.

use std::{
    cell::RefCell,
    collections::VecDeque,
    pin::pin,
    sync::{Arc, Mutex},
    task::Poll,
    time::Duration,
};

use aws_sdk_dynamodb::{Client, config::HttpClient};
use aws_smithy_runtime_api::{
    client::{
        http::{HttpConnector, HttpConnectorFuture, HttpConnectorSettings, SharedHttpConnector},
        orchestrator::{HttpRequest, HttpResponse},
        result::ConnectorError,
        runtime_components::RuntimeComponents,
    },
    http::StatusCode,
};
use nameservice_store::{RetryPolicy, endpoint_client};
use serde_json::Value;
use tokio::runtime::{Builder, Runtime};

use crate::{
    shared::Shared,
    table::{Operation, Reply},
};

/// The retries of the code: as many as there are lost replies, and no deadline that ends them.
pub const RETRIES: RetryPolicy =
    RetryPolicy { deadline: Duration::from_secs(3600), base: Duration::from_millis(1), cap: Duration::from_millis(1) };

/// Longer than any deadline.
const TOO_LATE: Duration = Duration::from_secs(2 * 3600);

/// How far a run has come.
#[derive(Clone, Debug)]
pub enum Next<T> {
    /// It has sent this and waits.
    Asks(Asked),
    /// It has ended.
    Done(T),
}

/// A request that was sent.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Asked {
    /// What it asks.
    pub operation: Shared<Operation>,
    /// Which of the tokens that the run has used is this transaction's: they are random.
    pub token: Option<usize>,
}

/// A request as it was sent: its name and its body.
pub type Sent = (String, Value);

/// What stands in for the network below the SDK.
#[derive(Debug, Default)]
struct Script {
    keys: [&'static str; 2],
    replies: VecDeque<Reply>,
    tokens: Vec<String>,
    asked: Option<(Asked, Sent)>,
}

#[derive(Clone, Debug, Default)]
struct Network(Arc<Mutex<Script>>);

impl HttpClient for Network {
    fn http_connector(&self, _: &HttpConnectorSettings, _: &RuntimeComponents) -> SharedHttpConnector {
        SharedHttpConnector::new(self.clone())
    }
}

impl HttpConnector for Network {
    fn call(&self, request: HttpRequest) -> HttpConnectorFuture {
        let target = request.headers().get("x-amz-target").unwrap_or_default();
        let target = target.rsplit('.').next().unwrap_or_default().to_owned();
        let body = request.body().bytes().expect("requests of DynamoDB are not streamed");
        let body: Value = serde_json::from_slice(body).expect("requests of DynamoDB are JSON");
        let mut script = self.0.lock().expect("no run panics");
        let asked = script.read(&target, &body);
        match script.replies.pop_front() {
            Some(Reply::Lost) => HttpConnectorFuture::ready(Err(ConnectorError::timeout("no reply".into()))),
            Some(Reply::TimedOut) => HttpConnectorFuture::new(async {
                tokio::time::advance(TOO_LATE).await;
                Err(ConnectorError::timeout("no reply".into()))
            }),
            Some(Reply::Unreachable) => {
                let refused = std::io::Error::from(std::io::ErrorKind::ConnectionRefused);
                HttpConnectorFuture::ready(Err(ConnectorError::io(refused.into())))
            }
            Some(reply) => {
                let (status, body) = reply.to_http(&asked.operation).expect("it is an answer");
                let status = StatusCode::try_from(status).expect("it is a status");
                HttpConnectorFuture::ready(Ok(HttpResponse::new(status, body.to_string().into())))
            }
            None => {
                let before = script.asked.replace((asked, (target, body)));
                assert!(before.is_none(), "requests that are under way at the same time are not modelled");
                HttpConnectorFuture::new(std::future::pending())
            }
        }
    }
}

impl Script {
    fn read(&mut self, target: &str, body: &Value) -> Asked {
        let token = body["ClientRequestToken"].as_str().map(|token| {
            self.tokens.iter().position(|known| known == token).unwrap_or_else(|| {
                self.tokens.push(token.to_owned());
                self.tokens.len() - 1
            })
        });
        Asked { operation: Shared::new(Operation::read(target, body, self.keys)), token }
    }
}

/// A client over a scripted network, and a runtime whose clock jumps over pauses.
struct Rig {
    runtime: Runtime,
    network: Network,
    client: Client,
}

impl Rig {
    fn new() -> Self {
        let network = Network::default();
        let config = endpoint_client("http://localhost").config().to_builder().http_client(network.clone()).build();
        let runtime = Builder::new_current_thread().enable_time().start_paused(true).build().expect("a runtime");
        Self { runtime, network, client: Client::from_conf(config) }
    }

    fn run<F: Future>(&self, script: Script, code: impl FnOnce(Client) -> F) -> (Next<F::Output>, Option<Sent>) {
        let lock = || self.network.0.lock().expect("no run panics");
        *lock() = script;
        self.runtime.block_on(async {
            let mut code = pin!(code(self.client.clone()));
            std::future::poll_fn(|context| match code.as_mut().poll(context) {
                Poll::Ready(outcome) => Poll::Ready((Next::Done(outcome), None)),
                Poll::Pending => match lock().asked.take() {
                    Some((asked, sent)) => Poll::Ready((Next::Asks(asked), Some(sent))),
                    None => Poll::Pending,
                },
            })
            .await
        })
    }
}

/// Runs code over a table with these names of its key, gives it these replies, and returns how far it gets, with the request
/// that it waits for.
pub fn run<F: Future>(
    keys: [&'static str; 2],
    replies: &[Reply],
    code: impl FnOnce(Client) -> F,
) -> (Next<F::Output>, Option<Sent>) {
    thread_local! {
        static RIG: RefCell<Option<Rig>> = const { RefCell::new(None) };
    }
    let script = Script { keys, replies: replies.iter().cloned().collect(), ..Script::default() };
    RIG.with_borrow_mut(|rig| rig.get_or_insert_with(Rig::new).run(script, code))
}
