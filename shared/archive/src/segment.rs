//! One object of an archive.

use nameservice_api::changes::Change as Shape;
use nameservice_model::Change;
use serde::{Deserialize, Serialize};

/// What one object of an archive holds.
#[derive(Clone, Debug, PartialEq)]
pub struct Segment {
    /// The first position.
    pub first: u64,
    /// The last position.
    pub last: u64,
    /// What is at these positions.
    pub content: Content,
}

/// What is at the positions of an object.
#[derive(Clone, Debug, PartialEq)]
pub enum Content {
    /// Their changes.
    Changes(Vec<Change>),
    /// Nothing: the changes had expired before they were archived.
    Gap,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct GapLine {
    gap: Gap,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Gap {
    first: u64,
    last: u64,
}

impl Segment {
    /// Returns the object of these changes, which follow one another; `None` if there are none.
    pub(crate) fn of(changes: Vec<Change>) -> Option<Self> {
        let (first, last) = (changes.first()?.position, changes.last()?.position);
        Some(Self { first, last, content: Content::Changes(changes) })
    }

    /// Returns the object of a gap.
    pub(crate) const fn gap(first: u64, last: u64) -> Self {
        Self { first, last, content: Content::Gap }
    }

    /// Returns its changes; none for a gap.
    pub fn changes(&self) -> &[Change] {
        match &self.content {
            Content::Changes(changes) => changes,
            Content::Gap => &[],
        }
    }

    /// Returns the JSON Lines of the object.
    pub(crate) fn to_lines(&self) -> serde_json::Result<String> {
        let mut lines = String::new();
        match &self.content {
            Content::Gap => {
                lines.push_str(&serde_json::to_string(&GapLine { gap: Gap { first: self.first, last: self.last } })?);
                lines.push('\n');
            }
            Content::Changes(changes) => {
                for change in changes {
                    lines.push_str(&line(change)?);
                    lines.push('\n');
                }
            }
        }
        Ok(lines)
    }

    /// Parses the JSON Lines of the object that begins at this position, according to its name. The error says what is wrong with them.
    pub(crate) fn parse(first: u64, text: &str) -> Result<Self, String> {
        // A truncated line has no line break.
        if !text.ends_with('\n') {
            return Err("its last line has no end".to_owned());
        }
        if let Some(Ok(GapLine { gap })) = text.lines().next().map(serde_json::from_str) {
            return match gap.first == first && gap.last >= first && text.lines().count() == 1 {
                true => Ok(Self::gap(gap.first, gap.last)),
                false => Err(format!("its gap does not begin at {first}")),
            };
        }
        let mut changes = Vec::new();
        for (expected, line) in (first..).zip(text.lines()) {
            let shape: Shape = serde_json::from_str(line).map_err(|error| format!("position {expected}: {error}"))?;
            let change = Change::try_from(shape).map_err(|error| format!("position {expected}: {error}"))?;
            if change.position != expected {
                return Err(format!("position {} is where {expected} should be", change.position));
            }
            changes.push(change);
        }
        Self::of(changes).ok_or_else(|| "it is empty".to_owned())
    }
}

/// Returns a change as a line, without the line break.
pub(crate) fn line(change: &Change) -> serde_json::Result<String> {
    serde_json::to_string(&Shape::from(change))
}
