//! The client over a scripted transport: what lost replies mean, and what is retried.

use std::{collections::VecDeque, future::pending, sync::Arc, time::Duration};

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::{StreamExt as _, stream};
use http::{Response, header};
use http_body_util::{BodyExt as _, Full, StreamBody};
use nameservice_model::{
    Address, AdminPublisher as _, BoxError, Call, ContentId, Error, GraphSourcePublication, GraphSourcePublisher as _,
    Head, HeadPush, IndexPush, LeaseClaim, LeaseName, LeasePublisher as _, LeaseRequest, Leased, NameService as _,
    NewHead, NewIndex, Object, Publisher as _, Purged, PushOutcome, RefPublisher as _, ResetTo,
};
use serde_json::{Value, json};
use tokio::{
    sync::Mutex,
    time::{Instant, sleep},
};

use crate::{Body, ChangeEvent, ChangeFilter, Client, Request, RequestError, Retries, Transport, TransportError};

const ID: &str = "bafybeigdyrzt5sfp7udm7hu76uh7y26nf3efuylqabf3oclgtqy55fbzdi";

/// What happens to a request.
enum Reply {
    Lost,
    Unreachable,
    Answer(u16, Value),
    Events(&'static str),
    /// The request is accepted, and nothing comes.
    Silence,
    /// A reply after this many seconds.
    Late(u64, Box<Self>),
    /// Headers of this type and the beginning of a body, and nothing more.
    Half(&'static str, &'static str),
}

/// A path, and the key that was sent with it.
type Sent = (String, Option<String>);

/// Gives these answers in order, repeating the last one, and records what was sent.
#[derive(Clone, Default)]
struct Script {
    replies: Arc<Mutex<VecDeque<Reply>>>,
    sent: Arc<Mutex<Vec<Sent>>>,
}

impl std::fmt::Debug for Script {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Script")
    }
}

#[async_trait]
impl Transport for Script {
    async fn send(&self, request: http::Request<Bytes>, _: Duration) -> Result<Response<Body>, TransportError> {
        let header = |name| request.headers().get(name).and_then(|value| value.to_str().ok()).map(str::to_owned);
        let kept = header("idempotency-key").or_else(|| header("last-event-id"));
        self.sent.lock().await.push((request.uri().to_string(), kept));
        let mut replies = self.replies.lock().await;
        let mut reply = replies.pop_front().expect("no reply is left");
        if let Reply::Late(seconds, late) = reply {
            sleep(Duration::from_secs(seconds)).await;
            reply = *late;
        }
        let (status, content_type, body) = match reply {
            Reply::Late(..) => panic!("late twice"),
            Reply::Silence => pending().await,
            Reply::Half(content_type, text) => {
                // The frame type of `http-body` is only reachable through a body.
                let frame = Full::new(Bytes::from(text)).map_err(|never| match never {}).boxed_unsync().frame().await;
                let frames = stream::iter(frame.into_iter().collect::<Vec<Result<_, BoxError>>>());
                let body = StreamBody::new(frames.chain(stream::pending())).boxed_unsync();
                return Ok(Response::builder().header(header::CONTENT_TYPE, content_type).body(body).unwrap());
            }
            Reply::Lost => return Err(TransportError::Lost("cut off".into())),
            Reply::Unreachable => {
                replies.push_front(Reply::Unreachable);
                return Err(TransportError::Unreachable { url: "http://x".into(), source: "nobody".into() });
            }
            Reply::Answer(status, body) => (status, "application/json", body.to_string()),
            Reply::Events(text) => (200, "text/event-stream", text.to_owned()),
        };
        let body = Full::new(Bytes::from(body)).map_err(|never| match never {}).boxed_unsync();
        Ok(Response::builder().status(status).header(header::CONTENT_TYPE, content_type).body(body).unwrap())
    }
}

