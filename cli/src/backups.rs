//! Backups that `serve` makes of its own data, every hour by default.

use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, PoisonError,
        mpsc::{self, RecvTimeoutError, SyncSender},
    },
    thread,
    time::{Duration, SystemTime},
};

use clap::Args;
use jiff::{Timestamp, civil::DateTime, tz::TimeZone};
use metrics::{counter, gauge};
use nameservice_model::chain;
use tokio::runtime::Handle;

use crate::{
    failure::Failure,
    target::{Local, Opened},
    values,
};

/// How a backup is named: by its time in UTC. Names sort by time, and have no colons, which some file systems do not allow.
const NAME: &str = "%Y%m%dT%H%M%SZ";
/// The name of a backup that is being made.
const PARTIAL: &str = "partial";
/// How long to wait after a failure.
const PAUSE: Duration = Duration::from_secs(60);

/// The backups that a service makes.
#[derive(Clone, Debug, Args)]
pub struct BackupArgs {
    /// Back the data up into a new directory below this one every hour: it is like any other data directory
    #[arg(long, value_name = "DIR")]
    pub backup_to: Option<PathBuf>,
    /// How often: 15m, 1h, 1d
    #[arg(long, value_name = "DURATION", default_value = "1h", value_parser = values::period, requires = "backup_to")]
    pub backup_every: Duration,
    /// How many backups to keep: the latest ones
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
    pub(crate) fn start(&self, opened: &Opened) -> Result<Option<Backups>, Failure> {
        let Some(to) = self.backup_to.clone() else { return Ok(None) };
        let data = match opened {
            Opened::Embedded(local) => Local::directory(local),
            #[cfg(any(feature = "dynamodb", feature = "files"))]
            _ => None,
        };
        let Some(data) = data.map(Path::to_owned) else {
            return Err(Failure::Usage(
                "--backup-to copies a data directory (--data): DynamoDB backs its tables up, and files are copied as files".into(),
            ));
        };
        let unusable = |error: io::Error| Failure::Usage(format!("--backup-to {}: {error}", to.display()));
        create(&to).map_err(unusable)?;
        let last = times(&to).map_err(unusable)?.pop();
        let backups = Directory { to, data, every: self.backup_every, keep: self.backup_keep as usize };
        Backups::start(backups, last).map(Some).map_err(|error| Failure::Usage(format!("--backup-to: {error}")))
    }
}

/// The backups of a service.
#[derive(Clone)]
pub(crate) struct Backups(Arc<Running>);

struct Running {
    /// When the last one was made. Before the first, when the service began.
    last: Mutex<SystemTime>,
    /// Dropped to stop.
    stop: Mutex<Option<SyncSender<()>>>,
}

/// Where backups are made, of what, and when.
struct Directory {
    to: PathBuf,
    data: PathBuf,
    every: Duration,
    keep: usize,
}

impl Backups {
    fn start(directory: Directory, last: Option<SystemTime>) -> io::Result<Self> {
        let (stop, stopped) = mpsc::sync_channel(0);
        let begun = SystemTime::now();
        // A clock that was ahead does not delay backups.
        let last = last.filter(|last| *last <= begun);
        let shared = Self(Arc::new(Running { last: Mutex::new(last.unwrap_or(begun)), stop: Mutex::new(Some(stop)) }));
        let (backups, runtime) = (shared.clone(), Handle::current());
        let mut wait = last.map_or(Duration::ZERO, |last| {
            directory.every.saturating_sub(begun.duration_since(last).unwrap_or_default())
        });
        // On a thread of its own, since a timer in the runtime would cost every request: see `prometheus`.
        thread::Builder::new().name("backups".to_owned()).spawn(move || {
            while stopped.recv_timeout(wait) == Err(RecvTimeoutError::Timeout) {
                wait = match directory.make(&runtime) {
                    Ok(at) => {
                        backups.0.set(at);
                        directory.every
                    }
                    Err(error) => {
                        counter!("nameservice_backup_failures_total").increment(1);
                        tracing::error!(error = chain(error.as_ref()), "a backup has failed; trying again");
                        PAUSE.min(directory.every)
                    }
                };
            }
        })?;
        Ok(shared)
    }

