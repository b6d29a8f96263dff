use async_trait::async_trait;
use nameservice_model::{Address, Limit, RecordKind, Result, Visible};

use super::{RecordRow, index, row::Due};
use crate::MemoryRows;

/// What records are listed by. Each variant is one index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum By {
    /// Those of a kind.
    Kind(RecordKind),
    /// Those in a state.
    State(String),
    /// Graph sources of a type.
    SourceType(String),
    /// Those with a lease of this holder.
    Holder(String),
    /// Live ledgers whose index is as far behind as their `index_threshold`.
    IndexDue,
}

impl By {
    /// Returns the index, and the value in it.
    pub fn key(&self) -> (&'static str, &str) {
        match self {
            Self::Kind(kind) => (index::BY_KIND, kind.as_str()),
            Self::State(state) => (index::BY_STATE, state),
            Self::SourceType(source_type) => (index::BY_TYPE, source_type),
            Self::Holder(holder) => (index::BY_HOLDER, holder),
            Self::IndexDue => (index::BY_DUE, Due::Index.as_str()),
        }
    }
}

/// A query for rows of the read model.
#[derive(Clone, Debug)]
pub struct RecordQuery {
    /// What they are listed by.
    pub by: By,
    /// Only addresses that begin with this; empty for all.
    pub prefix: String,
    /// Only addresses after this one.
    pub after: Option<Address>,
    /// The maximum number of rows.
    pub limit: Limit,
}

impl RecordQuery {
    /// Returns the query for the first page of a list.
    pub fn new(by: By) -> Self {
        Self { by, prefix: String::new(), after: None, limit: Limit::default() }
    }
}

/// A page of the read model, by address.
#[derive(Clone, Debug, PartialEq)]
pub struct RecordPage {
    /// The rows.
    pub rows: Vec<(Address, RecordRow)>,
    /// Whether more rows follow: the next page begins after the last row.
    pub has_more: bool,
}

/// The read model of records, wherever it is.
#[async_trait]
pub trait RecordPages: Send + Sync {
    /// Returns a page of a list, without records that the caller may not see.
    async fn records(&self, query: &RecordQuery, visible: Visible<'_>) -> Result<RecordPage>;
}

#[async_trait]
impl RecordPages for MemoryRows<RecordRow> {
    async fn records(&self, query: &RecordQuery, visible: Visible<'_>) -> Result<RecordPage> {
        let wanted = |address: &Address| address.is_well_formed() && visible(address);
        let (rows, has_more) =
            self.page(query.by.key(), &query.prefix, query.after.as_ref(), query.limit.get(), wanted);
        let rows = rows.into_iter().map(|(address, row)| (address, RecordRow::clone(&row))).collect();
        Ok(RecordPage { rows, has_more })
    }
}

#[cfg(feature = "table")]
#[async_trait]
impl RecordPages for crate::TableRows<RecordRow> {
    /// Sends one Query, unless a page has nothing that the caller may see.
    async fn records(&self, query: &RecordQuery, visible: Visible<'_>) -> Result<RecordPage> {
        let mut after = query.after.clone();
        loop {
            let limit = query.limit.get();
            let (mut rows, has_more) = self.page(query.by.key(), &query.prefix, after.as_ref(), limit).await?;
            let last = rows.last().map(|(address, _)| address.clone());
            rows.retain(|(address, _)| address.is_well_formed() && visible(address));
            match last {
                Some(last) if rows.is_empty() && has_more => after = Some(last),
                _ => return Ok(RecordPage { rows, has_more }),
            }
        }
    }
}
