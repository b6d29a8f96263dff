//! The embedded backend: its state machine, and a replica that takes every change of its feed.
//!
//! The clients are the HTTP client's: after a lost reply they take a rejection for the answer only if four writes of others cannot
//! have come between.

use std::{
    hash::{Hash, Hasher},
    mem::discriminant,
};

use nameservice_embedded::state::{Action, Applied, Command, Now, Portable, Replicated, State};
use nameservice_model::{
    Address, Call, ContentId, Head, HeadPush, LeaseClaim, LeaseName, LeaseRequest, Leased, NewHead, NewLedger,
    PushOutcome, Released, RequestId, Write, Written,
};

use crate::network::{Answer, Arrival, CallName, Fault, Request, Service, Task};

/// How many writes of others a call is remembered for, as the HTTP client counts them.
const REMEMBERED: i64 = 4;

/// The state machine, with one ledger in it.
#[derive(Clone, Debug)]
pub struct Machine {
    state: State,
    /// The replica that takes its changes.
    replica: State,
    is_explained: bool,
    fault: Fault,
    /// The canonical form of the state: two machines are one if it is the same.
    dump: String,
}

impl PartialEq for Machine {
    fn eq(&self, other: &Self) -> bool {
        self.dump == other.dump && self.is_explained == other.is_explained
    }
}

impl Eq for Machine {}

impl Hash for Machine {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.dump.hash(state);
        self.is_explained.hash(state);
    }
}

impl Machine {
    fn apply(&mut self, command: &Command, now: i64) -> (Applied, bool) {
        let before = self.state.position();
        let applied = self.state.apply(command, Now::from_millis(now));
        let wrote = !applied.changes.is_empty();
        let dense = (before + 1..).zip(&applied.changes).all(|(position, change)| change.position == position)
            && self.state.position() == before + applied.changes.len() as u64;
        let mut changes: Vec<Replicated> = applied.changes.iter().cloned().map(Replicated::from).collect();
        if self.fault == Fault::LostChange && before > 2 {
            changes.pop();
        }
        let taken =
            self.replica.apply(&Command::new(&Call::fresh(), Action::Replicate(changes)), Now::from_millis(now));
        self.is_explained &= dense && taken.outcome.is_ok() && shown(&self.replica) == shown(&self.state);
        self.dump = self.state.dump();
        (applied, wrote)
    }

    fn record(&self) -> Option<Portable> {
        self.state.portable(&address())
    }
}

/// What readers see of a state: its position, and its record without the time of the last write, which even a write that changes
/// nothing sets.
pub fn shown(state: &State) -> String {
    let record = state.portable(&address()).map(|mut portable| {
        portable.record.updated_at = jiff::Timestamp::UNIX_EPOCH;
        (portable.record, portable.lease)
    });
    format!("{} {record:?}", state.position())
}

/// The ledger.
pub fn address() -> Address {
    Address::parse("mydb").expect("it is an address")
}

/// The command that creates the ledger.
pub fn creation() -> Command {
    let call = Call::with_id(RequestId::from_hashes([255; 16], [0; 8]));
    Command::new(&call, Write::CreateLedger(NewLedger::at(address())))
}

/// The identity of a call, the same in every attempt.
pub fn call_of(name: CallName) -> Call {
    let (client, n) = (u8::try_from(name.client).expect("it is small"), u8::try_from(name.n).expect("it is small"));
    let mut key = [0; 16];
    (key[0], key[1]) = (client, n);
    Call::with_id(RequestId::from_hashes(key, [0; 8]))
}

/// The id of the head that a call brings.
fn id_of(call: CallName) -> ContentId {
    ContentId::stored(format!("{}.{}", call.client, call.n))
}

/// The call that brought a head.
pub fn writer_of(head: &Head) -> Option<(i64, CallName)> {
    Some((head.v, CallName::read(head.payload.as_ref()?.as_str())?))
}

/// The push of a request.
pub fn push_of(request: &Request) -> HeadPush {
    let new = NewHead::new(id_of(request.call), request.new_t()).expect("it is a head");
    let push = match (request.task, request.known) {
        (Task::PushOlder, _) => HeadPush::monotonic(new),
        (_, Some((t, by))) => HeadPush::cas(Head::new(t, id_of(by)), new),
        (_, None) => HeadPush::cas(Head::unborn(), new),
    };
    match request.claim {
        Some(claim) => push.under(claim_of(claim)).expect("it expects a record"),
        None => push,
    }
}

