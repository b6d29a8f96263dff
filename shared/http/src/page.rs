//! Pages of a bounded size.

use std::io::{self, Write};

use nameservice_model::{Cursor, InvalidCursor, Limit, MAX_ADDRESS_BYTES};
use serde::Serialize;

use crate::problem::Problem;

/// The maximum size of one answer, in bytes of JSON. Lambda returns at most 6 MB, with the JSON escaped once more.
pub const MAX_PAGE_BYTES: usize = 4 * 1024 * 1024;
/// The size reserved for the members around the records.
const FRAME_BYTES: usize = 4 * 1024;

/// Checks the limit of a page, or returns the default.
pub fn limit(asked: Option<u64>, default: usize, most: usize) -> Result<Limit, Problem> {
    let limit = asked.map_or(Ok(default), usize::try_from).ok().filter(|limit| *limit <= most);
    let limit = limit.and_then(|limit| Limit::new(limit).ok());
    limit.ok_or_else(|| Problem::invalid_parameter("limit", format!("must be between 1 and {most}")))
}

/// Checks a prefix of addresses. One that is longer than any address is a mistake.
pub fn prefix(asked: Option<String>) -> Result<Option<String>, Problem> {
    match asked {
        Some(prefix) if prefix.len() > MAX_ADDRESS_BYTES => {
            Err(Problem::invalid_parameter("prefix", format!("has more than {MAX_ADDRESS_BYTES} bytes")))
        }
        asked => Ok(asked),
    }
}

/// Reads a cursor that a client sends back.
pub fn cursor(text: Option<&str>) -> Result<Option<Cursor>, Problem> {
    Ok(text.map(Cursor::decode).transpose()?)
}

/// Reads a cursor of a list: one of a snapshot or a search is another.
pub fn list_cursor(text: Option<&str>) -> Result<Option<Cursor>, Problem> {
    cursor_if(text, |cursor| cursor.position().is_none() && cursor.rank().is_none())
}

/// Reads a cursor of a search: one of a list or a snapshot is another.
pub fn search_cursor(text: Option<&str>) -> Result<Option<Cursor>, Problem> {
    cursor_if(text, |cursor| cursor.rank().is_some())
}

fn cursor_if(text: Option<&str>, is_right: impl Fn(&Cursor) -> bool) -> Result<Option<Cursor>, Problem> {
    let cursor = cursor(text)?;
    match cursor.as_ref().is_none_or(is_right) {
        true => Ok(cursor),
        false => Err(Problem::invalid_cursor(&InvalidCursor)),
    }
}

/// Shows as many of the entries as fit one answer, and at least one. The cursor names the last entry shown; if all are
/// shown, it is `next`.
pub fn fit<T, V: Serialize>(
    entries: Vec<T>,
    next: Option<Cursor>,
    cursor_of: impl Fn(&T) -> Cursor,
    show: impl Fn(&T) -> V,
) -> Result<(Vec<V>, Option<String>), Problem> {
    let mut shown = Vec::with_capacity(entries.len());
    let mut budget = Budget::default();
    let mut last = None;
    for entry in &entries {
        let view = show(entry);
        if let (false, Some(last)) = (budget.admits(&view)?, last) {
            return Ok((shown, Some(cursor_of(last).encode())));
        }
        shown.push(view);
        last = Some(entry);
    }
    Ok((shown, next.map(|next| next.encode())))
}

/// The bytes left in an answer of [`MAX_PAGE_BYTES`].
#[derive(Debug)]
pub struct Budget(usize);

impl Default for Budget {
    fn default() -> Self {
        Self(MAX_PAGE_BYTES - FRAME_BYTES)
    }
}

impl Budget {
    /// Reserves space for an entry, and returns whether it fits. After one that does not fit, none does.
    pub fn admits(&mut self, entry: &impl Serialize) -> Result<bool, Problem> {
        // One more for the comma after it.
        let left = self.0.checked_sub(json_bytes(entry)? + 1);
        self.0 = left.unwrap_or(0);
        Ok(left.is_some())
    }
}

/// Returns the length of a value in JSON.
pub fn json_bytes(value: &impl Serialize) -> Result<usize, Problem> {
    struct Count(usize);
    impl Write for Count {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0 += bytes.len();
            Ok(bytes.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let mut count = Count(0);
    serde_json::to_writer(&mut count, value).map_err(Problem::internal)?;
    Ok(count.0)
}

#[cfg(test)]
mod tests {
    use nameservice_model::{Address, Listed, RecordKind, Summary};

    use super::*;

    fn entry(name: &str) -> Listed {
        Listed::Summary(Summary {
            address: Address::parse(name).unwrap(),
            kind: RecordKind::Ledger,
            retracted: false,
            source_type: None,
            dependencies: Vec::new(),
        })
    }

    #[test]
    fn a_page_is_cut_before_it_is_too_large_but_never_empty() {
        let size = |bytes: usize| move |_: &Listed| "x".repeat(bytes);
        let entries = vec![entry("a"), entry("b"), entry("c")];
        let next = Some(entries[2].cursor());
        let of = Listed::cursor;

        let (shown, cursor) = fit(entries.clone(), next.clone(), of, size(10)).unwrap();
        assert_eq!((shown.len(), cursor), (3, next.clone().map(|next| next.encode())));
        let (shown, cursor) = fit(entries.clone(), None, of, size(MAX_PAGE_BYTES * 2 / 5)).unwrap();
        assert_eq!((shown.len(), cursor), (2, Some(entries[1].cursor().encode())));
        let (shown, cursor) = fit(entries.clone(), next, of, size(MAX_PAGE_BYTES * 2)).unwrap();
        assert_eq!((shown.len(), cursor), (1, Some(entries[0].cursor().encode())));
        assert_eq!(fit(Vec::new(), None, of, size(1)).unwrap(), (Vec::new(), None));
    }

    #[test]
    fn limits_have_bounds() {
        assert_eq!(limit(None, 100, 1000).unwrap().get(), 100);
        assert_eq!(limit(Some(1000), 100, 1000).unwrap().get(), 1000);
        assert!(limit(Some(0), 100, 1000).is_err());
        assert!(limit(Some(1001), 100, 1000).is_err());
    }
}