fn client(replies: impl IntoIterator<Item = Reply>) -> (Client, Script) {
    let script = Script { replies: Arc::new(Mutex::new(replies.into_iter().collect())), ..Script::default() };
    (Client::over(script.clone()).build().unwrap(), script)
}

fn problem(status: u16, slug: &str, members: Value) -> Reply {
    let mut body = json!({
        "type": format!("https://nameservice.dev/problems/{slug}"), "title": "t", "status": status, "detail": "d",
    });
    body.as_object_mut().unwrap().extend(members.as_object().unwrap().clone());
    Reply::Answer(status, body)
}

fn mydb() -> Address {
    Address::parse("mydb").unwrap()
}

fn push(t: i64) -> HeadPush {
    let new = NewHead::new(ContentId::parse(ID).unwrap(), t).unwrap();
    HeadPush::cas(Head::new(t - 1, ContentId::parse(ID).unwrap()), new)
}

fn conflict(t: i64) -> Reply {
    problem(409, "conflict", json!({"actual": {"id": ID, "t": t}}))
}

#[tokio::test(start_paused = true)]
async fn a_write_whose_answer_was_lost_is_repeated_under_its_key() {
    let updated = json!({"status": "updated", "value": {"id": ID, "t": 6}, "replayed": true});
    let (client, script) = client([Reply::Lost, Reply::Answer(200, updated)]);
    let outcome = client.push_head(&Call::fresh(), &mydb(), &push(6)).await.unwrap();
    assert!(matches!(outcome, PushOutcome::Updated { replayed: true, .. }), "{outcome:?}");
    let sent = script.sent.lock().await;
    assert_eq!(sent.len(), 2);
    assert!(sent[0].1.is_some() && sent[0] == sent[1], "{sent:?}");
}

#[tokio::test(start_paused = true)]
async fn a_conflict_is_certain_unless_a_lost_attempt_may_be_behind_it() {
    let push_over =
        |replies: Vec<Reply>| async { client(replies).0.push_head(&Call::fresh(), &mydb(), &push(6)).await };
    let certain = push_over(vec![conflict(100)]).await.unwrap();
    assert!(matches!(certain, PushOutcome::Conflict { actual: Some(actual) } if actual.v == 100));
    // The service remembers four writes: with fewer since, it would have recognised the call.
    let recognised = push_over(vec![Reply::Lost, conflict(9)]).await.unwrap();
    assert!(matches!(recognised, PushOutcome::Conflict { .. }), "{recognised:?}");
    let unknown = push_over(vec![Reply::Lost, conflict(10)]).await;
    assert!(matches!(unknown, Err(Error::OutcomeUnknown { .. })), "{unknown:?}");
}

#[tokio::test(start_paused = true)]
async fn a_lost_lease_is_certain_unless_a_lost_attempt_may_be_behind_it() {
    let claim = LeaseClaim::new(LeaseName::parse("index_lock").unwrap(), "a", 1).unwrap();
    let push_under = async |replies: Vec<Reply>| {
        let push = push(6).under(claim.clone()).unwrap();
        client(replies).0.push_head(&Call::fresh(), &mydb(), &push).await
    };
    let lost = || problem(409, "lease-lost", json!({ "lease": null }));
    let answered = push_under(vec![lost()]).await;
    assert!(matches!(answered, Ok(PushOutcome::LeaseLost { .. })), "{answered:?}");
    let answered = push_under(vec![Reply::Lost, lost()]).await;
    assert!(matches!(answered, Err(Error::OutcomeUnknown { .. })), "{answered:?}");
}

