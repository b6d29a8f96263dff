//! Backups that `serve` makes of its own data, every hour by default.
//!
//! Making a backup, checking it and removing older ones are steps of their own. Each fails by itself: what cannot be removed does
//! not prevent or repeat a backup, and nothing is removed before there is a new one that was checked.

use std::{
    collections::HashSet,
    fs::{self, File, TryLockError},
    io,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, PoisonError,
        mpsc::{self, RecvTimeoutError, SyncSender},
    },
    thread,
    time::{Duration, Instant, SystemTime},
};

use clap::Args;
use indicatif::BinaryBytes;
use jiff::{Timestamp, civil::DateTime, tz::TimeZone};
use metrics::{counter, gauge};
use nameservice_embedded::{BackupError, Embedded, Timeline};
use nameservice_model::{BoxError, chain};
use tokio::{runtime::Handle, select, sync::watch, time::timeout};

use crate::{
    failure::Failure,
    health::{Damage, Examination},
    prometheus,
    target::Opened,
    values,
};

/// How a backup is named: by its time in UTC. Names sort by time, and have no colons, which some file systems do not allow.
const NAME: &str = "%Y%m%dT%H%M%SZ";
/// The name of a backup that is being made.
const PARTIAL: &str = "partial";
/// The end of the name of a backup that is being removed: what is left of it does not look like a backup.
const REMOVED: &str = ".removed";
/// The file that is locked while a service makes backups in the directory: another one would remove what is being made.
const LOCK: &str = "backups.lock";
/// How long to wait after a failure; after each further one, twice as long, up to the longest.
const PAUSE: Duration = Duration::from_secs(60);
const LONGEST_PAUSE: Duration = Duration::from_secs(15 * 60);
/// How long a service that stops waits for a backup that was interrupted, after all else.
const INTERRUPTED: Duration = Duration::from_secs(1);
/// The least space that a backup leaves to the data on their common volume.
const RESERVE: u64 = 64 * 1024 * 1024;

/// The backups that a service makes.
#[derive(Clone, Debug, Args)]
pub struct BackupArgs {
    /// Back the data up into a new directory below this one every hour: it is like any other data directory. Each backup is checked
    #[arg(long, value_name = "DIR")]
    pub backup_to: Option<PathBuf>,
    /// How often: 15m, 1h, 1d
    #[arg(long, value_name = "DURATION", default_value = "1h", value_parser = values::period, requires = "backup_to")]
    pub backup_every: Duration,
    /// How many backups of this data to keep: the latest ones
    #[arg(long, value_name = "N", default_value_t = 48, value_parser = clap::value_parser!(u32).range(1..), requires = "backup_to")]
    pub backup_keep: u32,
}

impl BackupArgs {
    /// Whether there are to be backups.
    #[cfg(feature = "replica")]
    pub(crate) fn is_wanted(&self) -> bool {
        self.backup_to.is_some()
    }

    /// Begins to make backups, if they are wanted.
    pub(crate) fn start(&self, opened: &Opened, damage: &Damage) -> Result<Option<Backups>, Failure> {
        let Some(to) = self.backup_to.clone() else { return Ok(None) };
        let Some((names, data)) = opened.in_directory() else {
            return Err(Failure::Usage(
                "--backup-to copies a data directory (--data): DynamoDB backs its tables up, and files are copied as files".into(),
            ));
        };
        let mut backups = Directory::new(to.clone(), data.to_owned(), self.backup_every, self.backup_keep as usize);
        // Whatever else keeps the directory from being used fails the backups, which is measured, and not the service.
        if let Err(error) = backups.prepare()
            && error.is::<Locked>()
        {
            return Err(Failure::Usage(format!("--backup-to {}: {error}", to.display())));
        }
        if backups.shares_volume().unwrap_or(false) {
            tracing::warn!(
                "the backups in {} are on the volume of the data: they take its space, and are lost with it; name another \
                 volume with --backup-to, or copy them elsewhere",
                to.display()
            );
        }
        let age = backups.age(names, SystemTime::now()).unwrap_or(None);
        let started = Backups::start(backups, names.clone(), age, damage.clone());
        started.map(Some).map_err(|error| Failure::Usage(format!("--backup-to: {error}")))
    }
}

/// Another service makes its backups in the directory.
#[derive(Debug, thiserror::Error)]
#[error("another service makes its backups there; name a directory of its own for each")]
struct Locked;

/// Locks a file, or a directory, as some systems do. A volume may know no locks.
fn lock(file: io::Result<File>) -> Result<io::Result<File>, Locked> {
    match file.map_err(TryLockError::Error).and_then(|file| file.try_lock().map(|()| file)) {
        Ok(file) => Ok(Ok(file)),
        Err(TryLockError::WouldBlock) => Err(Locked),
        Err(TryLockError::Error(error)) => Ok(Err(error)),
    }
}

/// The backups of a service.
#[derive(Clone)]
pub(crate) struct Backups(Arc<Running>);

struct Running {
    last: Mutex<Last>,
    /// Dropped to stop: the one between two backups, the other during one.
    stop: Mutex<Option<(SyncSender<()>, watch::Sender<()>)>>,
    /// Closed once there are no further ones.
    ended: watch::Receiver<()>,
}

/// The last backup. Before the first, the start of the service.
#[derive(Clone, Copy)]
struct Last {
    /// Its age at a moment of the clock that is never set.
    age: Duration,
    at: Instant,
}

