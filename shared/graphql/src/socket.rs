//! `graphql-transport-ws`: operations over one WebSocket, until its token expires.

use std::{
    collections::HashSet,
    future::ready,
    pin::pin,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use async_graphql::{
    Data, Error, Executor,
    http::{ClientMessage, WebSocket as Operations, WebSocketProtocols, WsMessage},
};
use axum::extract::ws::{CloseFrame, Message, WebSocket};
use futures_util::{Sink, SinkExt as _, StreamExt as _};
use nameservice_api::strict;
use nameservice_http::{Problem, Shutdown};
use serde::Deserialize;
use serde_json::Value;
use tokio::{
    sync::oneshot,
    time::{Instant, interval_at, sleep, timeout},
};

/// How many operations may run over a socket at the same time.
const MAX_OPERATIONS: usize = 100;
/// How long a client may take to send `connection_init`.
const INIT_TIMEOUT: Duration = Duration::from_secs(10);
/// How often a client must show that it is alive.
const HEARTBEAT: Duration = Duration::from_secs(30);
/// How long a message waits for a client that does not read.
const WRITE_TIMEOUT: Duration = Duration::from_secs(30);
/// The longest reason of a close frame, in bytes.
const MAX_REASON_BYTES: usize = 120;

/// The session that a token opens.
pub(crate) struct Session {
    /// The data for the resolvers.
    pub(crate) data: Data,
    /// How long the token is valid; `None` if it does not expire.
    pub(crate) ends_in: Option<Duration>,
}

/// The reason why a socket is closed: a close code of the protocol, and a reason.
type End = (u16, String);

/// Answers the operations of a socket, and closes it.
pub(crate) async fn serve<A>(
    socket: WebSocket,
    executor: impl Executor,
    shutdown: Shutdown,
    authorize: impl FnOnce(Value) -> A + Send + 'static,
) where
    A: Future<Output = Result<Session, Problem>> + Send + 'static,
{
    let (mut sink, stream) = socket.split();
    let watch = Arc::new(Watch::default());
    let (began, beginning) = oneshot::channel();
    let begin = {
        let watch = watch.clone();
        move |payload| async move {
            match authorize(payload).await {
                Ok(Session { data, ends_in }) => {
                    watch.begun.store(true, Ordering::Relaxed);
                    // Fails if the socket is being closed.
                    let _ = began.send(ends_in);
                    Ok(data)
                }
                Err(problem) => {
                    let reason = problem.document().detail;
                    watch.end(4403, &reason);
                    Err(Error::new(reason))
                }
            }
        }
    };
    let incoming = {
        let watch = watch.clone();
        stream.scan((), move |(), message| ready(watch.take(message))).filter_map(ready)
    };
    let operations = Operations::from_message_stream(executor, incoming, WebSocketProtocols::GraphQLWS);
    let mut operations = pin!(operations.on_connection_init(begin));
    let mut over = pin!(over(shutdown, beginning));
    let mut heartbeat = interval_at(Instant::now() + HEARTBEAT, HEARTBEAT);
    let end = loop {
        let message = tokio::select! {
            message = operations.next() => match message {
                Some(WsMessage::Text(text)) => {
                    watch.sent(&text);
                    Message::text(text)
                }
                Some(WsMessage::Close(code, reason)) => break watch.ended().or(Some((code, reason))),
                None => break watch.ended(),
            },
            _ = heartbeat.tick() => match watch.is_alive() {
                true => Message::Ping(Default::default()),
                false => break None,
            },
            end = &mut over => break Some(end),
        };
        if !send(&mut sink, message).await {
            return;
        }
    };
    if let Some((code, mut reason)) = end {
        reason.truncate(reason.floor_char_boundary(MAX_REASON_BYTES));
        let _ = send(&mut sink, Message::Close(Some(CloseFrame { code, reason: reason.into() }))).await;
    }
    let _ = timeout(WRITE_TIMEOUT, sink.close()).await;
}

/// Whether a message was sent.
async fn send(sink: &mut (impl Sink<Message> + Unpin), message: Message) -> bool {
    matches!(timeout(WRITE_TIMEOUT, sink.send(message)).await, Ok(Ok(())))
}

/// Completes once the socket must be closed, whatever its client does.
async fn over(shutdown: Shutdown, beginning: oneshot::Receiver<Option<Duration>>) -> End {
    let session = async {
        match timeout(INIT_TIMEOUT, beginning).await {
            Err(_) => (4408, "Connection initialisation timeout"),
            Ok(Ok(Some(left))) => {
                sleep(left).await;
                (4403, "the token has ended")
            }
            // The token does not expire, or was rejected.
            Ok(_) => std::future::pending().await,
        }
    };
    let (code, reason) = tokio::select! {
        () = shutdown.begun() => (1001, "the service is stopping"),
        end = session => end,
    };
    (code, reason.to_owned())
}

/// The state of a socket, as observed from its messages.
#[derive(Default)]
struct Watch {
    state: Mutex<Watched>,
    /// Whether its caller is known.
    begun: AtomicBool,
    /// Whether anything was received since the last heartbeat.
    heard: AtomicBool,
}

#[derive(Default)]
struct Watched {
    /// The operations that run, by id.
    running: HashSet<String>,
    end: Option<End>,
}

impl Watch {
    /// Handles a received message. `None` closes the socket; `Some(None)` is a frame outside the protocol, such as a ping.
    fn take(&self, message: Result<Message, axum::Error>) -> Option<Option<serde_json::Result<ClientMessage>>> {
        self.heard.store(true, Ordering::Relaxed);
        // A binary frame is text, too: what cannot be read as text is rejected below.
        let text = match &message {
            Ok(Message::Text(text)) => Some(text.as_str()),
            Ok(Message::Binary(bytes)) => str::from_utf8(bytes).ok(),
            _ => None,
        };
        if let Some(text) = text
            && serde_json::from_str::<serde::de::IgnoredAny>(text).is_ok()
            && let Some((path, reason)) = strict::changed(text)
        {
            self.end(4400, &format!("Invalid message received: {path} {reason}"));
            return None;
        }
        let message = match message {
            Ok(Message::Text(text)) => ClientMessage::from_bytes(text.as_str()),
            Ok(Message::Binary(bytes)) => ClientMessage::from_bytes(bytes),
            Ok(Message::Ping(_) | Message::Pong(_)) => return Some(None),
            Ok(Message::Close(_)) | Err(_) => return None,
        };
        match &message {
            Ok(ClientMessage::Start { .. }) if !self.begun.load(Ordering::Relaxed) => {
                self.end(4401, "Unauthorized");
                return None;
            }
            Ok(ClientMessage::Start { id, .. }) => {
                let mut state = self.state();
                if state.running.len() >= MAX_OPERATIONS {
                    state.end = Some((4429, format!("at most {MAX_OPERATIONS} operations run over a socket")));
                    return None;
                }
                if !state.running.insert(id.clone()) {
                    state.end = Some((4409, format!("Subscriber for {id} already exists")));
                    return None;
                }
            }
            Ok(ClientMessage::Stop { id }) => {
                self.state().running.remove(id);
            }
            Ok(_) => {}
            Err(error) => {
                // The protocol's close code for an invalid message.
                self.end(4400, &format!("Invalid message received: {error}"));
                return None;
            }
        }
        Some(Some(message))
    }

    /// Observes a message that is sent: the last one of an operation ends it.
    fn sent(&self, text: &str) {
        #[derive(Deserialize)]
        struct Last {
            id: String,
        }
        let is_last = [r#"{"type":"complete","#, r#"{"type":"error","#].iter().any(|begin| text.starts_with(begin));
        if is_last && let Ok(Last { id }) = serde_json::from_str(text) {
            self.state().running.remove(&id);
        }
    }

    fn is_alive(&self) -> bool {
        self.heard.swap(false, Ordering::Relaxed)
    }

    fn end(&self, code: u16, reason: &str) {
        self.state().end.get_or_insert_with(|| (code, reason.to_owned()));
    }

    fn ended(&self) -> Option<End> {
        self.state().end.clone()
    }

    fn state(&self) -> std::sync::MutexGuard<'_, Watched> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
