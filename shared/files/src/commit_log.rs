//! Fluree's commit log beside a ledger in a directory: a line for each head that Fluree has published. We never write one.
//!
//! Fluree's indexer trusts the log if it reaches the head without a gap, and follows the commits themselves if there is a
//! gap or a line that it cannot read. So a missing line is harmless, but a line of a commit that is not the ledger's corrupts
//! an index: lines that contradict a reset are removed before it and once more after it.

use std::collections::BTreeMap;

use bytes::Bytes;
use nameservice_model::{Address, ContentId, Head, Result};
use serde::{Deserialize, Serialize};

use crate::{Files, names, storage::Version};

/// A line of a log: the head that was published at a `t`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Line {
    pub(crate) t: i64,
    pub(crate) cid: String,
}

impl Line {
    /// Whether the line cannot be of a ledger with this head: it is above it, or names another commit at its `t`.
    fn contradicts(&self, head: &Head) -> bool {
        let id = head.payload.as_ref().map(ContentId::as_str);
        self.t > head.v || (self.t == head.v && id.is_some_and(|id| id != self.cid))
    }
}

/// Reads a log; `None` if it has a line that cannot be read, because of which Fluree does not use it either.
pub(crate) fn parse(bytes: &[u8]) -> Option<Vec<Line>> {
    let lines = bytes.split(|byte| *byte == b'\n').filter(|line| !line.trim_ascii().is_empty());
    lines.map(|line| serde_json::from_slice(line).ok()).collect()
}

/// Reads the lines of a log that can be read, of which the last may be half written.
pub(crate) fn lines(bytes: &[u8]) -> Vec<Line> {
    bytes.split(|byte| *byte == b'\n').filter_map(|line| serde_json::from_slice(line).ok()).collect()
}

/// The heads that were published between two others, in order, as far as the log has them.
///
/// They are the last lines whose `t` rises to that of the newer head: lines before a step back are those of commits that a
/// reset has taken back. A line of another commit at the `t` of the newer head ends the search, too. So what is returned may lack
/// heads, and holds none that a reset by this service has taken back.
pub(crate) fn between(log: &[Line], older: i64, newer: &Head) -> Vec<Line> {
    let id = newer.payload.as_ref().map(ContentId::as_str);
    // What was published after the newer head was read.
    let lines = log.iter().rev().skip_while(|line| line.t > newer.v);
    let mut found: Vec<Line> = Vec::new();
    for line in lines {
        let next = found.last().map_or(newer.v, |line| line.t);
        if line.t <= older {
            break;
        }
        if line.t == newer.v && Some(line.cid.as_str()) == id && found.is_empty() {
            continue;
        }
        if line.t >= next || ContentId::parse(&line.cid).is_err() {
            break;
        }
        found.push(line.clone());
    }
    found.reverse();
    found
}

/// What is wrong with a log.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Flaws {
    /// Lines above the head.
    pub(crate) above: usize,
    /// Whether a line names another commit at the `t` of the head.
    pub(crate) is_not_head: bool,
    /// Lines below the head that name several commits at one `t`.
    pub(crate) superseded: usize,
}

impl Flaws {
    pub(crate) fn of(log: &[Line], head: &Head) -> Self {
        let mut commits = BTreeMap::<i64, Vec<&str>>::new();
        for line in log.iter().filter(|line| line.t < head.v) {
            commits.entry(line.t).or_default().push(&line.cid);
        }
        let several = |commits: &&Vec<&str>| commits.iter().any(|commit| *commit != commits[0]);
        Self {
            above: log.iter().filter(|line| line.t > head.v).count(),
            is_not_head: log.iter().any(|line| line.t == head.v && line.contradicts(head)),
            superseded: commits.values().filter(several).map(Vec::len).sum(),
        }
    }

    pub(crate) fn is_none(&self) -> bool {
        *self == Self::default()
    }
}

/// Returns the lines that a ledger with this head can keep. Of those that name several commits at one `t` none stays, since
/// the log does not say which of them is the ledger's.
fn kept(log: Vec<Line>, head: &Head) -> Vec<Line> {
    let mut commits = BTreeMap::<i64, String>::new();
    let mut several = Vec::new();
    for line in &log {
        if *commits.entry(line.t).or_insert_with(|| line.cid.clone()) != line.cid {
            several.push(line.t);
        }
    }
    // At the head's own `t` it is known which one is.
    let stays = |line: &Line| !line.contradicts(head) && (line.t == head.v || !several.contains(&line.t));
    log.into_iter().filter(stays).collect()
}

impl Files {
    /// Reads the log of a ledger. `None` if there is none: buckets never have one. The inner `None` is a log that cannot be read.
    pub(crate) async fn commit_log(&self, address: &Address) -> Result<Option<Option<Vec<Line>>>> {
        if !self.inner.storage.locks() {
            return Ok(None);
        }
        let stored = self.inner.storage.read(&names::commits_key(address)).await?;
        Ok(stored.map(|log| parse(&log.content.bytes)))
    }

    /// Removes the lines that contradict a head. The caller holds the lock of the record. Fluree appends without it: a line that
    /// is lost in between is a gap. A log that cannot be read is removed as a whole: whatever makes it readable later must not
    /// bring back a commit that was taken back.
    pub(crate) async fn clear_commits(&self, address: &Address, head: &Head) -> Result<()> {
        let Some(log) = self.commit_log(address).await? else { return Ok(()) };
        let key = names::commits_key(address);
        let kept = match log {
            Some(log) if Flaws::of(&log, head).is_none() => return Ok(()),
            Some(log) => kept(log, head),
            None => Vec::new(),
        };
        if kept.is_empty() {
            return self.inner.storage.delete(&key).await;
        }
        let mut text = Vec::new();
        for line in &kept {
            // A line has no value without a JSON form.
            text.extend(serde_json::to_vec(line).unwrap_or_default());
            text.push(b'\n');
        }
        self.inner.storage.replace(&key, Bytes::from(text), &Version::default()).await.map(drop)
    }

