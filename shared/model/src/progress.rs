/// The progress of a long operation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// How much is done: records, rows or bytes, depending on the operation.
    pub done: u64,
    /// How much there is to do, if that is known.
    pub total: Option<u64>,
}

/// Receives the progress of a long operation, from time to time.
pub type Observer<'a> = &'a (dyn Fn(Progress) + Send + Sync);
