//! Reads a dump, and checks it against its last line.

use std::{
    fs::File,
    io::{self, BufRead, BufReader, Read as _},
    sync::Mutex,
};

use async_trait::async_trait;
use nameservice_api as api;
use nameservice_model::{Address, Record};
use sha2::{Digest as _, Sha256};
use tokio::task::spawn_blocking;

use super::{DumpPlace, End, FORMAT, Head, Last};
use crate::{Found, Reading, Result, Source, SyncError};

/// The longest line that is read: a service takes bodies of 256 KiB, and a record may contain several of them.
const MAX_LINE: usize = 16 * 1024 * 1024;
/// How many lines are read together.
const PAGE: usize = 500;

/// A dump to read from.
#[derive(Debug)]
pub struct DumpSource {
    place: DumpPlace,
    prefix: Option<String>,
    /// Whether it can be read more than once: a plain file.
    is_plain: bool,
    /// Whether the stream is still unread.
    stream: Mutex<bool>,
}

impl DumpSource {
    /// Opens a dump. A file is first read to the end, so that nothing of an incomplete one is ever used; a stream, or a file
    /// that is a pipe, is checked while it is read.
    pub async fn open(place: DumpPlace, prefix: Option<String>) -> Result<Self> {
        let is_plain = match &place {
            DumpPlace::File(path) => {
                let metadata = std::fs::metadata(path);
                metadata.map_err(|source| SyncError::File { path: path.clone(), source })?.is_file()
            }
            DumpPlace::Stream => false,
        };
        if let DumpPlace::File(path) = &place
            && is_plain
        {
            let path = path.clone();
            let checked = spawn_blocking(move || -> Result<()> {
                let mut lines = Lines::open(&DumpPlace::File(path))?;
                while lines.next_line()?.is_some() {}
                Ok(())
            });
            checked.await.map_err(|error| SyncError::Other(error.into()))??;
        }
        Ok(Self { place, prefix, is_plain, stream: Mutex::new(true) })
    }
}

#[async_trait]
impl Source for DumpSource {
    async fn read(&self) -> Result<Box<dyn Reading + '_>> {
        if !self.is_plain {
            let mut is_unread = self.stream.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            if !std::mem::replace(&mut *is_unread, false) {
                return Err(SyncError::Unsupported("a stream can be read only once".into()));
            }
        }
        let place = self.place.clone();
        let lines =
            spawn_blocking(move || Lines::open(&place)).await.map_err(|error| SyncError::Other(error.into()))??;
        let position = lines.position;
        Ok(Box::new(Lined { lines: Some(lines), prefix: self.prefix.as_deref(), position }))
    }

    async fn lookup_all(&self, _: &[Address]) -> Result<Option<Vec<Record>>> {
        Ok(None)
    }

    fn finds(&self) -> bool {
        false
    }

    fn can_be_read_again(&self) -> bool {
        self.is_plain
    }
}

struct Lined<'a> {
    lines: Option<Lines>,
    prefix: Option<&'a str>,
    position: Option<u64>,
}

#[async_trait]
impl Reading for Lined<'_> {
    async fn next(&mut self) -> Result<Vec<Found>> {
        loop {
            let Some(mut lines) = self.lines.take() else { return Ok(Vec::new()) };
            let read = move || -> Result<(Lines, Vec<Found>)> {
                let mut found = Vec::new();
                while found.len() < PAGE {
                    match lines.next_line()? {
                        Some(record) => found.push(record),
                        None => break,
                    }
                }
                Ok((lines, found))
            };
            let (lines, mut found) = spawn_blocking(read).await.map_err(|error| SyncError::Other(error.into()))??;
            if found.is_empty() {
                return Ok(found);
            }
            self.lines = Some(lines);
            if let Some(prefix) = self.prefix {
                found.retain(
                    |found| !matches!(found, Found::Record(record) if !record.address.as_str().starts_with(prefix)),
                );
            }
            if !found.is_empty() {
                return Ok(found);
            }
        }
    }

    fn position(&self) -> Option<u64> {
        self.position
    }
}

/// The lines of a dump, checked against the last one.
struct Lines {
    place: String,
    from: Box<dyn BufRead + Send>,
    hash: Sha256,
    line: u64,
    records: u64,
    position: Option<u64>,
    is_over: bool,
}

impl Lines {
    fn open(place: &DumpPlace) -> Result<Self> {
        let from: Box<dyn BufRead + Send> = match place {
            DumpPlace::Stream => Box::new(BufReader::new(io::stdin())),
            DumpPlace::File(path) => {
                let file = File::open(path).map_err(|source| SyncError::File { path: path.clone(), source })?;
                Box::new(BufReader::new(file))
            }
        };
        Self::over(place.to_string(), from)
    }