#[tokio::test(start_paused = true)]
async fn a_write_that_is_never_answered_is_unknown_and_one_that_was_never_sent_is_unavailable() {
    let (client_lost, _) = client((0..200).map(|_| Reply::Lost));
    let lost = client_lost.push_head(&Call::fresh(), &mydb(), &push(6)).await;
    assert!(matches!(lost, Err(Error::OutcomeUnknown { .. })), "{lost:?}");
    let (client_unsent, _) = client([Reply::Unreachable]);
    let unsent = client_unsent.push_head(&Call::fresh(), &mydb(), &push(6)).await;
    assert!(matches!(unsent, Err(Error::Unavailable { .. })), "{unsent:?}");
    let (client_both, _) = client([Reply::Lost, Reply::Unreachable]);
    let both = client_both.push_head(&Call::fresh(), &mydb(), &push(6)).await;
    assert!(matches!(both, Err(Error::OutcomeUnknown { .. })), "the first attempt may have been applied: {both:?}");
}

#[tokio::test(start_paused = true)]
async fn after_a_lost_attempt_only_a_decision_of_the_service_is_certain() {
    let decisions = [(409, "limit-reached"), (422, "idempotency-key-reused")];
    let others = [
        // The record that remembered the attempt may have been purged since.
        (404, "unknown-record"),
        (409, "wrong-kind"),
        (409, "conflict"),
        (410, "retracted"),
        // The service has not looked for the key.
        (400, "invalid-body"),
        (401, "unauthorized"),
        (403, "insufficient-scope"),
        (403, "address-not-covered"),
        (404, "not-found"),
        (405, "method-not-allowed"),
        (408, "request-timeout"),
        (413, "payload-too-large"),
        (415, "unsupported-media-type"),
        (500, "internal"),
        (501, "unsupported"),
    ];
    let pushed = |replies: Vec<Reply>| async { client(replies).0.push_head(&Call::fresh(), &mydb(), &push(6)).await };
    let is_unknown = |answer: &_| matches!(answer, Err(Error::OutcomeUnknown { .. }));
    for (status, slug) in decisions {
        let answer = pushed(vec![Reply::Lost, problem(status, slug, json!({}))]).await;
        assert!(!is_unknown(&answer), "{slug}: {answer:?}");
    }
    for (status, slug) in others {
        let answer = pushed(vec![Reply::Lost, problem(status, slug, json!({}))]).await;
        assert!(is_unknown(&answer), "{slug}: {answer:?}");
        let answer = pushed(vec![problem(status, slug, json!({}))]).await;
        assert!(!is_unknown(&answer), "{slug} without a lost attempt: {answer:?}");
    }
    // Something in front of the service, which shows no problem, and an answer that is none.
    for status in [301, 400, 401, 403, 404, 409, 410, 413, 422] {
        let answer = pushed(vec![Reply::Lost, Reply::Answer(status, json!({ "message": "no" }))]).await;
        assert!(is_unknown(&answer), "{status}: {answer:?}");
    }
    let answer = pushed(vec![Reply::Lost, Reply::Answer(200, json!("a page"))]).await;
    assert!(is_unknown(&answer), "{answer:?}");
}

