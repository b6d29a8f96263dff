//! The files of Fluree's nameservice, and where their change feed is kept.

use std::{
    fs, io,
    path::{Path, PathBuf},
    time::Duration,
};

use nameservice_embedded::{Embedded, OpenError, Options as LogOptions};
use nameservice_files::{Files, Options};

use crate::{failure::Failure, options::Missing};

/// The name of the file in a feed's directory that records what the feed follows.
const FOLLOWS: &str = "follows";

/// Files that can be served.
#[derive(Clone, Debug)]
pub struct Stored {
    /// The nameservice over them, which is its own change feed.
    pub names: Files,
    /// The log of that feed, if it is kept.
    pub(crate) feed: Option<Embedded>,
    place: nameservice::Place,
}

impl Stored {
    /// Opens files. Their feed is kept in `feed`, if given; otherwise it begins with this process.
    pub async fn open(
        place: nameservice::Place,
        missing: Missing,
        feed: Option<PathBuf>,
        retention: Option<Duration>,
    ) -> Result<Self, Failure> {
        let (mut options, mut log) = (Options::default(), None);
        if let Some(directory) = feed {
            let followed = place.to_string();
            let opened = tokio::task::spawn_blocking(move || open_feed(&directory, &followed, retention));
            let opened = opened.await.map_err(|error| OpenError::Thread(error.into()))??;
            options = options.with_log(opened.clone());
            log = Some(opened);
        }
        let names = nameservice::files(&place, missing == Missing::Create, options).await;
        let names = names.map_err(|error| Failure::Files(error.into()))?;
        Ok(Self { names, feed: log, place })
    }

    /// Describes where they are.
    pub fn describe(&self) -> String {
        format!("files in {}", self.place)
    }
}

/// Opens the log of a feed. The log must be of exactly these files: records that are not among them are removed from it.
fn open_feed(directory: &Path, followed: &str, retention: Option<Duration>) -> Result<Embedded, Failure> {
    let marker = directory.join(FOLLOWS);
    match fs::read_to_string(&marker) {
        Ok(text) if text.trim() == followed => {}
        Ok(text) => {
            let text = text.trim();
            return Err(Failure::Usage(format!(
                "{} keeps the change feed of {text}: choose another directory with --feed-data",
                directory.display()
            )));
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let is_used = fs::read_dir(directory).is_ok_and(|mut entries| entries.next().is_some());
            if is_used {
                return Err(Failure::Usage(format!(
                    "{} contains something other than a change feed of files: choose another directory with --feed-data",
                    directory.display()
                )));
            }
            let written = fs::create_dir_all(directory).and_then(|()| fs::write(&marker, followed));
            written.map_err(|source| OpenError::Io { path: marker, source })?;
        }
        Err(source) => return Err(OpenError::Io { path: marker, source }.into()),
    }
    let mut options = LogOptions::default();
    if let Some(retention) = retention {
        options = options.with_retention(retention);
    }
    Ok(Embedded::open(directory, options)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_feed_belongs_to_the_files_that_it_follows() {
        let directory = tempfile::tempdir().unwrap();
        let feed = directory.path().join("feed");
        drop(open_feed(&feed, "file:///a", None).unwrap());
        drop(open_feed(&feed, "file:///a", None).unwrap());
        let other = open_feed(&feed, "file:///b", None).unwrap_err();
        assert!(other.to_string().contains("file:///a"), "{other}");
        // The data directory of a nameservice is not accepted as a feed: it would be emptied.
        let data = directory.path().join("data");
        drop(Embedded::open(&data, LogOptions::default()).unwrap());
        let taken = open_feed(&data, "file:///a", None).unwrap_err();
        assert!(matches!(taken, Failure::Usage(_)), "{taken}");
    }
}
