//! A build without tables has no stream to consume.

use crate::{failure::Failure, nudge::Nudge, serve::ServeArgs, target::Opened};

/// Nothing runs beside the service.
pub(crate) struct Beside;

impl Beside {
    #[expect(clippy::unused_async, reason = "as with tables")]
    pub(crate) async fn start(_: &ServeArgs, _: &Opened) -> Result<Self, Failure> {
        Ok(Self)
    }

    pub(crate) fn continues_traces(&self) -> bool {
        false
    }

    pub(crate) fn nudge(&self) -> Option<Nudge> {
        None
    }

    #[expect(clippy::unused_async, reason = "as with tables")]
    pub(crate) async fn stop(self) {}
}