#[tokio::test(start_paused = true)]
async fn after_a_lost_attempt_no_operation_says_that_nothing_was_written_to_a_record_that_is_gone() {
    type Answer = std::pin::Pin<Box<dyn Future<Output = String>>>;
    fn shown<T: std::fmt::Debug + 'static>(
        answer: impl Future<Output = nameservice_model::Result<T>> + 'static,
    ) -> Answer {
        Box::pin(async move {
            match answer.await {
                Err(Error::OutcomeUnknown { .. }) => "outcome unknown".to_owned(),
                other => format!("{other:?}"),
            }
        })
    }
    let operations: [fn(Client) -> Answer; 12] = [
        |client| shown(async move { client.push_head(&Call::fresh(), &mydb(), &push(6)).await }),
        |client| {
            shown(async move {
                let index = IndexPush::monotonic(NewIndex::new(ContentId::stored("b1"), 1).unwrap());
                client.push_index(&Call::fresh(), &mydb(), &index).await
            })
        },
        |client| shown(async move { client.retract(&Call::fresh(), &mydb(), None).await }),
        |client| shown(async move { client.restore(&Call::fresh(), &mydb()).await }),
        |client| shown(async move { client.protect(&Call::fresh(), &mydb(), true).await }),
        |client| shown(async move { client.drop_branch(&Call::fresh(), &mydb()).await }),
        |client| {
            shown(async move {
                let to = ResetTo::new(Some(NewHead::new(ContentId::stored("b1"), 1).unwrap()), None).unwrap();
                client.reset_head(&Call::fresh(), &mydb(), &to).await
            })
        },
        |client| {
            shown(async move {
                let publication = GraphSourcePublication::new(mydb(), "f:Bm25Index", Object::new()).unwrap();
                client.publish_graph_source(&Call::fresh(), &publication).await
            })
        },
        |client| {
            shown(async move {
                client.acquire_lease(&Call::fresh(), &mydb(), &LeaseRequest::new(LeaseName::INDEX, "i1").unwrap()).await
            })
        },
        |client| {
            shown(async move {
                client
                    .refresh_lease(&Call::fresh(), &mydb(), &LeaseRequest::new(LeaseName::INDEX, "i1").unwrap(), 1)
                    .await
            })
        },
        |client| {
            shown(async move {
                let claim = LeaseRequest::new(LeaseName::INDEX, "i1").unwrap().claim(1);
                client.release_lease(&Call::fresh(), &mydb(), &claim).await
            })
        },
        |client| shown(async move { client.purge(&Call::fresh(), &mydb()).await }),
    ];
    for (i, operation) in operations.iter().enumerate() {
        for (status, slug) in [(404, "unknown-record"), (410, "retracted"), (409, "wrong-kind")] {
            let gone = || problem(status, slug, json!({}));
            let definite = operation(client([gone()]).0).await;
            assert_ne!(definite, "outcome unknown", "{i}: {slug} without a lost attempt");
            let answer = operation(client([Reply::Lost, gone()]).0).await;
            match (i, slug) {
                (11, "unknown-record") => assert_eq!(answer, "Ok(Purged)"),
                _ => assert_eq!(answer, "outcome unknown", "{i}: {slug}"),
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_on_a_connection_that_has_died_is_repeated_within_the_deadline() {
    let updated = json!({"status": "updated", "value": {"id": ID, "t": 6}, "replayed": true});
    let (client, script) = client([Reply::Silence, Reply::Answer(200, updated)]);
    let outcome = client.push_head(&Call::fresh(), &mydb(), &push(6)).await.unwrap();
    assert!(matches!(outcome, PushOutcome::Updated { .. }), "{outcome:?}");
    let sent = script.sent.lock().await;
    assert!(sent.len() == 2 && sent[0] == sent[1], "{sent:?}");
}

#[tokio::test(start_paused = true)]
async fn outcomes_are_no_errors() {
    let unknown = || problem(404, "unknown-record", json!({}));
    assert_eq!(client([unknown()]).0.lookup(&mydb()).await.unwrap(), None);
    assert_eq!(client([unknown()]).0.purge(&Call::fresh(), &mydb()).await.unwrap(), Purged::Unknown);
    let purged = client([Reply::Lost, unknown()]).0.purge(&Call::fresh(), &mydb()).await.unwrap();
    assert_eq!(purged, Purged::Purged, "by the attempt whose answer was lost");
    let lease = json!({"name": "index_lock", "holder": "other", "acquired_at": 1, "expires_at": 2});
    let request = LeaseRequest::new(LeaseName::INDEX, "i1").unwrap();
    let held = client([problem(409, "lease-held", json!({"lease": lease}))]);
    let leased = held.0.acquire_lease(&Call::fresh(), &mydb(), &request).await.unwrap();
    assert!(matches!(leased, Leased::Busy(lease) if lease.holder == "other"));
    let claim: LeaseClaim = request.claim(1);
    let gone = client([problem(410, "retracted", json!({}))]).0;
    let outcome = gone.push_head(&Call::fresh(), &mydb(), &push(6).under(claim).unwrap()).await.unwrap();
    assert_eq!(outcome, PushOutcome::Retracted);
}

#[tokio::test(start_paused = true)]
async fn a_key_that_was_used_for_another_request_is_an_error_of_its_own() {
    let (client, _) = client([problem(422, "idempotency-key-reused", json!({}))]);
    let outcome = client.push_head(&Call::fresh(), &mydb(), &push(6)).await;
    assert!(matches!(outcome, Err(Error::IdempotencyKeyReused { .. })), "{outcome:?}");
}

#[tokio::test(start_paused = true)]
async fn a_follower_resumes_after_the_last_event_that_it_returned() {
    resumes(": stream begins\nevent: position\ndata: {\"position\":7}\nid: 7\n\n").await;
    // As services of earlier releases begin, and perhaps those of later ones.
    resumes(": open\n\nid: 7\n\n").await;
    resumes("event: unheard-of\ndata: no JSON\nid: 7\n\n").await;
}

/// Follows a service whose first stream begins so, at 7, and is cut.
async fn resumes(begun: &'static str) {
    let change = "id: 8\nevent: change\ndata: {\"position\":8,\"address\":\"mydb:main\",\"kind\":\"ledger\",\"name\":\"mydb\",\
                  \"branch\":\"main\",\"concern\":\"head\",\"change\":\"updated\",\"watermark\":3,\
                  \"occurred_at\":\"2026-01-01T00:00:00Z\",\"recorded_at\":\"2026-01-01T00:00:00Z\"}\n\n";
    let gone = "event: expired\ndata: {\"oldest\":20}\n\n";
    let replies = [Reply::Events(begun), Reply::Lost, Reply::Events(change), Reply::Events(gone)];
    let (client, script) = client(replies);
    let mut follow = client.follow(ChangeFilter::default(), None);
    let ChangeEvent::Change(found) = follow.next().await.unwrap() else { panic!("no change") };
    assert_eq!((found.position, follow.position()), (8, Some(8)));
    assert_eq!(follow.next().await.unwrap(), ChangeEvent::Gone { oldest: 20 });
    assert_eq!(follow.position(), Some(19));
    let resumed: Vec<_> = script.sent.lock().await.iter().map(|(_, id)| id.clone()).collect();
    assert_eq!(resumed, [None, Some("7".into()), Some("7".into()), Some("8".into())]);
}

#[tokio::test(start_paused = true)]
async fn a_service_that_accepts_and_says_nothing_holds_a_call_no_longer_than_its_deadline() {
    let half = || Reply::Half("application/json", "{\"status\":");
    let late = |seconds| Reply::Late(seconds, Box::new(Reply::Lost));
    let silent: [fn() -> Vec<Reply>; 2] =
        [|| vec![Reply::Silence], || (0..9).map(|_| Reply::Late(6, Box::new(Reply::Lost))).collect()];
    let scripts =
        silent.iter().map(|script| script()).chain([vec![half()], vec![late(19), half()], vec![late(1), late(30)]]);
    for (i, script) in scripts.enumerate() {
        let begun = Instant::now();
        let script = script.into_iter().chain([Reply::Silence, Reply::Silence]);
        let answer = client(script).0.push_head(&Call::fresh(), &mydb(), &push(6)).await;
        assert!(matches!(answer, Err(Error::OutcomeUnknown { .. })), "{i}: {answer:?}");
        assert!(begun.elapsed() <= Duration::from_secs(21), "{i}: {:?}", begun.elapsed());
    }
    let begun = Instant::now();
    let read = client([Reply::Silence, Reply::Silence]).0.lookup(&mydb()).await;
    assert!(matches!(read, Err(Error::Unavailable { .. })), "{read:?}");
    assert!(begun.elapsed() <= Duration::from_secs(21), "{:?}", begun.elapsed());
    // What the service is asked to wait is added, and an answer that comes within it counts.
    let found = Reply::Late(30, Box::new(Reply::Answer(200, json!({ "position": 7 }))));
    let answer = client([found]).0.send::<Value>(&Request::get("changes").query("wait", Some(15))).await;
    assert_eq!(answer.unwrap()["position"], 7);
    // One attempt alone has the time limit of an attempt.
    let script = Script { replies: Arc::new(Mutex::new([Reply::Silence].into())), ..Script::default() };
    let one = Client::over(script).retries(Retries::NONE).timeout(Duration::from_secs(5)).build().unwrap();
    let begun = Instant::now();
    let answer = one.send::<Value>(&Request::get("health")).await;
    assert!(matches!(answer, Err(RequestError::NoAnswer(_))), "{answer:?}");
    assert!(begun.elapsed() <= Duration::from_secs(6), "{:?}", begun.elapsed());
}

fn changed(position: u64) -> Value {
    json!({
        "position": position, "address": "mydb:main", "kind": "ledger", "name": "mydb", "branch": "main",
        "concern": "head", "change": "updated", "watermark": 3, "occurred_at": "2026-01-01T00:00:00Z",
        "recorded_at": "2026-01-01T00:00:00Z",
    })
}

fn page(position: u64) -> Reply {
    Reply::Answer(200, json!({ "changes": [changed(position)], "position": position }))
}

/// The positions that a follower returns, and the paths that it has asked for.
async fn followed(replies: Vec<Reply>, count: usize) -> (Vec<u64>, Vec<String>) {
    let (client, script) = client(replies);
    let mut follow = client.follow(ChangeFilter::default(), Some(7));
    let mut positions = Vec::new();
    for _ in 0..count {
        let ChangeEvent::Change(change) = follow.next().await.unwrap() else { panic!("no change") };
        positions.push(change.position);
    }
    let asked = script.sent.lock().await.iter().map(|(path, _)| path.split('?').next().unwrap().to_owned()).collect();
    (positions, asked)
}

#[tokio::test(start_paused = true)]
async fn a_follower_polls_after_a_stream_that_brought_nothing() {
    let stream = "text/event-stream";
    // No headers, headers alone, and the beginning of a block: the proxy keeps back the rest.
    for kept_back in
        [Reply::Silence, Reply::Half(stream, ""), Reply::Half(stream, ": op"), Reply::Late(60, Box::new(Reply::Lost))]
    {
        let begun = Instant::now();
        let (positions, asked) = followed(vec![kept_back, page(8), page(9)], 2).await;
        assert_eq!(positions, [8, 9]);
        assert_eq!(asked, ["/v1/events", "/v1/changes", "/v1/changes"]);
        assert!(begun.elapsed() < Duration::from_secs(25), "{:?}", begun.elapsed());
    }
    // Where polls do not arrive either, the way may be another one afterwards.
    let event = format!(": open\nid: 8\n\nid: 9\nevent: change\ndata: {}\n\n", changed(9));
    let unavailable = || Reply::Late(0, Box::new(Reply::Silence));
    let replies = vec![Reply::Silence, page(8), unavailable(), Reply::Events(event.leak())];
    let (positions, asked) = followed(replies, 2).await;
    assert_eq!((positions, asked.len()), (vec![8, 9], 4));
    assert_eq!(asked[3], "/v1/events");
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_falls_silent_is_opened_again_within_a_minute() {
    let event = format!("id: 8\nevent: change\ndata: {}\n\n", changed(8));
    let next = format!("id: 9\nevent: change\ndata: {}\n\n", changed(9));
    let begun = Instant::now();
    let replies = vec![Reply::Half("text/event-stream", event.leak()), Reply::Events(next.leak())];
    let (positions, asked) = followed(replies, 2).await;
    assert_eq!((positions, asked), (vec![8, 9], vec!["/v1/events".to_owned(), "/v1/events".to_owned()]));
    assert!(begun.elapsed() < Duration::from_secs(60), "{:?}", begun.elapsed());
}
