//! Bugs that are planted in what the store and the feed send, or are answered.

use crate::{
    expressions::{Attribute, Condition, Operand, Update},
    table::{Effect, Operation},
};

/// Where an item remembers the last calls.
const RING: [&str; 4] = ["request_id", "request_id_1", "request_id_2", "request_id_3"];

/// What is taken out of the requests or their replies, to show that the models notice its absence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fault {
    /// Nothing.
    None,
    /// The condition that the item does not remember the call.
    RingUnread,
    /// All calls that an item remembers.
    RingUnwritten,
    /// The two oldest of the calls that an item remembers.
    ShortRing,
    /// The conditions of the head's value.
    HeadUnread,
    /// The conditions of the lease in a push under one.
    LeaseUnread,
    /// The condition of the token in a push under a lease.
    TokenUnread,
    /// The next token: every lease has the first one.
    TokenKept,
    /// The doubt: a lost reply looks as if the service was never reached.
    NoDoubt,
    /// The identity: a call that is sent again has another id.
    FreshIds,
}

impl Fault {
    /// Removes from a request what this fault is about.
    pub(crate) fn strip(self, operation: &mut Operation) {
        let is_transaction = matches!(operation, Operation::Transact(_));
        let (conditions, changes): (&[&str], &[&str]) = match self {
            Self::RingUnread => (&RING, &[]),
            Self::RingUnwritten => (&[], &RING),
            Self::ShortRing => (&[], &["request_id_2", "request_id_3"]),
            Self::HeadUnread => (&["commit_id", "commit_t"], &[]),
            Self::LeaseUnread if is_transaction => (&["lease", "lease_token"], &[]),
            Self::TokenUnread if is_transaction => (&["lease_token"], &[]),
            _ => (&[], &[]),
        };
        for write in operation.writes() {
            write.condition = std::mem::take(&mut write.condition).without(conditions);
            if let Effect::Update(of) = &mut write.effect {
                of.retain(|change| !changes.contains(&change.attribute()));
                for change in of.iter_mut().filter(|change| change.attribute() == "lease_token") {
                    if let (Self::TokenKept, Update::Set(_, next)) = (self, change) {
                        *next = Operand::Value(Attribute::N(1));
                    }
                }
            }
        }
    }
}

/// What is taken out of the feed's requests, or done wrong by its consumers, to show that the models notice it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FeedFault {
    /// Nothing.
    None,
    /// The conditions that stream records are not in the feed.
    SeenUnread,
    /// The conditions of the counter and of the segment's position.
    CounterUnread,
    /// The condition of the counter where an epoch begins.
    EpochUnread,
    /// A checkpoint is saved before its batch.
    SavesFirst,
    /// A batch is passed over after a reply to one of its transactions was lost.
    PassesOver,
    /// A batch counts as done after its first transaction.
    FirstTransaction,
}

impl FeedFault {
    /// Removes from a request what this fault is about.
    pub(crate) fn strip(self, operation: &mut Operation) {
        let writes = operation.writes();
        let is_epoch = writes.len() == 1;
        for write in writes {
            let is_guard = write.key.0.starts_with("history#");
            let is_missed = match self {
                Self::SeenUnread => is_guard,
                Self::CounterUnread => !is_guard,
                Self::EpochUnread => is_epoch,
                Self::None | Self::SavesFirst | Self::PassesOver | Self::FirstTransaction => false,
            };
            if is_missed {
                write.condition = Condition::default();
            }
        }
    }
}
