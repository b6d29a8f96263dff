//! How large an answer may become.

use std::sync::atomic::{AtomicUsize, Ordering};

use async_graphql::Result;
use nameservice_http::{
    Problem,
    page::{MAX_PAGE_BYTES, json_bytes},
};
use serde::Serialize;

use crate::errors::problem;

/// How many bytes an answer may still hold. It is as large as a page of a list at most.
pub(crate) struct Budget(AtomicUsize);

impl Default for Budget {
    fn default() -> Self {
        Self(AtomicUsize::new(MAX_PAGE_BYTES))
    }
}

impl Budget {
    /// Whether a value fits. One that does not takes nothing.
    fn admits(&self, value: &impl Serialize) -> Result<bool> {
        let bytes = json_bytes(value).map_err(problem)?;
        let left = |left: usize| left.checked_sub(bytes);
        Ok(self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, left).is_ok())
    }

    /// Takes a value that the answer cannot do without.
    pub(crate) fn take(&self, value: &impl Serialize) -> Result<()> {
        if self.admits(value)? {
            return Ok(());
        }
        Err(problem(Problem::answer_too_large("ask for less, or in several requests")))
    }

    /// Returns as many entries of a page as fit, at least one, and whether some do not.
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
