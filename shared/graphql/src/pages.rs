//! Connections and their arguments.

use async_graphql::{
    Result,
    connection::{Connection, EmptyFields},
};
use nameservice_http::{Problem, page};
use nameservice_model::{Cursor, InvalidCursor, Limit};

use crate::errors::problem;

/// A page of entries, each with a cursor.
pub(crate) type Page<T> = Connection<String, T, EmptyFields, EmptyFields>;

/// Reads the maximum number of entries of a page.
pub(crate) fn limit(first: i32) -> Result<Limit> {
    Ok(Limit::new(usize::try_from(first).unwrap_or(1))?)
}

/// Reads a cursor of a connection of records.
pub(crate) fn cursor(after: Option<&str>) -> Result<Option<Cursor>> {
    page::list_cursor(after).map_err(problem)
}

/// Reads a cursor of a connection of hits.
pub(crate) fn search_cursor(after: Option<&str>) -> Result<Option<Cursor>> {
    page::search_cursor(after).map_err(problem)
}

/// Reads a cursor of a connection of changes.
pub(crate) fn position(after: Option<&str>) -> Result<u64> {
    let is_number = after.is_none_or(|text| text.bytes().all(|byte| byte.is_ascii_digit()));
    let after = if is_number { after } else { Some("") };
    let parsed = after.map(str::parse).transpose();
    Ok(parsed.map_err(|_| problem(Problem::invalid_cursor(&InvalidCursor)))?.unwrap_or(0))
}
