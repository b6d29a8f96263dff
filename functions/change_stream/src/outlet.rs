//! The way out to a reader: a queue of a bounded size in bytes, and somebody who does not wait for ever at its end.

use std::{sync::Arc, time::Duration};

use axum::{
    http::{HeaderName, HeaderValue, header},
    response::{
        IntoResponse, Response,
        sse::{Event, Sse},
    },
};
use futures_util::stream;
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore, mpsc},
    time::{Instant, timeout},
};

/// Asks proxies (nginx, and who followed it) not to hold the stream back.
const NO_BUFFERING: (HeaderName, HeaderValue) =
    (HeaderName::from_static("x-accel-buffering"), HeaderValue::from_static("no"));
const NO_STORE: (HeaderName, HeaderValue) = (header::CACHE_CONTROL, HeaderValue::from_static("no-store"));

/// What an event weighs beside its data.
const FRAME_BYTES: usize = 128;

/// The reader has gone, or does not read.
#[derive(Debug)]
pub(crate) struct Cut;

/// An event, and the room that it takes until the next one is asked for.
type Queued = (Event, OwnedSemaphorePermit);

/// Where events are put. The stream ends when this is dropped, after what is in the queue.
pub(crate) struct Outlet {
    queue: mpsc::UnboundedSender<Queued>,
    room: Arc<Semaphore>,
    size: u32,
    patience: Duration,
    last: Instant,
}

/// A stream that holds so many bytes for its reader and waits so long for it.
pub(crate) fn open(size: u32, patience: Duration) -> (Outlet, Response) {
    // What may be in it is bounded by the permits, as events differ in size by three orders of magnitude.
    let (queue, out) = mpsc::unbounded_channel::<Queued>();
    let events = stream::unfold((out, None), |(mut out, sent)| async move {
        // Asking for the next one tells that the last one has left.
        drop::<Option<OwnedSemaphorePermit>>(sent);
        let (event, room) = out.recv().await?;
        Some((Ok::<_, std::convert::Infallible>(event), (out, Some(room))))
    });
    let outlet = Outlet { queue, room: Arc::new(Semaphore::new(size as usize)), size, patience, last: Instant::now() };
    (outlet, ([NO_STORE, NO_BUFFERING], Sse::new(events)).into_response())
}

impl Outlet {
    /// An event with data.
    pub(crate) async fn tell(&mut self, name: &str, id: Option<u64>, data: String) -> Result<(), Cut> {
        let bytes = data.len() + FRAME_BYTES;
        let event = Event::default().event(name).data(data);
        self.put(numbered(event, id), bytes).await
    }

    /// A comment, and how far the stream has come.
    pub(crate) async fn remark(&mut self, comment: &str, id: Option<u64>) -> Result<(), Cut> {
        self.put(numbered(Event::default().comment(comment), id), FRAME_BYTES).await
    }

    /// The first remark, with how long the reader should wait before it comes back.
    pub(crate) async fn greet(&mut self, comment: &str, id: Option<u64>, retry: Duration) -> Result<(), Cut> {
        self.put(numbered(Event::default().comment(comment).retry(retry), id), FRAME_BYTES).await
    }

    /// How long nothing was put.
    pub(crate) fn silence(&self) -> Duration {
        self.last.elapsed()
    }

    /// Completes when the reader has gone.
    pub(crate) fn gone(&self) -> impl Future<Output = ()> + Send + use<> {
        let queue = self.queue.clone();
        async move { queue.closed().await }
    }

    async fn put(&mut self, event: Event, bytes: usize) -> Result<(), Cut> {
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX).min(self.size);
        match timeout(self.patience, self.room.clone().acquire_many_owned(bytes)).await {
            Ok(Ok(room)) => self.queue.send((event, room)).map_err(|_| Cut)?,
            _ => return Err(Cut),
        }
        self.last = Instant::now();
        Ok(())
    }
}

fn numbered(event: Event, id: Option<u64>) -> Event {
    match id {
        Some(id) => event.id(id.to_string()),
        None => event,
    }
}