    fn over(place: String, from: Box<dyn BufRead + Send>) -> Result<Self> {
        let mut lines = Self { place, from, hash: Sha256::new(), line: 0, records: 0, position: None, is_over: false };
        let first = lines.text()?;
        let head: Head = match serde_json::from_slice(&first) {
            Ok(head) => head,
            Err(_) => return Err(lines.broken("it does not begin with the head of a dump")),
        };
        if head.nameservice_dump != FORMAT {
            let reason = format!("it has format {}, and this version reads {FORMAT}", head.nameservice_dump);
            return Err(lines.broken(&reason));
        }
        lines.hash.update(&first);
        lines.position = head.position;
        Ok(lines)
    }

    fn broken(&self, reason: &str) -> SyncError {
        SyncError::Dump { place: self.place.clone(), reason: reason.to_owned() }
    }

    /// Returns the next line including its line break; empty at the end of the file.
    fn text(&mut self) -> Result<Vec<u8>> {
        let mut text = Vec::new();
        let limit = MAX_LINE as u64;
        (&mut self.from).take(limit).read_until(b'\n', &mut text).map_err(SyncError::Stream)?;
        self.line += 1;
        if text.len() == MAX_LINE {
            return Err(self.broken(&format!("line {} has more than {MAX_LINE} bytes", self.line)));
        }
        Ok(text)
    }

    fn next_line(&mut self) -> Result<Option<Found>> {
        if self.is_over {
            return Ok(None);
        }
        let text = self.text()?;
        if text.is_empty() || text.last() != Some(&b'\n') && serde_json::from_slice::<Last>(&text).is_err() {
            return Err(self.broken(&format!("it was cut off after {} records", self.records)));
        }
        if let Ok(Last { end }) = serde_json::from_slice(&text) {
            let found =
                End { records: self.records, sha256: base16ct::lower::encode_string(&self.hash.clone().finalize()) };
            if end != found {
                return Err(self.broken("it was edited: its records do not match the count and the hash of its end"));
            }
            // White space after the end, such as a blank line that a program added, is none of the data.
            loop {
                let text = self.text()?;
                if text.is_empty() {
                    break;
                }
                if !text.trim_ascii().is_empty() {
                    return Err(self.broken("there is data after its end; import dumps one at a time"));
                }
            }
            self.is_over = true;
            return Ok(None);
        }
        self.hash.update(&text);
        self.records += 1;
        let record = serde_json::from_slice::<api::Record>(&text).map_err(|error| error.to_string());
        Ok(Some(match record.and_then(|record| Record::try_from(record).map_err(|error| error.to_string())) {
            Ok(record) => Found::Record(Box::new(record)),
            Err(reason) => Found::Unreadable { place: format!("line {}", self.line), reason },
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<u64> {
        let mut lines = Lines::over("d".into(), Box::new(io::Cursor::new(text.as_bytes().to_vec())))?;
        while lines.next_line()?.is_some() {}
        Ok(lines.records)
    }

    fn dump(records: &[&str]) -> String {
        let mut text = String::from("{\"nameservice_dump\":1,\"position\":4}\n");
        for record in records {
            text.push_str(record);
            text.push('\n');
        }
        let sha256 = base16ct::lower::encode_string(&Sha256::digest(&text));
        let end = Last { end: End { records: records.len() as u64, sha256 } };
        text.push_str(&serde_json::to_string(&end).unwrap());
        text.push('\n');
        text
    }

    #[test]
    fn a_dump_that_is_not_whole_says_so() {
        let whole = dump(&["{\"a\":1}", "{\"a\":2}"]);
        for more in ["", "\n", " \n\r\n"] {
            assert_eq!(read(&format!("{whole}{more}")).unwrap(), 2, "{more:?}");
        }
        let lines: Vec<&str> = whole.split_inclusive('\n').collect();
        for (text, reason) in [
            (String::new(), "does not begin"),
            ("{}\n".into(), "does not begin"),
            (whole.replace("dump\":1", "dump\":2"), "format 2"),
            (lines[..3].concat(), "cut off after 2 records"),
            (whole[..lines[0].len() + 3].to_owned(), "cut off after 0 records"),
            (whole.replace("{\"a\":2}", "{\"a\":3}"), "edited"),
            (whole.replace("position\":4", "position\":5"), "edited"),
            ([lines[0], lines[1], lines[3]].concat(), "edited"),
            ([lines[0], lines[2], lines[1], lines[3]].concat(), "edited"),
            (whole.repeat(2), "data after its end"),
            (format!("{whole}\n\n{}", lines[1]), "data after its end"),
            (format!("{whole}{}", lines[1]), "data after its end"),
            (format!("{}{{\"a\":3}}", whole.trim_end()), "cut off"),
        ] {
            let error = read(&text).unwrap_err().to_string();
            assert!(error.contains(reason), "{text}: {error}");
        }
    }
}