impl Last {
    fn age(self) -> Duration {
        self.age.saturating_add(self.at.elapsed())
    }
}

impl Backups {
    /// `age`: that of the last backup of this data, if there is one.
    fn start(directory: Directory, names: Embedded, age: Option<Duration>, damage: Damage) -> io::Result<Self> {
        let (stop, stopped) = mpsc::sync_channel(0);
        let (interrupt, interrupted) = watch::channel(());
        let (end, ended) = watch::channel(());
        let last = Last { age: age.unwrap_or_default(), at: Instant::now() };
        let stop = Mutex::new(Some((stop, interrupt)));
        let shared = Self(Arc::new(Running { last: Mutex::new(last), stop, ended }));
        // So that the first failure is an increase.
        prometheus::begin();
        for step in [Step::Make, Step::Check, Step::Remove] {
            count(step, 0);
        }
        gauge!("nameservice_backup_leftovers").set(0);
        let (backups, runtime) = (shared.clone(), Handle::current());
        let mut wait = directory.first_wait(age);
        // On a thread of its own, since a timer in the runtime would cost every request: see `prometheus`.
        thread::Builder::new().name("backups".to_owned()).spawn(move || {
            // In this order: it ends once the directory is unlocked.
            let (_ends, mut directory) = (end, directory);
            let process = Process { names, runtime, interrupted, damage };
            while stopped.recv_timeout(wait) == Err(RecvTimeoutError::Timeout) {
                wait = directory.turn(&process, |at| backups.0.set(Last { age: Duration::ZERO, at }));
            }
        })?;
        Ok(shared)
    }

    /// Interrupts the one that is being made, and makes no further ones.
    pub(crate) fn stop(&self) {
        self.0.stop.lock().unwrap_or_else(PoisonError::into_inner).take();
    }

    /// Completes once there are no further ones, or a little later than others wait for that.
    pub(crate) async fn ended(&self) {
        let mut ended = self.0.ended.clone();
        let _ = timeout(INTERRUPTED, ended.changed()).await;
    }

    /// Sets the gauge of their age.
    pub(crate) fn sample(&self) {
        let last = *self.0.last.lock().unwrap_or_else(PoisonError::into_inner);
        gauge!("nameservice_backup_age_seconds").set(last.age().as_secs_f64());
    }
}

impl Running {
    fn set(&self, last: Last) {
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = last;
    }
}

/// The process that makes backups.
struct Process {
    /// The data. Its file is never opened but by it, which would end the locks of this process.
    names: Embedded,
    runtime: Handle,
    /// Closed once the process is to end.
    interrupted: watch::Receiver<()>,
    /// What health shows.
    damage: Damage,
}

impl Process {
    /// Returns whether the data was damaged when it was last compared with memory. A backup does not show all that this finds.
    fn is_damaged(&self) -> bool {
        self.damage.was_found(Examination::Scrub)
    }

    /// Waits for a part of a backup, unless the process is to end.
    fn wait<T>(&self, part: impl Future<Output = Result<T, BackupError>>) -> Result<T, BoxError> {
        let mut interrupted = self.interrupted.clone();
        self.runtime.block_on(async {
            select! {
                biased;
                _ = interrupted.changed() => Err(Interrupted.into()),
                done = part => Ok(done?),
            }
        })
    }
}

#[derive(Debug, thiserror::Error)]
#[error("the service stops")]
struct Interrupted;

/// A file or directory of the backups that cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("cannot use {}", path.display())]
struct Unusable {
    path: PathBuf,
    source: io::Error,
}

fn unusable(path: &Path) -> impl FnOnce(io::Error) -> BoxError {
    let path = path.to_owned();
    move |source| Unusable { path, source }.into()
}

/// What can fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// The data is copied.
    Make,
    /// The copy is examined.
    Check,
    /// An older backup is removed.
    Remove,
}

impl Step {
    fn name(self) -> &'static str {
        match self {
            Self::Make => "make",
            Self::Check => "check",
            Self::Remove => "remove",
        }
    }
}

fn count(step: Step, failures: u64) {
    counter!("nameservice_backup_failures_total", "step" => step.name()).increment(failures);
}

/// Returns what has failed, if there is no new backup.
fn step_of(error: &BoxError) -> Step {
    match error.downcast_ref::<BackupError>().is_some_and(BackupError::is_damage) {
        true => Step::Check,
        false => Step::Make,
    }
}

/// The volume of a directory.
#[derive(Clone, Copy, Debug)]
struct Volume {
    /// What distinguishes it from others.
    device: u64,
    /// The bytes that this process may still write.
    free: u64,
}

/// A backup in the directory.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Named {
    name: String,
    /// When it was made, by its name.
    at: SystemTime,
}

/// Where backups are made, of what, and when.
struct Directory {
    to: PathBuf,
    data: PathBuf,
    every: Duration,
    keep: usize,
    /// How many attempts have failed since the last backup.
    failures: u32,
    /// What was named in the log as something that is left as it is.
    left: HashSet<String>,
    /// The directory and the file in it, once they are locked: the file may be removed, and not every system locks directories.
    locks: Vec<File>,
    /// The directory that is locked: another one may come to have its path, as when a volume is mounted.
    locked: Option<(u64, u64)>,
    is_unlocked: bool,
    /// `None` on systems where that is not known. Tests replace this and what follows.
    volume: fn(&Path) -> io::Result<Option<Volume>>,
    remove: fn(&Path) -> io::Result<()>,
    sync: fn(&Path) -> io::Result<()>,
}

