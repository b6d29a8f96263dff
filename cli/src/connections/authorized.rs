//! A stream that ends some time after the authority of its client's certificate was withdrawn.

use std::{
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    time::Instant,
};

use super::tls::{Authority, Tls};

/// A stream that fails once the authority of its client has been withdrawn for this long. A connection of HTTP ends before that; a
/// WebSocket, which keeps the stream after the connection's future has ended, does not notice it otherwise: its heartbeat fails.
pub(super) struct Authorized<S> {
    stream: S,
    client: Option<(Arc<Tls>, Authority)>,
    limit: Duration,
    withdrawn_at: Option<Instant>,
}

impl<S> Authorized<S> {
    pub(super) fn new(stream: S, client: Option<(Arc<Tls>, Authority)>, limit: Duration) -> Self {
        Self { stream, client, limit, withdrawn_at: None }
    }

    fn check(&mut self) -> io::Result<()> {
        let Some((tls, by)) = &self.client else { return Ok(()) };
        if tls.authority() == Some(*by) {
            self.withdrawn_at = None;
            return Ok(());
        }
        match self.withdrawn_at.get_or_insert_with(Instant::now).elapsed() > self.limit {
            true => Err(io::Error::new(io::ErrorKind::PermissionDenied, "the authority of the client was withdrawn")),
            false => Ok(()),
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Authorized<S> {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        self.check()?;
        Pin::new(&mut self.stream).poll_read(context, into)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Authorized<S> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.check()?;
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.check()?;
        Pin::new(&mut self.stream).poll_write_vectored(context, parts)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
