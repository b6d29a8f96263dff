//! An archive of the change feed: every change that was ever in it, in a bucket or a directory.
//!
//! An [`Archiver`] writes what the feed holds as objects of JSON Lines, each with the changes that follow the object before it.
//! An [`Archive`] reads them; it is a [`ChangeFeed`](nameservice_model::ChangeFeed) itself. A [`LongFeed`] is a feed with its
//! archive behind it: what the feed no longer holds is read from the archive, so a reader, a history or a read model continues at
//! any position.
//!
//! **The objects.** `changes/<first>.jsonl`, where `<first>` is the position of the first change in 20 digits. A line is a
//! change as `GET /v1/changes` shows it. Objects are never changed or deleted by this crate.
//!
//! **Gapless and once.** An object begins where the one before it ends, and is put only if there is none of its name: of
//! several archivers one writes, and the others continue after what it has written. The name holds the first position alone
//! for that reason: with the last one in it, two archivers that read different stretches would write both.
//! There is no checkpoint that could fall behind: the objects are the checkpoint, so a crash at any moment neither loses nor
//! duplicates a change.
//!
//! **Gaps.** What had expired before it was archived is recorded as an object with one line, `{"gap":{"first":…,"last":…}}`. It
//! is put like any other object, so that all archivers and readers agree on it. Readers learn that these changes are gone.

mod archiver;
mod history;
mod long_feed;
mod objects;
mod segment;
mod store;
#[cfg(test)]
mod tests;

pub use archiver::{Archived, Archiver};
pub use long_feed::LongFeed;
pub use objects::Objects;
pub use segment::{Content, Segment};
pub use store::Archive;

/// The reason why a feed cannot be archived here, or an archive cannot be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ArchiveError {
    /// The feed is not the one that was archived.
    #[error("{archive} holds the changes of another feed (up to position {end}): archive this one elsewhere")]
    OtherFeed {
        /// The archive.
        archive: String,
        /// Its last position.
        end: u64,
    },
    /// The feed does not show all of its changes.
    #[error("the feed shows no change {0}: an archive needs a token that covers all addresses")]
    Sparse(u64),
    /// Changes had expired before they were archived, although there was an archive. It records them as a gap.
    #[error(
        "the feed has lost positions {first} to {last} before they were archived{}: the archive records the gap; copies, \
         read models and other archives of this feed may have it too",
        if *more > 0 { format!(" (and {more} later ones)") } else { String::new() }
    )]
    Lost {
        /// The first lost position.
        first: u64,
        /// The last of those that follow it.
        last: u64,
        /// How many others were lost after them.
        more: u64,
    },
    /// The feed does not show what it has.
    #[error("the feed shows nothing after position {0}, although it goes beyond it: nothing of that is archived")]
    Hidden(u64),
    /// An object is not one that an archiver has written.
    #[error("{object} is damaged: {reason}")]
    Damaged {
        /// The key of the object.
        object: String,
        /// What is wrong with it.
        reason: String,
    },
}