impl Directory {
    fn new(to: PathBuf, data: PathBuf, every: Duration, keep: usize) -> Self {
        let (failures, left, locks, locked, is_unlocked) = (0, HashSet::new(), Vec::new(), None, false);
        let (remove, sync) = (|path: &Path| fs::remove_dir_all(path), |path: &Path| File::open(path)?.sync_all());
        Self { to, data, every, keep, failures, left, locks, locked, is_unlocked, volume, remove, sync }
    }

    /// Creates the directory if it is missing, and locks it unless it is locked. One on a volume that knows no locks is used without.
    fn prepare(&mut self) -> Result<(), BoxError> {
        create(&self.to).map_err(unusable(&self.to))?;
        let found = id_of(&self.to).map_err(unusable(&self.to))?;
        if !self.locks.is_empty() && self.locked == found {
            return Ok(());
        }
        self.locks.clear();
        let path = self.to.join(LOCK);
        let file = lock(File::options().write(true).create(true).truncate(false).open(&path))?;
        let itself = lock(File::open(&self.to))?;
        if let Err(error) = &file
            && itself.is_err()
            && !std::mem::replace(&mut self.is_unlocked, true)
        {
            tracing::warn!(%error, "{} cannot be locked: let no other service make its backups there", path.display());
        }
        self.locks.extend([file, itself].into_iter().flatten());
        self.locked = found;
        Ok(())
    }

    /// Returns how long to wait for the first backup, if the last one has this age. A service that was killed while it made one
    /// may have had too little memory for it: it serves for a while before it tries again.
    fn first_wait(&self, age: Option<Duration>) -> Duration {
        let due = age.map_or(Duration::ZERO, |age| self.every.saturating_sub(age));
        match self.to.join(PARTIAL).exists() {
            true => due.max((self.every / 4).min(LONGEST_PAUSE)),
            false => due,
        }
    }

    /// Makes a backup and removes older ones. Calls `made` with the time of a backup, and returns how long to wait for the next.
    fn turn(&mut self, process: &Process, made: impl FnOnce(Instant)) -> Duration {
        let begun = Instant::now();
        let new = match self.make(process) {
            Ok(new) => new,
            Err(error) if error.is::<Interrupted>() => {
                let _ = fs::remove_dir_all(self.to.join(PARTIAL));
                return self.every;
            }
            Err(error) => {
                let step = step_of(&error);
                count(step, 1);
                if step == Step::Check {
                    process.damage.set(Examination::Backup, true);
                }
                let pause = PAUSE.saturating_mul(1 << self.failures.min(8)).min(LONGEST_PAUSE).min(self.every);
                self.failures += 1;
                let (error, step) = (chain(error.as_ref()), step.name());
                tracing::error!(error, step, "a backup has failed; trying again in {} s", pause.as_secs());
                return pause;
            }
        };
        self.failures = 0;
        process.damage.set(Examination::Backup, false);
        made(begun);
        if process.is_damaged() {
            tracing::warn!(
                "no older backup is removed while a scrub finds the data damaged: the new one may have what is"
            );
        } else {
            self.clean(&new);
        }
        self.every
    }

    /// Removes the oldest backups of the data beyond those that are kept, and reports what was not removed.
    fn clean(&mut self, newest: &Named) {
        let left = self.rotate(newest);
        gauge!("nameservice_backup_leftovers").set(u32::try_from(left.len()).unwrap_or(u32::MAX));
        for error in left {
            count(Step::Remove, 1);
            let (error, step) = (chain(error.as_ref()), Step::Remove.name());
            tracing::error!(error, step, "an older backup was not removed; trying again after the next one");
        }
    }

