//! The limit on the size of an answer.

use std::sync::atomic::{AtomicUsize, Ordering};

use async_graphql::Result;
use nameservice_http::{
    Problem,
    page::{MAX_PAGE_BYTES, json_bytes},
};
use serde::Serialize;

use crate::errors::problem;

/// How many more bytes an answer may hold. An answer is at most as large as a page of a list.
pub(crate) struct Budget(AtomicUsize);

impl Default for Budget {
    fn default() -> Self {
        Self(AtomicUsize::new(MAX_PAGE_BYTES))
    }
}

impl Budget {
    /// Reserves space for a value, and returns whether it fits. A value that does not fit reserves nothing.
    fn admits(&self, value: &impl Serialize) -> Result<bool> {
        let bytes = json_bytes(value).map_err(problem)?;
        let left = |left: usize| left.checked_sub(bytes);
        Ok(self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, left).is_ok())
    }

    /// Reserves space for a value that the answer must contain.
    pub(crate) fn take(&self, value: &impl Serialize) -> Result<()> {
        if self.admits(value)? {
            return Ok(());
        }
        Err(problem(Problem::answer_too_large("request less, or split it into several requests")))
    }

    /// Returns as many entries of a page as fit, at least one, and whether any were left out.
    pub(crate) fn fit<T, V: Serialize>(&self, page: Vec<T>, value: impl Fn(&T) -> &V) -> Result<(Vec<T>, bool)> {
        let mut kept = Vec::with_capacity(page.len());
        for entry in page {
            if kept.is_empty() {
                self.take(value(&entry))?;
            } else if !self.admits(value(&entry))? {
                return Ok((kept, true));
            }
            kept.push(entry);
        }
        Ok((kept, false))
    }
}
