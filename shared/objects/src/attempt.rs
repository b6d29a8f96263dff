//! What is known of a write that has failed.

use std::sync::{
    Arc,
    atomic::{AtomicU16, Ordering::SeqCst},
};

/// The states besides a status of HTTP.
const NOT_SENT: u16 = 0;
const NO_ANSWER: u16 = 1;

/// Follows one write. The buckets of this crate report to it if they repeat no request and the write has its
/// [extensions](Self::extensions): the error alone does not say whether the write may have been applied.
#[derive(Clone, Debug, Default)]
pub struct Attempt(Arc<AtomicU16>);

/// What came back for a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Nothing was sent: there were no credentials, or no connection.
    NotSent,
    /// It was sent, and not answered.
    Lost,
    /// The status of HTTP.
    Status(u16),
}

impl Answer {
    /// Returns whether the write was certainly not applied: it was not sent, or the store has rejected it. A gateway that answers
    /// 408, or 500 and above except 501, may have passed it on.
    pub const fn is_definite(self) -> bool {
        match self {
            Self::NotSent => true,
            Self::Lost => false,
            Self::Status(status) => matches!(status, 300..=407 | 409..=499 | 501),
        }
    }
}

impl Attempt {
    /// Returns the extensions of a write that this follows.
    pub fn extensions(&self) -> http::Extensions {
        let mut extensions = http::Extensions::new();
        extensions.insert(self.clone());
        extensions
    }

    /// Returns what came back.
    pub fn answer(&self) -> Answer {
        match self.0.load(SeqCst) {
            NOT_SENT => Answer::NotSent,
            NO_ANSWER => Answer::Lost,
            status => Answer::Status(status),
        }
    }

    pub(crate) fn note_sent(&self) {
        self.0.store(NO_ANSWER, SeqCst);
    }

    pub(crate) fn note_not_sent(&self) {
        self.0.store(NOT_SENT, SeqCst);
    }

    pub(crate) fn note_answer(&self, status: http::StatusCode) {
        self.0.store(status.as_u16(), SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_write_that_was_rejected_or_not_sent_was_certainly_not_applied() {
        let attempt = Attempt::default();
        let shared = attempt.extensions().get::<Attempt>().cloned().unwrap();
        assert_eq!(attempt.answer(), Answer::NotSent);
        shared.note_sent();
        assert_eq!(attempt.answer(), Answer::Lost);
        shared.note_answer(http::StatusCode::BAD_REQUEST);
        assert_eq!(attempt.answer(), Answer::Status(400));
        shared.note_not_sent();
        assert!(attempt.answer().is_definite() && !Answer::Lost.is_definite());
        for (status, is_definite) in
            [(200, false), (301, true), (400, true), (408, false), (429, true), (500, false), (501, true), (503, false)]
        {
            assert_eq!(Answer::Status(status).is_definite(), is_definite, "{status}");
        }
    }
}