    /// Makes a backup that was checked.
    fn make(&mut self, process: &Process) -> Result<Named, BoxError> {
        self.prepare()?;
        let partial = self.to.join(PARTIAL);
        // What a service left that was killed.
        match fs::remove_dir_all(&partial) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(unusable(&partial)(error)),
            _ => {}
        }
        for removed in self.removed().map_err(unusable(&self.to))? {
            // It takes space. If that fails, it is reported after the backup.
            let _ = (self.remove)(&removed);
        }
        let bytes = process.wait(process.names.backup_bytes())?;
        if self.check_space(bytes).is_err() {
            if !process.is_damaged()
                && let Some(newest) = self.newest(&process.names).map_err(unusable(&self.to))?
            {
                self.clean(&newest);
            }
            self.check_space(bytes)?;
        }
        let at = Timestamp::now();
        let position = process.wait(process.names.backup(&partial))?;
        let new = self.unused(at)?;
        let backup = self.to.join(&new.name);
        fs::rename(&partial, &backup).map_err(unusable(&backup))?;
        if let Err(error) = (self.sync)(&self.to) {
            // Otherwise each attempt would add one, and none would be removed.
            let _ = fs::rename(&backup, &partial);
            return Err(unusable(&self.to)(error));
        }
        tracing::info!(backup = %backup.display(), position, "the data was backed up and checked");
        Ok(new)
    }

    /// Returns the name of a backup that was made at a time: that of a later one, if a clock that was set back has used it.
    fn unused(&self, mut at: Timestamp) -> Result<Named, BoxError> {
        loop {
            let new = Named { name: named(at), at: at.into() };
            let removed = format!("{}{REMOVED}", new.name);
            let is_there = |name: &str| self.to.join(name).try_exists().map_err(unusable(&self.to));
            if !is_there(&new.name)? && !is_there(&removed)? {
                return Ok(new);
            }
            at = at.checked_add(Duration::from_secs(1))?;
        }
    }

    /// Returns an error unless there is space for a copy of this size: on the volume of the data, writes need space, too.
    fn check_space(&self, bytes: u64) -> Result<(), BoxError> {
        let Some(Volume { free, .. }) = (self.volume)(&self.to).map_err(unusable(&self.to))? else { return Ok(()) };
        let reserve = if self.shares_volume().map_err(unusable(&self.to))? { bytes.max(RESERVE) } else { 0 };
        let needed = bytes.saturating_add(reserve);
        if free >= needed {
            return Ok(());
        }
        let kept = match reserve {
            0 => String::new(),
            reserve => format!(", of which {} stay free for the data on the same volume", BinaryBytes(reserve)),
        };
        Err(format!(
            "the volume of {} has {} free, and a backup needs {}{kept}: free some space, name another volume with --backup-to, or \
             start the service with a smaller --backup-keep, which removes what is beyond it before the next backup",
            self.to.display(),
            BinaryBytes(free),
            BinaryBytes(needed),
        )
        .into())
    }

    /// Returns whether the backups are on the volume of the data.
    fn shares_volume(&self) -> io::Result<bool> {
        let device = |path: &Path| Ok::<_, io::Error>((self.volume)(path)?.map(|volume| volume.device));
        let own = device(&self.to)?;
        Ok(own.is_some() && own == device(&self.data)?)
    }

    /// Removes the oldest backups of the data beyond those that are kept. Returns what was not removed.
    fn rotate(&mut self, new: &Named) -> Vec<BoxError> {
        let mut failed = Vec::new();
        match self.surplus(new) {
            Ok(old) => failed.extend(old.iter().filter_map(|old| self.remove(&old.name).err())),
            Err(error) => failed.push(error),
        }
        match self.removed() {
            Ok(removed) => {
                failed.extend(removed.iter().filter_map(|path| (self.remove)(path).err().map(unusable(path))))
            }
            Err(error) => failed.push(unusable(&self.to)(error)),
        }
        failed
    }

    /// Returns the backups that are not kept. Only those that the new one continues are counted: an older position of the same
    /// data. Of these the furthest stay, and of those at one position the latest, so that no clock decides alone.
    fn surplus(&mut self, new: &Named) -> Result<Vec<Named>, BoxError> {
        let current = Timeline::open(self.to.join(&new.name))?;
        let mut older = Vec::new();
        let others = backups(&self.to).map_err(unusable(&self.to))?;
        for backup in others.into_iter().filter(|backup| backup.name != new.name) {
            let opened = Timeline::open(self.to.join(&backup.name));
            let reason = match opened.as_ref().map(|old| (current.continues(old), old)) {
                Ok((Ok(true), old)) => {
                    older.push((old.position(), backup.at, backup));
                    continue;
                }
                Ok((Ok(false), _)) => "it is not of the history of this data".to_owned(),
                Ok((Err(error), _)) => chain(&error),
                Err(error) => chain(error),
            };
            if self.left.insert(backup.name.clone()) {
                let backup = self.to.join(&backup.name);
                tracing::warn!(
                    reason,
                    "{} is never removed, and does not count as a backup of this data",
                    backup.display()
                );
            }
        }
        older.sort_by_key(|(position, at, _)| std::cmp::Reverse((*position, *at)));
        Ok(older.into_iter().skip(self.keep - 1).map(|(_, _, backup)| backup).collect())
    }

    /// Gives a backup a name that no backup has. What is there by such a name is removed next.
    fn remove(&self, name: &str) -> Result<(), BoxError> {
        let backup = self.to.join(name);
        fs::rename(&backup, self.to.join(format!("{name}{REMOVED}"))).map_err(unusable(&backup))
    }

    /// Returns the furthest backup that the data continues, and that is not damaged.
    fn newest(&self, names: &Embedded) -> io::Result<Option<Named>> {
        let Ok(data) = names.timeline() else { return Ok(None) };
        let continued = |backup: Named| {
            let opened = Timeline::open(self.to.join(&backup.name)).ok()?;
            data.continues(&opened).unwrap_or(false).then_some((opened, backup))
        };
        let mut newest: Vec<_> = backups(&self.to)?.into_iter().filter_map(continued).collect();
        newest.sort_by_key(|(opened, backup)| std::cmp::Reverse((opened.position(), backup.at)));
        let is_sound = |opened: &Timeline, backup: &Named| {
            let reason = match opened.damage().as_deref() {
                Ok([]) => return true,
                Ok([first, ..]) => format!("{}: {}", first.code, first.what),
                Err(error) => chain(error),
            };
            let backup = self.to.join(&backup.name);
            tracing::error!(reason, "{} is damaged, and does not count as a backup", backup.display());
            false
        };
        Ok(newest.into_iter().find(|(opened, backup)| is_sound(opened, backup)).map(|(_, backup)| backup))
    }

    /// Returns what is left of backups that are being removed.
    fn removed(&self) -> io::Result<Vec<PathBuf>> {
        let mut removed = Vec::new();
        for entry in fs::read_dir(&self.to)? {
            let name = entry?.file_name();
            let backup = name.to_str().and_then(|name| name.strip_suffix(REMOVED));
            removed.extend(backup.and_then(time_of).map(|_| self.to.join(&name)));
        }
        Ok(removed)
    }

    /// Returns the age of the last backup of this data. A name with a time in the future says nothing about it.
    fn age(&self, names: &Embedded, now: SystemTime) -> io::Result<Option<Duration>> {
        let mut backups = backups(&self.to)?;
        backups.sort_by_key(|backup| std::cmp::Reverse(backup.at));
        let Ok(data) = names.timeline() else { return Ok(None) };
        let mut ages = backups.iter().filter_map(|backup| Some((now.duration_since(backup.at).ok()?, backup)));
        let is_of_data = |backup: &Named| {
            let opened = Timeline::open(self.to.join(&backup.name));
            opened.is_ok_and(|backup| data.continues(&backup).unwrap_or(false))
        };
        Ok(ages.find(|(_, backup)| is_of_data(backup)).map(|(age, _)| age))
    }
}