    /// Makes no further ones.
    pub(crate) fn stop(&self) {
        self.0.stop.lock().unwrap_or_else(PoisonError::into_inner).take();
    }

    /// Sets the gauge of their age.
    pub(crate) fn sample(&self) {
        let last = *self.0.last.lock().unwrap_or_else(PoisonError::into_inner);
        let age = SystemTime::now().duration_since(last).unwrap_or_default();
        gauge!("nameservice_backup_age_seconds").set(age.as_secs_f64());
    }
}

impl Running {
    fn set(&self, at: SystemTime) {
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = at;
    }
}

impl Directory {
    /// Makes a backup, and removes old ones. Returns when it was made.
    fn make(&self, runtime: &Handle) -> Result<SystemTime, nameservice_model::BoxError> {
        let partial = self.to.join(PARTIAL);
        // What a service left that was killed.
        match fs::remove_dir_all(&partial) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error.into()),
            _ => {}
        }
        let at = Timestamp::now();
        let position = runtime.block_on(nameservice_embedded::backup(&self.data, &partial))?;
        let name = at.to_zoned(TimeZone::UTC).strftime(NAME).to_string();
        let backup = self.to.join(&name);
        fs::rename(&partial, &backup)?;
        fs::File::open(&self.to)?.sync_all()?;
        tracing::info!(backup = %backup.display(), position, "the data was backed up");
        let times = times(&self.to)?;
        for old in times.iter().rev().skip(self.keep) {
            fs::remove_dir_all(self.to.join(named(*old)?))?;
        }
        Ok(at.into())
    }
}

fn named(at: SystemTime) -> Result<String, jiff::Error> {
    Ok(Timestamp::try_from(at)?.to_zoned(TimeZone::UTC).strftime(NAME).to_string())
}

/// Returns when the backups in a directory were made, in order.
fn times(directory: &Path) -> io::Result<Vec<SystemTime>> {
    let mut times = Vec::new();
    for entry in fs::read_dir(directory)? {
        let name = entry?.file_name();
        let time = name.to_str().and_then(|name| DateTime::strptime(NAME, name).ok());
        let zoned = time.and_then(|time| time.to_zoned(TimeZone::UTC).ok());
        times.extend(zoned.map(|zoned| SystemTime::from(zoned.timestamp())));
    }
    times.sort_unstable();
    Ok(times)
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
    use nameservice_embedded::{Embedded, Options};

    use super::*;

    #[tokio::test(flavor = "multi_thread")]
    async fn backups_are_named_by_their_time_and_only_the_latest_stay() {
        let scratch = tempfile::tempdir().unwrap();
        let (data, to) = (scratch.path().join("data"), scratch.path().join("to"));
        let names = Embedded::open(&data, Options::default()).unwrap();
        create(&to).unwrap();
        for other in ["20240101T000000Z", "20240102T000000Z", "20240103T000000Z", PARTIAL, "notes"] {
            fs::create_dir(to.join(other)).unwrap();
        }
        let directory = Directory { to: to.clone(), data, every: Duration::from_secs(1), keep: 2 };
        let runtime = Handle::current();
        let made = tokio::task::spawn_blocking(move || directory.make(&runtime).map_err(|error| error.to_string()));
        let made = made.await.unwrap().unwrap();
        let mut left: Vec<_> =
            fs::read_dir(&to).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        left.sort();
        assert_eq!(left, ["20240103T000000Z".to_owned(), named(made).unwrap(), "notes".to_owned()]);
        let last = times(&to).unwrap().pop().unwrap();
        assert!(made.duration_since(last).unwrap() < Duration::from_secs(1));
        let copy = to.join(named(made).unwrap());
        tokio::task::spawn_blocking(move || drop((Embedded::open_existing(copy, Options::default()).unwrap(), names)))
            .await
            .unwrap();
    }
}
