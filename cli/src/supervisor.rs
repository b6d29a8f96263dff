//! What a supervisor such as systemd learns: that the service is ready, that it still runs, and that it stops.

#[cfg(unix)]
use std::{sync::mpsc, thread, time::Duration};

#[cfg(unix)]
use sd_notify::{NotifyState, notify, watchdog_enabled};

/// The supervisor that has started this process, if it wants to be notified (`NOTIFY_SOCKET`).
pub(crate) struct Supervisor;

impl Supervisor {
    /// Whether a supervisor that wants to be notified has started this process.
    pub(crate) fn is_there() -> bool {
        std::env::var_os("NOTIFY_SOCKET").is_some()
    }

    /// Notifies it that the service answers. From then on the runtime proves every now and then that it runs, if the supervisor
    /// asks for that (`WATCHDOG_USEC`).
    pub(crate) fn ready() -> Self {
        #[cfg(unix)]
        {
            send(NotifyState::Ready);
            if let Some(period) = watchdog_enabled() {
                watch(period);
            }
        }
        Self
    }

    /// Notifies it that the service has begun to stop.
    #[cfg_attr(not(unix), expect(clippy::unused_self))]
    pub(crate) fn stopping(self) {
        #[cfg(unix)]
        send(NotifyState::Stopping);
    }
}

/// Without a supervisor, this does nothing.
#[cfg(unix)]
fn send(state: NotifyState<'_>) {
    if let Err(error) = notify(&[state]) {
        tracing::warn!(%error, "the supervisor cannot be notified");
    }
}

/// Proves twice a period that the runtime runs its tasks. On a thread of its own, since a timer in the runtime would cost
/// every request: see `prometheus`.
#[cfg(unix)]
fn watch(period: Duration) {
    let runtime = tokio::runtime::Handle::current();
    let run = move || {
        loop {
            let (running, runs) = mpsc::sync_channel(1);
            runtime.spawn(async move {
                let _ = running.send(());
            });
            match runs.recv_timeout(period) {
                Ok(()) => send(NotifyState::Watchdog),
                Err(mpsc::RecvTimeoutError::Timeout) => {
                    tracing::error!("the runtime has run no task for {period:?}");
                }
                // The runtime has ended.
                Err(mpsc::RecvTimeoutError::Disconnected) => return,
            }
            thread::sleep(period / 2);
        }
    };
    if let Err(error) = thread::Builder::new().name("watchdog".to_owned()).spawn(run) {
        tracing::error!(%error, "the supervisor's watchdog will end this process");
    }
}