fn named(at: Timestamp) -> String {
    at.to_zoned(TimeZone::UTC).strftime(NAME).to_string()
}

/// Returns when a backup with this name was made; `None` if it is no name of a backup.
fn time_of(name: &str) -> Option<SystemTime> {
    let zoned = DateTime::strptime(NAME, name).ok()?.to_zoned(TimeZone::UTC).ok()?;
    Some(zoned.timestamp().into())
}

/// Returns the backups in a directory, in any order.
fn backups(directory: &Path) -> io::Result<Vec<Named>> {
    let mut backups = Vec::new();
    for entry in fs::read_dir(directory)? {
        let Ok(name) = entry?.file_name().into_string() else { continue };
        backups.extend(time_of(&name).map(|at| Named { name, at }));
    }
    Ok(backups)
}

/// Returns the device and the number of a directory; `None` on systems where they are not known.
#[cfg(unix)]
fn id_of(directory: &Path) -> io::Result<Option<(u64, u64)>> {
    use std::os::unix::fs::MetadataExt as _;
    let found = fs::metadata(directory)?;
    Ok(Some((found.dev(), found.ino())))
}

#[cfg(not(unix))]
fn id_of(_: &Path) -> io::Result<Option<(u64, u64)>> {
    Ok(None)
}

/// Returns the volume of a directory.
#[cfg(unix)]
fn volume(directory: &Path) -> io::Result<Option<Volume>> {
    let space = rustix::fs::statvfs(directory)?;
    let device = std::os::unix::fs::MetadataExt::dev(&fs::metadata(directory)?);
    Ok(Some(Volume { device, free: space.f_bavail.saturating_mul(space.f_frsize) }))
}

#[cfg(not(unix))]
fn volume(_: &Path) -> io::Result<Option<Volume>> {
    Ok(None)
}

/// Creates a directory for its owner only, since configurations may hold secrets.
fn create(directory: &Path) -> io::Result<()> {
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(directory)
}

#[cfg(test)]
mod tests {
    use std::thread::spawn;

    use nameservice_embedded::{Embedded, Options};
    use nameservice_model::{Address, Call, Publisher as _};

    use super::*;

    /// A directory of data, and one of its backups.
    struct Scratch(tempfile::TempDir);

    impl Scratch {
        fn new() -> Self {
            let scratch = Self(tempfile::tempdir().unwrap());
            create(&scratch.path("to")).unwrap();
            scratch
        }

        fn path(&self, name: &str) -> PathBuf {
            self.0.path().join(name)
        }

        /// Writes one more record to the data, and leaves all of it in the file of the log.
        async fn write(&self, data: &str, address: &str) {
            let names = Embedded::open(self.path(data), Options::default()).unwrap();
            let address = Address::parse(address).unwrap();
            let _ = names.create_ledger(&Call::fresh(), &address, None, None).await.unwrap();
            let data = self.path(data);
            let opened = move || drop((drop(names), Embedded::open(data, Options::default()).unwrap()));
            tokio::task::spawn_blocking(opened).await.unwrap();
        }

        fn directory(&self, data: &str, keep: usize) -> Directory {
            Directory::new(self.path("to"), self.path(data), EVERY, keep)
        }

        /// Copies a directory, as a restore does.
        fn copy(&self, from: &str, to: &str) {
            create(&self.path(to)).unwrap();
            for entry in fs::read_dir(self.path(from)).unwrap() {
                let entry = entry.unwrap();
                fs::copy(entry.path(), self.path(to).join(entry.file_name())).unwrap();
            }
        }

        /// Gives a backup another time.
        fn rename(&self, backup: &str, to: &str) {
            fs::rename(self.path("to").join(backup), self.path("to").join(to)).unwrap();
        }

        fn names(&self) -> Vec<String> {
            let entries = fs::read_dir(self.path("to")).unwrap();
            let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
            names.retain(|name| name != LOCK);
            names.sort();
            names
        }
    }

    const EVERY: Duration = Duration::from_secs(3600);
    const FUTURE: &str = "29990101T000000Z";
    const PAST: &str = "20200101T000000Z";

    /// Makes a backup, as the thread of the backups does. Returns its name.
    async fn made(directory: Directory) -> (Directory, String) {
        let (directory, made) = tried(directory, |directory, process| directory.make(process)).await;
        (directory, made.unwrap().name)
    }

    async fn turned(directory: Directory) -> (Directory, (Duration, bool)) {
        tried(directory, turn).await
    }

    fn turn(directory: &mut Directory, process: &Process) -> (Duration, bool) {
        let mut made = false;
        (directory.turn(process, |_| made = true), made)
    }