/// The claim of a holder's token.
pub fn claim_of((holder, token): (usize, i64)) -> LeaseClaim {
    LeaseClaim::new(lease_name(), holder_name(holder), token).expect("it is a claim")
}

/// The request of a lease of one second.
pub fn lease_request(holder: usize) -> LeaseRequest {
    let request = LeaseRequest::new(lease_name(), holder_name(holder)).and_then(|request| request.with_ttl_seconds(1));
    request.expect("it is a request")
}

fn lease_name() -> LeaseName {
    LeaseName::parse("index_lock").expect("it is a name")
}

fn holder_name(holder: usize) -> String {
    format!("holder {holder}")
}

/// The rule of the HTTP client: after an attempt without an answer, a rejection counts only if the item would still show that the
/// attempt was applied.
pub fn unless_hidden(answer: Answer, request: &Request, in_doubt: bool) -> Answer {
    match answer {
        Answer::Rejected(Some((t, _))) if in_doubt && t >= request.new_t() + REMEMBERED => Answer::Unknown,
        // The lease had not expired yet when the earlier attempt began: that attempt may be under way, or applied and forgotten.
        Answer::LeaseLost if in_doubt && request.task.is_push() => Answer::Unknown,
        answer => answer,
    }
}

/// The answer for the outcome of a push.
pub fn answer_of(outcome: PushOutcome<ContentId>) -> Answer {
    match outcome {
        PushOutcome::Updated { .. } => Answer::Updated,
        PushOutcome::Stale { actual } | PushOutcome::Conflict { actual: Some(actual) } => {
            Answer::Rejected(writer_of(&actual))
        }
        PushOutcome::LeaseLost { .. } => Answer::LeaseLost,
        other => Answer::Strange(format!("{other:?}")),
    }
}

/// The answer for the outcome of a lease.
pub fn leased(outcome: Leased) -> Answer {
    match outcome {
        Leased::Held(held) => Answer::Held(held.token),
        Leased::Busy(_) => Answer::Busy,
        other => Answer::Strange(format!("{other:?}")),
    }
}

impl Service for Machine {
    fn new(fault: Fault) -> Self {
        let (state, replica) = (State::new(), State::new());
        let mut machine = Self { state, replica, is_explained: true, fault, dump: String::new() };
        let (created, _) = machine.apply(&creation(), 0);
        assert!(created.outcome.is_ok(), "{:?}", created.outcome);
        machine
    }

    fn take(&mut self, request: &Request, now: i64, in_doubt: bool) -> Arrival {
        let address = address();
        let action = match request.task {
            Task::Push | Task::PushOlder | Task::PushUnderLease => Write::PushHead { address, push: push_of(request) },
            Task::Acquire { holder } => Write::AcquireLease { address, request: lease_request(holder) },
            Task::Release { .. } => {
                let claim = claim_of(request.claim.expect("only a holder releases"));
                Write::ReleaseLease { address, claim }
            }
        };
        let (applied, wrote) = self.apply(&Command::new(&call_of(request.call), action), now);
        let answer = match applied.outcome {
            Ok(Some(Written::Head(outcome))) => answer_of(outcome),
            Ok(Some(Written::Leased(outcome))) => leased(outcome),
            Ok(Some(Written::Released(Released::Released))) => Answer::Released,
            Ok(Some(Written::Released(Released::Lost { .. }))) => Answer::LeaseLost,
            Err(nameservice_model::Error::OutcomeUnknown { .. }) => Answer::Unknown,
            other => Answer::Strange(format!("{:?}", other.map(|outcome| discriminant(&outcome)))),
        };
        Arrival { answer: unless_hidden(answer, request, in_doubt), wrote }
    }

    fn head(&self) -> Option<(i64, CallName)> {
        writer_of(&self.record()?.record.head?)
    }

    fn token(&self) -> i64 {
        self.record().map_or(0, |record| record.token)
    }

    fn is_explained(&self) -> bool {
        self.is_explained
    }
}