    /// Removes lines that a reset contradicts, after it was written: a failure does not undo it.
    pub(crate) async fn clear_commits_again(&self, address: &Address, head: &Head) {
        if let Err(error) = self.clear_commits(address, head).await {
            let error = nameservice_model::chain(&error);
            tracing::warn!(%address, error, "Fluree's commit log may hold commits that were reset: run `nameservice doctor --fix`");
        }
    }

    /// Removes every line: a record that is created now has none.
    pub(crate) async fn drop_commits(&self, address: &Address) -> Result<()> {
        match self.inner.storage.locks() {
            true => self.inner.storage.delete(&names::commits_key(address)).await,
            false => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A content id of its own for each text.
    fn id(of: &str) -> String {
        let digest: Vec<u8> = of.bytes().cycle().take(32).collect();
        let hash = cid::multihash::Multihash::<64>::wrap(0x12, &digest).unwrap();
        cid::Cid::new_v1(0x30_0001, hash).to_string()
    }

    fn log(lines: &[(i64, &str)]) -> Vec<Line> {
        lines.iter().map(|(t, of)| Line { t: *t, cid: id(of) }).collect()
    }

    fn head(t: i64, of: &str) -> Head {
        Head::new(t, ContentId::parse(&id(of)).unwrap())
    }

    #[test]
    fn the_heads_between_two_others_are_those_that_lead_to_the_newer_one() {
        let shown = |lines: &[(i64, &str)], older: i64, newer: Head| -> Vec<(i64, String)> {
            between(&log(lines), older, &newer).into_iter().map(|line| (line.t, line.cid)).collect()
        };
        let expected =
            |lines: &[(i64, &str)]| log(lines).into_iter().map(|line| (line.t, line.cid)).collect::<Vec<_>>();
        let plain = [(1, "a"), (2, "b"), (3, "c"), (4, "d")];
        assert_eq!(shown(&plain, 1, head(4, "d")), expected(&[(2, "b"), (3, "c")]));
        assert_eq!(shown(&plain, 0, head(3, "c")), expected(&[(1, "a"), (2, "b")]), "what came later is not shown yet");
        assert_eq!(
            shown(&plain[..3], 1, head(4, "d")),
            expected(&[(2, "b"), (3, "c")]),
            "its own line is not there yet"
        );
        assert_eq!(shown(&plain, 3, head(4, "d")), []);
        // A merge moves the head by several commits: only what was a head is one.
        assert_eq!(shown(&[(1, "a"), (5, "e"), (6, "f")], 1, head(6, "f")), expected(&[(5, "e")]));
        // Lines of commits that were taken back.
        let reset = [(1, "a"), (2, "b"), (3, "c"), (4, "d"), (2, "x"), (3, "y")];
        assert_eq!(shown(&reset, 1, head(3, "y")), expected(&[(2, "x")]));
        assert_eq!(shown(&reset[..4], 1, head(2, "x")), []);
        assert_eq!(shown(&[(2, "b"), (9, "i"), (9, "z")], 1, head(9, "z")), []);
        assert_eq!(shown(&[(2, "no id"), (3, "c")], 1, head(3, "c")), expected(&[(2, "no id")]));
        let odd = [Line { t: 2, cid: "odd".into() }];
        assert_eq!(between(&odd, 1, &head(3, "c")), []);
    }

    #[test]
    fn lines_that_contradict_the_head_do_not_stay() {
        let stays = |lines: &[(i64, &str)], at: Head| kept(log(lines), &at);
        let all = [(1, "a"), (2, "b"), (3, "c"), (4, "d")];
        assert_eq!(stays(&all, head(4, "d")), log(&all));
        assert_eq!(stays(&all, head(2, "b")), log(&all[..2]));
        assert_eq!(stays(&all, head(2, "x")), log(&all[..1]));
        assert_eq!(stays(&all, Head::unborn()), []);
        let twice = [(1, "a"), (2, "b"), (3, "c"), (2, "x"), (3, "y")];
        assert_eq!(stays(&twice, head(3, "y")), log(&[(1, "a"), (3, "y")]));
        assert_eq!(Flaws::of(&log(&twice), &head(3, "y")), Flaws { above: 0, is_not_head: true, superseded: 2 });
        assert_eq!(Flaws::of(&log(&all), &head(2, "b")), Flaws { above: 2, is_not_head: false, superseded: 0 });
        // The same line twice contradicts nothing.
        assert!(Flaws::of(&log(&[(1, "a"), (1, "a"), (2, "b")]), &head(2, "b")).is_none());
    }

    #[test]
    fn a_log_with_a_line_that_cannot_be_read_is_none() {
        assert_eq!(parse(b"{\"t\":1,\"cid\":\"a\"}\n\n{\"t\":2,\"cid\":\"b\",\"x\":1}").unwrap().len(), 2);
        assert_eq!(parse(b"").unwrap(), []);
        for odd in
            [&b"{"[..], b"{\"t\":1}\n", b"{\"t\":1,\"cid\":\"a\"}\nnull", b"{\"t\":\"1\",\"cid\":\"a\"}", b"\xff"]
        {
            assert_eq!(parse(odd), None);
        }
    }
}
