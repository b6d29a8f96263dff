use nameservice_model::{Cursor, Hit, InvalidSearch, Limit, Page, RecordKind, SearchQuery, SearchWords};

use crate::{Error, Nameservice, Result, builder::awaited};

/// A search: awaited, it returns a page of hits, best first.
///
/// ```
/// # async fn example() -> Result<(), nameservice::Error> {
/// let ns = nameservice::connect("memory:").await?;
/// ns.create_ledger("library/old-books").await?;
/// ns.create_ledger("library/books").await?;
/// let page = ns.search("books lib").limit(nameservice::Limit::new(10)?).await?;
/// let found: Vec<&str> = page.items.iter().map(|hit| hit.address.as_str()).collect();
/// assert_eq!(found, ["library/books:main", "library/old-books:main"]);
/// # Ok(()) }
/// # #[cfg(feature = "embedded")]
/// # tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap().block_on(example()).unwrap();
/// ```
#[derive(Clone, Debug)]
#[must_use = "nothing is searched before it is awaited"]
pub struct Search {
    names: Nameservice,
    query: Result<SearchQuery, InvalidSearch>,
}

impl Search {
    pub(crate) fn new(names: Nameservice, words: &str) -> Self {
        Self { names, query: SearchWords::parse(words).map(SearchQuery::new) }
    }

    fn with(mut self, change: impl FnOnce(&mut SearchQuery)) -> Self {
        if let Ok(query) = &mut self.query {
            change(query);
        }
        self
    }

    /// Finds only records of this kind.
    pub fn kind(self, kind: RecordKind) -> Self {
        self.with(|query| query.kind = Some(kind))
    }

    /// Finds only graph sources of this type.
    pub fn source_type(self, source_type: impl Into<String>) -> Self {
        self.with(|query| query.source_type = Some(source_type.into()))
    }

    /// Finds only records in this state.
    pub fn state(self, state: impl Into<String>) -> Self {
        self.with(|query| query.state = Some(state.into()))
    }

    /// Returns at most this many hits; by default 100.
    pub fn limit(self, limit: Limit) -> Self {
        self.with(|query| query.limit = limit)
    }

    /// Continues after the page that ended with this cursor.
    pub fn after(self, cursor: Cursor) -> Self {
        self.with(|query| query.cursor = Some(cursor))
    }
}

awaited!(Search -> Page<Hit>, self => {
    let query = self.query.map_err(Error::Search)?;
    Ok(self.names.backend().search(&query, &|_| true).await?)
});
