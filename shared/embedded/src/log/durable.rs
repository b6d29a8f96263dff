//! The file beside a log that names the last change of it that is durable, so that a log that has lost changes is
//! noticed.
//!
//! It is written after each commit, and never synced: a power failure may leave an older content, which is no less true.
//! A content that is newer than the log means that the log, or its write-ahead file, is not the one that was written.

use std::{
    fs::{self, File},
    io::{self, Seek as _, Write as _},
    path::{Path, PathBuf},
};

use rusqlite::Connection;

use super::rows;
use crate::{OpenError, directory::DURABLE_FILE};

/// A place in one log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mark {
    /// The identity of the log, 16 hex digits.
    pub(crate) log: String,
    /// The position of the last change; 0 if there is none, or if that is not known.
    pub(crate) position: u64,
    /// The checksum of the changes up to there.
    pub(crate) chain: u32,
}

impl Mark {
    /// Returns the content of the file. It always has the same length, and fits a sector.
    fn text(&self) -> String {
        let text = format!("{} {:020} {:08x}", self.log, self.position, self.chain);
        format!("{text} {:08x}\n", crc32fast::hash(text.as_bytes()))
    }

    fn parse(text: &str) -> Option<Self> {
        let mut parts = text.trim_end().splitn(4, ' ');
        let (log, position, chain) = (parts.next()?, parts.next()?, parts.next()?);
        let mark =
            Self { log: log.to_owned(), position: position.parse().ok()?, chain: u32::from_str_radix(chain, 16).ok()? };
        (mark.text() == text).then_some(mark)
    }

    /// Reads the file beside a log; `None` if there is none, or if it cannot be read.
    pub(crate) fn beside(log: &Path) -> Option<Self> {
        let path = log.with_file_name(DURABLE_FILE);
        let text = fs::read_to_string(&path).ok()?;
        let mark = Self::parse(&text);
        if mark.is_none() {
            tracing::warn!("{} cannot be read, and is written again", path.display());
        }
        mark
    }

    /// Returns what a log with this identity, which ends at a position, has lost; `None` if it has all of it.
    pub(crate) fn missing_in(
        &self,
        connection: &Connection,
        log: &str,
        position: u64,
    ) -> rusqlite::Result<Option<String>> {
        if self.log != log {
            return Ok(Some("it is another log".to_owned()));
        }
        if self.position > position {
            let from = position + 1;
            return Ok(Some(format!(
                "it ends at position {position}, and changes {from} to {} were answered: its write-ahead file was removed \
                 or cut off, or an older copy was put in its place",
                self.position
            )));
        }
        let mut change = connection.prepare("SELECT at, address, body FROM changes WHERE position = ?1")?;
        let mut rows = change.query([self.position])?;
        let Some(row) = rows.next()? else { return Ok(None) };
        let (at, address, body) = (row.get(0)?, row.get_ref(1)?.as_str()?, row.get_ref(2)?.as_blob()?);
        Ok(match rows::checked_change(self.position, at, address, body) {
            Ok((_, Some(chain))) if chain == self.chain => None,
            // Written before there were checksums.
            Ok((_, None)) => None,
            _ => Some(format!("its change {} is not the one that was answered", self.position)),
        })
    }
}

/// The writer of the file.
#[derive(Debug)]
pub(super) struct Durable {
    path: PathBuf,
    log: String,
    file: Option<File>,
    has_failed: bool,
}

impl Durable {
    /// Returns the writer of the file beside a log with this identity.
    pub(super) fn new(log: &Path, identity: String) -> Self {
        Self { path: log.with_file_name(DURABLE_FILE), log: identity, file: None, has_failed: false }
    }

    /// Notes that the log is durable up to a position. If that fails, the file stays behind, which is no less true.
    pub(super) fn note(&mut self, position: u64, chain: u32) {
        let failure = self.write(position, chain).err();
        if let Some(error) = failure.as_ref().filter(|_| !self.has_failed) {
            tracing::warn!(%error, "{} was not written", self.path.display());
        }
        self.has_failed = failure.is_some();
    }

    /// Notes, durably, that the log is about to begin again.
    pub(super) fn begin_again(&mut self) -> io::Result<()> {
        self.write(0, 0)?.sync_all()
    }

    fn write(&mut self, position: u64, chain: u32) -> io::Result<&File> {
        let file = match &mut self.file {
            Some(file) => file,
            none => none.insert(open(&self.path)?),
        };
        file.rewind()?;
        file.write_all(Mark { log: self.log.clone(), position, chain }.text().as_bytes())?;
        Ok(file)
    }
}

/// Notes, durably, that no log is whole that is beside the file: each is rejected until the file is removed. What had its name keeps its content.
pub(crate) fn reject(log: &Path) -> io::Result<()> {
    let path = log.with_file_name(DURABLE_FILE);
    let new = path.with_extension("durable.new");
    // Whoever may write the directory could have the superuser write through a link.
    match fs::remove_file(&new) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = File::options().write(true).create_new(true).open(&new)?;
    file.write_all(Mark { log: "0".repeat(16), position: 0, chain: 0 }.text().as_bytes())?;
    file.sync_all()?;
    fs::rename(new, path)
}

fn open(path: &Path) -> io::Result<File> {
    File::options().write(true).create(true).truncate(false).open(path)
}

/// Returns the error for a log that has lost something.
pub(crate) fn incomplete(path: &Path, reason: String) -> OpenError {
    OpenError::Incomplete { path: path.to_owned(), durable: path.with_file_name(DURABLE_FILE), reason }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_is_read_as_it_was_written_and_nothing_else_is() {
        for position in [0, 7, u64::MAX] {
            let mark = Mark { log: "0123456789abcdef".to_owned(), position, chain: 0xfeed };
            let text = mark.text();
            assert_eq!(text.len(), 56);
            assert_eq!(Mark::parse(&text), Some(mark));
            for at in 0..text.len() {
                let mut damaged = text.clone().into_bytes();
                damaged[at] ^= 1;
                assert_eq!(Mark::parse(&String::from_utf8(damaged).unwrap()), None, "{at}");
                assert_eq!(Mark::parse(&text[..at]), None);
            }
        }
    }
}
