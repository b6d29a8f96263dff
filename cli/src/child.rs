//! A command that this program runs, and the signals for it.
//!
//! The command runs in a process group of its own, as under `timeout`: processes that it has started are stopped with it,
//! and a Ctrl-C reaches it once, forwarded from here. For the same reason it cannot read from the terminal.
//!
//! A process that is killed stops nothing. So another process, the guard, waits for the end of this one, and kills the group.

use std::{collections::BTreeMap, ffi::OsString, io, process::ExitStatus, time::Duration};

use tokio::{
    process::{Child, Command},
    time::{Instant, sleep},
};

#[cfg(unix)]
use crate::output;

/// How often a group that was asked to end is checked.
const POLL: Duration = Duration::from_millis(20);

/// A running command.
#[derive(Debug)]
pub struct Running {
    child: Child,
    #[cfg(unix)]
    group: Option<rustix::process::Pid>,
    #[cfg(unix)]
    guard: system::Guard,
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
        {
            let mut guard = system::Guard::start();
            // The guard knows the group before the command is in it: this process may be killed at any moment.
            let leader = system::Leader::start().ok();
            let group = leader.as_ref().and_then(system::Leader::group);
            guard.watch(group);
            let spawned = command.process_group(group.map_or(0, |group| group.as_raw_nonzero().get())).spawn();
            drop(leader);
            let child = spawned.inspect_err(|_| guard.watch(None))?;
            let group = group.or_else(|| rustix::process::Pid::from_raw(child.id()?.try_into().ok()?));
            guard.watch(group);
            Ok(Self { child, group, guard })
        }
        #[cfg(not(unix))]
        {
            Ok(Self { child: command.spawn()? })
        }
    }

    /// Waits for its end.
    pub async fn wait(&mut self) -> io::Result<ExitStatus> {
        self.child.wait().await
    }

    /// Ends the command and the processes that it has started: by request, and after the grace period by force. Of a command that
    /// has ended, it ends those that are left.
    pub async fn stop(&mut self, grace: Duration) -> io::Result<ExitStatus> {
        let ended = self.end(grace).await;
        #[cfg(unix)]
        if ended.is_ok() {
            self.guard.watch(None);
        }
        ended
    }

    async fn end(&mut self, grace: Duration) -> io::Result<ExitStatus> {
        let deadline = Instant::now() + grace;
        self.pass(Signal::Terminate);
        while Instant::now() < deadline {
            if let Some(status) = self.child.try_wait()? {
                self.reap();
                if !self.has_members() {
                    return Ok(status);
                }
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
    use std::{
        io::Write as _,
        os::unix::process::{CommandExt as _, ExitStatusExt as _},
        process::{self as std_process, ChildStdin, Stdio},
    };

    use rustix::process::{self, Pid, WaitOptions, kill_process_group, test_kill_process_group, waitpgid};
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

        /// Takes note of processes of the group that have ended and are children of this one, as they are of the first process of a
        /// container: until then they are members.
        pub(super) fn reap(&self) {
            let Some(group) = self.group else { return };
            while let Ok(Some(_)) = waitpgid(group, WaitOptions::NOHANG) {}
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

    /// Its arguments: it is this program.
    const GUARD: [&str; 2] = ["lease", "guard"];

    /// The process that ends the group if this process has not. It is in a group of its own, so that whatever ends this one by its
    /// group does not end it.
    #[derive(Debug)]
    pub(super) struct Guard(Option<ChildStdin>);

    impl Guard {
        /// Starts it. A command runs without it where it cannot be started, as without `/proc`.
        pub(super) fn start() -> Self {
            let started = Self::process();
            if let Err(error) = &started {
                output::note(&format!(
                    "the command runs on if this process is killed: its guard cannot be started: {error}"
                ));
            }
            Self(started.ok())
        }

        /// Names the group to end; none, if it has ended.
        pub(super) fn watch(&mut self, group: Option<Pid>) {
            let group = group.map_or(0, |group| group.as_raw_nonzero().get());
            if let Some(guard) = &mut self.0 {
                // A guard that was killed is none.
                let _ = writeln!(guard, "{group}");
            }
        }

        fn process() -> io::Result<ChildStdin> {
            let mut guard = waiting()?;
            guard.stdin.take().ok_or_else(|| io::ErrorKind::BrokenPipe.into())
        }
    }

    /// A process that does nothing in a new group, until the command is in it.
    #[derive(Debug)]
    pub(super) struct Leader(std_process::Child);

    impl Leader {
        pub(super) fn start() -> io::Result<Self> {
            waiting().map(Self)
        }

        pub(super) fn group(&self) -> Option<Pid> {
            Pid::from_raw(self.0.id().try_into().ok()?)
        }
    }

    impl Drop for Leader {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    /// Starts this program in a group of its own, where it waits for the end of its stdin.
    fn waiting() -> io::Result<std_process::Child> {
        // Also if the file of the program was replaced since.
        #[cfg(target_os = "linux")]
        let program = "/proc/self/exe";
        #[cfg(not(target_os = "linux"))]
        let program = std::env::current_exe()?;
        let mut command = std_process::Command::new(program);
        command.arg0("nameservice").args(GUARD).env_clear().current_dir("/").process_group(0);
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn()
    }

    /// Waits for the end of the process that has started this one, and kills the group that it has named last.
    pub fn guard() {
        let lines = io::stdin().lines().map_while(Result::ok);
        if let Some(group) = lines.last().and_then(|group| Pid::from_raw(group.parse().ok()?)) {
            let _ = kill_process_group(group, process::Signal::KILL);
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

        pub(super) fn reap(&self) {}

        pub(super) fn has_members(&self) -> bool {
            false
        }

        pub(super) fn kill(&mut self) -> io::Result<()> {
            self.child.start_kill()
        }
    }

    /// Nothing is guarded here.
    pub fn guard() {}

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

pub use system::{Signals, exit_code, guard, stop_this_process};
