//! A command that this program runs, and the signals for it.
//!
//! The command runs in a process group of its own, as under `timeout`: processes that it has started are stopped with it,
//! and a Ctrl-C reaches it once, forwarded from here. For the same reason it cannot read from the terminal.

use std::{collections::BTreeMap, ffi::OsString, io, process::ExitStatus, time::Duration};

use tokio::{
    process::{Child, Command},
    time::{Instant, sleep},
};

/// How often a group that was asked to end is checked.
const POLL: Duration = Duration::from_millis(20);

/// A running command.
#[derive(Debug)]
pub struct Running {
    child: Child,
    #[cfg(unix)]
    group: Option<rustix::process::Pid>,
}

impl Running {
    /// Starts a command: a program and its arguments.
    pub fn start(command: &[OsString], environment: BTreeMap<&str, String>) -> io::Result<Self> {
        let Some((program, arguments)) = command.split_first() else {
            return Err(io::Error::new(io::ErrorKind::NotFound, "there is no command"));
        };
        let mut command = Command::new(program);
        command.args(arguments).envs(environment);
        #[cfg(unix)]
        command.process_group(0);
        let child = command.spawn()?;
        Ok(Self {
            #[cfg(unix)]
            group: child.id().and_then(|id| rustix::process::Pid::from_raw(id.try_into().ok()?)),
            child,
        })
    }

    /// Waits for its end.
    pub async fn wait(&mut self) -> io::Result<ExitStatus> {
        self.child.wait().await
    }

    /// Ends the command and the processes that it has started: by request, and after the grace period by force.
    pub async fn stop(&mut self, grace: Duration) -> io::Result<ExitStatus> {
        let deadline = Instant::now() + grace;
        self.pass(Signal::Terminate);
        while Instant::now() < deadline {
            if let Some(status) = self.child.try_wait()?
                && !self.has_members()
            {
                return Ok(status);
            }
            sleep(POLL).await;
        }
        self.kill()?;
        self.child.wait().await
    }
}

/// A signal that is forwarded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// The terminal is gone.
    HangUp,
    /// Ctrl-C.
    Interrupt,
    /// Ctrl-\.
    Quit,
    /// A request to terminate.
    Terminate,
    /// Ctrl-Z. It is not forwarded: the group is stopped, and continued with this process.
    Stop,
}

impl Signal {
    /// Returns the exit code that a shell gives a command that this signal has ended.
    pub fn exit_code(self) -> u8 {
        128 + match self {
            Self::HangUp => 1,
            Self::Interrupt => 2,
            Self::Quit => 3,
            Self::Terminate => 15,
            Self::Stop => 20,
        }
    }
}

#[cfg(unix)]
mod system {
    use std::os::unix::process::ExitStatusExt as _;

    use rustix::process::{self, kill_process_group, test_kill_process_group};
    use tokio::signal::unix::{self, SignalKind, signal};

    use super::*;

    impl Running {
        /// Forwards a signal to the whole group, if any of it is left.
        pub fn pass(&mut self, signal: Signal) {
            let signal = match signal {
                Signal::HangUp => process::Signal::HUP,
                Signal::Interrupt => process::Signal::INT,
                Signal::Quit => process::Signal::QUIT,
                Signal::Terminate => process::Signal::TERM,
                Signal::Stop => return self.pause(),
            };
            if let Some(group) = self.group {
                let _ = kill_process_group(group, signal);
                // A stopped process receives its signals only once it continues.
                let _ = kill_process_group(group, process::Signal::CONT);
            }
        }

        /// Stops the group until it is resumed.
        pub fn pause(&mut self) {
            if let Some(group) = self.group {
                let _ = kill_process_group(group, process::Signal::STOP);
            }
        }

        /// Continues the group.
        pub fn resume(&mut self) {
            if let Some(group) = self.group {
                let _ = kill_process_group(group, process::Signal::CONT);
            }
        }

        pub(super) fn has_members(&self) -> bool {
            self.group.is_some_and(|group| test_kill_process_group(group).is_ok())
        }

        pub(super) fn kill(&mut self) -> io::Result<()> {
            match self.group {
                Some(group) => match kill_process_group(group, process::Signal::KILL) {
                    Err(rustix::io::Errno::SRCH) | Ok(()) => Ok(()),
                    Err(error) => Err(error.into()),
                },
                None => self.child.start_kill(),
            }
        }
    }

    /// The signals to forward to the command. Once this listens, they no longer end this process.
    #[derive(Debug)]
    pub struct Signals([(Signal, unix::Signal); 5]);

    impl Signals {
        /// Begins to listen.
        pub fn listen() -> io::Result<Self> {
            Ok(Self([
                (Signal::HangUp, signal(SignalKind::hangup())?),
                (Signal::Interrupt, signal(SignalKind::interrupt())?),
                (Signal::Quit, signal(SignalKind::quit())?),
                (Signal::Terminate, signal(SignalKind::terminate())?),
                (Signal::Stop, signal(SignalKind::from_raw(process::Signal::TSTP.as_raw()))?),
            ]))
        }

        /// Waits for the next signal.
        pub async fn next(&mut self) -> Signal {
            let [(a, hang_up), (b, interrupt), (c, quit), (d, terminate), (e, stop)] = &mut self.0;
            tokio::select! {
                _ = hang_up.recv() => *a,
                _ = interrupt.recv() => *b,
                _ = quit.recv() => *c,
                _ = terminate.recv() => *d,
                _ = stop.recv() => *e,
            }
        }
    }

    /// Stops this process, as Ctrl-Z does if nothing listens for it. Returns once it is continued.
    pub fn stop_this_process() {
        let _ = process::kill_process(process::getpid(), process::Signal::STOP);
    }

    /// Returns the exit code of a command as a shell does: 128 plus the signal if one has ended it.
    pub fn exit_code(status: ExitStatus) -> u8 {
        let code = status.code().or_else(|| Some(128 + status.signal()?));
        code.and_then(|code| code.try_into().ok()).unwrap_or(u8::MAX)
    }
}

#[cfg(not(unix))]
mod system {
    use super::*;

    impl Running {
        /// Ends the command: there is no gentler way here.
        pub fn pass(&mut self, _signal: Signal) {
            let _ = self.child.start_kill();
        }

        /// Nothing stops a command here.
        pub fn pause(&mut self) {}

        /// Nothing stops a command here.
        pub fn resume(&mut self) {}

        pub(super) fn has_members(&self) -> bool {
            false
        }

        pub(super) fn kill(&mut self) -> io::Result<()> {
            self.child.start_kill()
        }
    }

    /// The signals that are meant for the command.
    #[derive(Debug)]
    pub struct Signals;

    impl Signals {
        /// Begins to listen.
        pub fn listen() -> io::Result<Self> {
            Ok(Self)
        }

        /// Waits for the next signal.
        pub async fn next(&mut self) -> Signal {
            if tokio::signal::ctrl_c().await.is_err() {
                std::future::pending::<()>().await;
            }
            Signal::Interrupt
        }
    }

    /// Nothing stops this process.
    pub fn stop_this_process() {}

    /// The exit code of a command.
    pub fn exit_code(status: ExitStatus) -> u8 {
        status.code().and_then(|code| code.try_into().ok()).unwrap_or(u8::MAX)
    }
}

pub use system::{Signals, exit_code, stop_this_process};