    async fn aged(directory: Directory, now: SystemTime) -> (Directory, Option<Duration>) {
        tried(directory, move |directory, process| directory.age(&process.names, now).unwrap()).await
    }

    async fn tried<T: Send + 'static>(
        mut directory: Directory,
        work: impl FnOnce(&mut Directory, &Process) -> T + Send + 'static,
    ) -> (Directory, T) {
        let runtime = Handle::current();
        let worked = move || {
            let (_interrupt, interrupted) = watch::channel(());
            let names = Embedded::open(&directory.data, Options::default()).unwrap();
            let done = work(&mut directory, &Process { names, runtime, interrupted, damage: Damage::default() });
            (directory, done)
        };
        tokio::task::spawn_blocking(worked).await.unwrap()
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn backups_are_named_by_their_time_and_only_the_latest_stay() {
        let scratch = Scratch::new();
        for other in [PAST, PARTIAL, "notes"] {
            create(&scratch.path("to").join(other)).unwrap();
        }
        let mut directory = scratch.directory("data", 2);
        for address in ["a", "b", "c", "d"] {
            scratch.write("data", address).await;
            let turn;
            (directory, turn) = turned(directory).await;
            assert_eq!(turn, (EVERY, true));
        }
        let left = scratch.names();
        assert_eq!((left.len(), &left[0], &left[3]), (4, &PAST.to_owned(), &"notes".to_owned()));
        // Each record is two changes.
        let positions: HashSet<_> = left[1..3].iter().map(|name| position(&scratch, name)).collect();
        assert_eq!(positions, HashSet::from([6, 8]));
        assert!(directory.left.contains(PAST), "what is no backup is named");
        let copy = scratch.path("to").join(&left[2]);
        spawn(|| drop(Embedded::open_existing(copy, Options::default()).unwrap())).join().unwrap();
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn damaged_data_is_not_backed_up_and_takes_the_place_of_no_backup() {
        let scratch = Scratch::new();
        scratch.write("data", "mydb").await;
        scratch.write("data", "other").await;
        let (directory, good) = made(scratch.directory("data", 1)).await;
        let log = scratch.path("data").join("nameservice.log.db");
        let damaged = move |directory: &mut Directory, process: &Process| {
            let whole = fs::read(&log).unwrap();
            let mut bytes = whole.clone();
            flip(&mut bytes);
            fs::write(&log, bytes).unwrap();
            let failed = directory.make(process).unwrap_err();
            assert!(process.damage.reason().is_none());
            let turns = (turn(directory, process), turn(directory, process));
            let left = backups(&directory.to).unwrap();
            assert!(process.damage.reason().is_some(), "health shows it");
            fs::write(&log, whole).unwrap();
            assert_eq!(turn(directory, process), (EVERY, true));
            assert!(process.damage.reason().is_none(), "until a backup is sound");
            (failed, turns, left)
        };
        let (_, (failed, (first, second), left)) = tried(directory, damaged).await;
        assert_eq!(step_of(&failed), Step::Check, "{failed}");
        assert!(failed.to_string().contains("1 cannot be read: its checksum is wrong"), "{failed}");
        assert_eq!((first, second), ((PAUSE, false), (2 * PAUSE, false)));
        assert_eq!(left.into_iter().map(|backup| backup.name).collect::<Vec<_>>(), [good]);
    }

    /// As of a volume that is not mounted.
    #[tokio::test(flavor = "multi_thread")]
    async fn backups_of_other_data_stay() {
        let scratch = Scratch::new();
        scratch.write("data", "a").await;
        let (directory, first) = made(scratch.directory("data", 1)).await;
        let (_, second) = made(directory).await;
        drop(Embedded::open(scratch.path("empty"), Options::default()).unwrap());
        let mut directory = scratch.directory("empty", 1);
        for _ in 0..3 {
            (directory, _) = turned(directory).await;
        }
        let names = scratch.names();
        assert!(names.len() == 3 && names.contains(&first) && names.contains(&second), "{names:?}");
        assert_eq!(directory.left, HashSet::from([first, second]));
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn the_furthest_backups_stay_whatever_their_names_say_and_the_new_one_always() {
        let scratch = Scratch::new();
        scratch.write("data", "a").await;
        let (directory, first) = made(scratch.directory("data", 1)).await;
        scratch.rename(&first, FUTURE);
        let (directory, (_, made)) = turned(directory).await;
        // At the same position.
        assert!(made && scratch.names().len() == 1 && scratch.names()[0] != FUTURE, "{:?}", scratch.names());
        scratch.rename(&scratch.names()[0], FUTURE);
        scratch.write("data", "b").await;
        let directory = turned(Directory { keep: 2, ..directory }).await.0;
        // The clock was set back: the second has the oldest name.
        scratch.rename(&scratch.names()[0], PAST);
        scratch.write("data", "c").await;
        let _ = turned(directory).await;
        let positions: Vec<_> = scratch.names().iter().map(|name| position(&scratch, name)).collect();
        assert_eq!((positions, &scratch.names()[0]), (vec![4, 6], &PAST.to_owned()));
    }

    fn position(scratch: &Scratch, backup: &str) -> u64 {
        Timeline::open(scratch.path("to").join(backup)).unwrap().position()
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn what_is_not_removed_does_not_repeat_the_backup() {
        let scratch = Scratch::new();
        scratch.write("data", "a").await;
        let mut directory = scratch.directory("data", 1);
        directory.remove = |_| Err(io::Error::from(io::ErrorKind::PermissionDenied));
        for _ in 0..3 {
            let turn;
            (directory, turn) = turned(directory).await;
            assert_eq!(turn, (EVERY, true));
        }
        let left = scratch.names().iter().filter(|name| name.ends_with(REMOVED)).count();
        assert_eq!((left, scratch.names().len(), backups(&directory.to).unwrap().len()), (2, 3, 1));
        // It is tried again.
        directory.remove = |path| fs::remove_dir_all(path);
        let _ = turned(directory).await;
        assert_eq!(scratch.names().len(), 1);
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn backups_that_a_restore_has_left_behind_stay() {
        let scratch = Scratch::new();
        scratch.write("data", "a").await;
        let (directory, first) = made(scratch.directory("data", 1)).await;
        scratch.write("data", "lost").await;
        let (_, lost) = made(directory).await;
        scratch.copy(&format!("to/{first}"), "restored");
        scratch.write("restored", "b").await;
        scratch.write("restored", "c").await;
        let directory = turned(scratch.directory("restored", 1)).await.0;
        let names = scratch.names();
        assert!(names.len() == 2 && names.contains(&lost) && !names.contains(&first), "{names:?}");
        assert_eq!(directory.left, HashSet::from([lost]));
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_backup_that_would_take_the_space_of_writes_is_not_begun() {
        const DEVICE: u64 = 7;
        let scratch = Scratch::new();
        scratch.write("data", "a").await;
        let mut directory = scratch.directory("data", 1);
        directory.volume = |_| Ok(Some(Volume { device: DEVICE, free: RESERVE }));
        let (directory, failed) = tried(directory, |directory, process| directory.make(process)).await;
        let message = failed.unwrap_err().to_string();
        assert!(message.contains("has 64.00 MiB free, and a backup needs 64.0"), "{message}");
        assert!(message.contains("of which 64.00 MiB stay free") && message.contains("--backup-to"), "{message}");
        assert!(directory.shares_volume().unwrap() && scratch.names().is_empty());
        // Another volume may be filled.
        let directory = Directory {
            volume: |path| Ok(Some(Volume { device: DEVICE + u64::from(path.ends_with("to")), free: RESERVE })),
            ..directory
        };
        assert!(!directory.shares_volume().unwrap());
        let (directory, _) = made(directory).await;
        let (_, failed) = tried(directory, |directory, _| directory.check_space(RESERVE + 1)).await;
        assert!(!failed.unwrap_err().to_string().contains("stay free"));
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn too_little_space_removes_what_is_not_kept_and_then_there_are_backups_again() {
        let scratch = Scratch::new();
        let mut directory = scratch.directory("data", 3);
        for address in ["a", "b", "c"] {
            scratch.write("data", address).await;
            (directory, _) = made(directory).await;
        }
        create(&scratch.path("to").join(format!("{PAST}{REMOVED}"))).unwrap();
        // There is space once one backup is left.
        let volume = |to: &Path| {
            let backups = backups(&to.with_file_name("to"))?.len();
            Ok(Some(Volume { device: 7, free: if backups > 1 { 0 } else { u64::MAX } }))
        };
        let (directory, (wait, made)) = turned(Directory { volume, ..directory }).await;
        assert_eq!((wait, made, scratch.names().len()), (PAUSE, false, 3), "three are kept, and no rest of another");
        let (_, (wait, made)) = turned(Directory { keep: 1, ..directory }).await;
        assert_eq!((wait, made, scratch.names().len()), (EVERY, true, 1));
        assert_eq!(position(&scratch, &scratch.names()[0]), 6);
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_backup_whose_name_is_not_durable_does_not_stay_beside_the_next_attempt() {
        let scratch = Scratch::new();
        scratch.write("data", "a").await;
        let mut directory = scratch.directory("data", 9);
        directory.sync = |_| Err(io::Error::from(io::ErrorKind::StorageFull));
        for _ in 0..2 {
            let failed;
            (directory, failed) = tried(directory, |directory, process| directory.make(process)).await;
            let failed = chain(failed.unwrap_err().as_ref());
            assert!(failed.contains(scratch.path("to").to_str().unwrap()), "{failed}");
            assert_eq!(scratch.names(), [PARTIAL]);
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_service_that_stops_does_not_wait_for_a_backup_and_leaves_no_part_of_it() {
        let scratch = Scratch::new();
        scratch.write("data", "a").await;
        let stopped = |directory: &mut Directory, process: &Process| {
            let (interrupt, interrupted) = watch::channel(());
            drop(interrupt);
            let (names, runtime) = (process.names.clone(), process.runtime.clone());
            let process = Process { names, runtime, interrupted, damage: Damage::default() };
            (turn(directory, &process), directory.failures)
        };
        let (_, done) = tried(scratch.directory("data", 1), stopped).await;
        assert_eq!((done, scratch.names().len()), (((EVERY, false), 0), 0));
    }

    #[test]
    fn after_a_backup_that_ended_the_service_the_next_one_waits() {
        let scratch = Scratch::new();
        let directory = scratch.directory("data", 1);
        let minutes = |minutes: u64| Duration::from_secs(60 * minutes);
        assert_eq!((directory.first_wait(None), directory.first_wait(Some(minutes(50)))), (minutes(0), minutes(10)));
        create(&scratch.path("to").join(PARTIAL)).unwrap();
        let waits = [None, Some(minutes(50)), Some(minutes(10))].map(|age| directory.first_wait(age));
        assert_eq!(waits, [minutes(15), minutes(15), minutes(50)]);
        let often = Directory { every: minutes(4), ..directory };
        assert_eq!(often.first_wait(None), minutes(1));
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_directory_of_backups_is_for_one_service() {
        let scratch = Scratch::new();
        scratch.write("data", "a").await;
        let file = scratch.path("to").join(LOCK);
        let other = || scratch.directory("data", 1);
        // A file that cannot be locked: then the directory alone is.
        create(&file).unwrap();
        let (locked, _) = made(other()).await;
        assert!(!locked.locks.is_empty() && other().prepare().unwrap_err().is::<Locked>());
        drop(locked);
        // The file was removed as what is old: then the directory alone is.
        fs::remove_dir(&file).unwrap();
        let mut locked = other();
        locked.prepare().unwrap();
        assert_eq!(locked.locks.len(), 2);
        fs::remove_file(&file).unwrap();
        let (mut rejected, failed) = tried(other(), |directory, process| directory.make(process)).await;
        let failed = failed.unwrap_err();
        assert!(failed.is::<Locked>() && step_of(&failed) == Step::Make, "{failed}");
        drop(locked);
        rejected.prepare().unwrap();
        assert!(other().prepare().unwrap_err().is::<Locked>(), "it is locked once it can be");
        // Another directory gets the path, as when a volume is mounted.
        fs::rename(scratch.path("to"), scratch.path("covered")).unwrap();
        rejected.prepare().unwrap();
        assert!(other().prepare().unwrap_err().is::<Locked>());
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn too_little_space_removes_nothing_for_a_backup_that_has_been_damaged_since() {
        let scratch = Scratch::new();
        let mut directory = scratch.directory("data", 3);
        for address in ["a", "b", "mydb"] {
            scratch.write("data", address).await;
            (directory, _) = made(directory).await;
        }
        let names = scratch.names();
        let newest = scratch.path("to").join(&names[2]).join("nameservice.log.db");
        let mut bytes = fs::read(&newest).unwrap();
        flip(&mut bytes);
        fs::write(newest, bytes).unwrap();
        directory.volume = |_| Ok(Some(Volume { device: 7, free: 0 }));
        let (_, (_, made)) = turned(Directory { keep: 1, ..directory }).await;
        // The oldest goes, since the second is the last that can be restored.
        let left = scratch.names();
        assert!(!made && !left.contains(&names[0]) && left.contains(&names[1]) && left.contains(&names[2]), "{left:?}");
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn no_older_backup_is_removed_while_a_scrub_finds_damage() {
        let scratch = Scratch::new();
        scratch.write("data", "a").await;
        let (directory, first) = made(scratch.directory("data", 1)).await;
        scratch.write("data", "b").await;
        let damaged = |directory: &mut Directory, process: &Process| {
            process.damage.set(Examination::Scrub, true);
            let made = turn(directory, process);
            directory.volume = |_| Ok(Some(Volume { device: 7, free: 0 }));
            (made, turn(directory, process))
        };
        let (_, (made, full)) = tried(directory, damaged).await;
        assert_eq!((made, full), ((EVERY, true), (PAUSE, false)));
        assert!(scratch.names().len() == 2 && scratch.names().contains(&first), "{:?}", scratch.names());
    }

    /// Flips a bit of a record everywhere, since pages that are not used may have copies of it.
    fn flip(bytes: &mut [u8]) {
        let places: Vec<_> = (0..bytes.len() - 9).filter(|at| bytes[*at..].starts_with(b"mydb:main")).collect();
        for place in places {
            bytes[place] ^= 1;
        }
    }

    #[test]
    #[cfg(unix)]
    fn the_space_of_a_volume_is_known() {
        let scratch = tempfile::tempdir().unwrap();
        create(&scratch.path().join("a")).unwrap();
        let [one, other] = ["", "a"].map(|path| volume(&scratch.path().join(path)).unwrap().unwrap());
        assert!(one.device == other.device && one.free > 0);
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn the_age_is_that_of_the_last_backup_of_this_data_also_after_a_restart() {
        let scratch = Scratch::new();
        scratch.write("data", "a").await;
        let directory = scratch.directory("data", 9);
        let now = time_of("20300101T000000Z").unwrap();
        let (directory, age) = aged(directory, now).await;
        assert_eq!(age, None);
        let (directory, first) = made(directory).await;
        scratch.rename(&first, "20291231T230000Z");
        let hour = Some(Duration::from_secs(3600));
        let (directory, age) = aged(directory, now).await;
        assert_eq!(age, hour);
        // As after a restart.
        drop(directory);
        let directory = scratch.directory("data", 9);
        // One of other data, one that is no backup, and one that a clock has made that was ahead.
        scratch.write("other", "a").await;
        let (_, other) = made(scratch.directory("other", 9)).await;
        scratch.rename(&other, "20291231T235000Z");
        create(&scratch.path("to/20291231T235500Z")).unwrap();
        scratch.copy("to/20291231T230000Z", &format!("to/{FUTURE}"));
        let (directory, age) = aged(directory, now).await;
        assert_eq!(age, hour);
        fs::remove_dir_all(scratch.path("to/20291231T230000Z")).unwrap();
        let (_, age) = aged(directory, now).await;
        assert_eq!(age, None, "a name with a time in the future says nothing");
        let last = Last { age: Duration::from_secs(60), at: Instant::now() };
        assert!(last.age() >= Duration::from_secs(60));
    }
}
