//! A replica: the embedded state machine, fed by another's snapshots and pages of its changes. Pages arrive late, again, and out of
//! order; a snapshot is read while the upstream is written, so its records can be ahead of the position that it is given; the
//! replica crashes and starts over.

use std::{
    hash::{Hash, Hasher},
    sync::Arc,
};

use nameservice_embedded::state::{Action, Command, Now, Portable, Replicated, State};
use nameservice_model::{Call, Change, Record, Write};
use stateright::{Model, Property};

use crate::{
    machine::{address, call_of, creation, lease_request, push_of, shown},
    network::{CallName, Request, Task},
};

/// A bug that is planted in the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// None.
    None,
    /// A page begins one change too late, and hides it by numbering its changes again.
    Renumbers,
    /// A snapshot is given the position at its end in place of the one at its beginning.
    LatePosition,
}

/// A nameservice with some changes, and a replica of it.
#[derive(Clone, Debug)]
pub struct Replication {
    /// What the upstream shows at each position, from 0.
    shown: Arc<Vec<String>>,
    records: Arc<Vec<Vec<Record>>>,
    changes: Arc<Vec<Change>>,
    /// The most changes of a page.
    pub page: usize,
    /// The planted bug.
    pub fault: Fault,
}

/// The replica at one moment.
#[derive(Clone, Debug)]
pub struct Copy {
    state: State,
    dump: String,
    /// The records of a snapshot may be ahead of its position: up to this one, they show a later time.
    further: u64,
    /// It has shown something else than its upstream showed at the same position.
    is_wrong: bool,
}

impl PartialEq for Copy {
    fn eq(&self, other: &Self) -> bool {
        (&self.dump, self.further, self.is_wrong) == (&other.dump, other.further, other.is_wrong)
    }
}

impl Hash for Copy {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (&self.dump, self.further, self.is_wrong).hash(state);
    }
}

/// A step.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// Changes of the upstream arrive: this many after a position.
    Page {
        /// The position before the first.
        after: usize,
        /// How many.
        count: usize,
    },
    /// A snapshot arrives.
    Snapshot {
        /// The position it was given.
        position: usize,
        /// The position of the records in it.
        records: usize,
    },
    /// The replica starts again, with nothing.
    Crash,
}

impl Replication {
    /// Creates an upstream with this many pushes and leases, and pages of at most this many changes.
    pub fn new(writes: usize, page: usize, fault: Fault) -> Self {
        let mut upstream = State::new();
        let (mut all, mut shows, mut records) = (Vec::new(), vec![shown(&upstream)], vec![Vec::new()]);
        let mut known = None;
        for n in 0..=writes {
            let call = CallName { client: 0, n };
            let command = match n {
                0 => creation(),
                n if n % 3 == 2 => {
                    let request = lease_request(n);
                    Command::new(&call_of(call), Write::AcquireLease { address: address(), request })
                }
                _ => {
                    let request = Request { call, task: Task::Push, known, claim: None, began: 0 };
                    known = Some((request.new_t(), call));
                    Command::new(&call_of(call), Write::PushHead { address: address(), push: push_of(&request) })
                }
            };
            // Far enough apart for a lease to expire.
            let applied = upstream.apply(&command, Now::from_millis(5_000 * n as i64));
            // A command is one write for readers: between its changes nobody sees the upstream.
            let one_by_one = applied.changes.iter().map(|change| change.position);
            for position in one_by_one {
                let is_last = position == upstream.position();
                shows.push(if is_last { shown(&upstream) } else { String::new() });
                records.push(if is_last { records_of(&upstream) } else { Vec::new() });
            }
            all.extend(applied.changes);
        }
        Self { shown: Arc::new(shows), records: Arc::new(records), changes: Arc::new(all), page, fault }
    }

    /// Whether a reader could see the upstream at this position.
    fn is_visible(&self, position: usize) -> bool {
        !self.shown[position].is_empty()
    }

    fn check(&self, copy: &mut Copy) {
        let position = copy.state.position();
        let is_caught_up = position >= copy.further;
        let at = usize::try_from(position).unwrap_or(usize::MAX);
        if is_caught_up && self.shown.get(at).is_none_or(|shows| !shows.is_empty() && *shows != shown(&copy.state)) {
            copy.is_wrong = true;
        }
    }
}

fn apply(copy: &mut Copy, action: Action) {
    // Changes that do not follow are rejected, and leave the state as it is.
    let _ = copy.state.apply(&Command::new(&Call::fresh(), action), Now::from_millis(0));
    copy.dump = copy.state.dump();
}

fn records_of(state: &State) -> Vec<Record> {
    // As the upstream's readers see it: with its lease in its status, and without tokens and calls.
    let model = |portable: Portable| {
        let mut record = portable.record;
        if let (Some(lease), Some(status)) = (portable.lease, &mut record.status.payload) {
            let mut members = serde_json::to_value(&lease).expect("a lease has a JSON form");
            let members = members.as_object_mut().expect("it is an object");
            members.remove("name");
            status.meta.insert(lease.name.as_str().to_owned(), serde_json::Value::Object(members.clone()));
        }
        record
    };
    state.portable(&address()).map(model).into_iter().collect()
}

impl Model for Replication {
    type State = Copy;
    type Action = Step;

    fn init_states(&self) -> Vec<Copy> {
        let state = State::new();
        let dump = state.dump();
        vec![Copy { state, dump, further: 0, is_wrong: false }]
    }

    fn actions(&self, _: &Copy, steps: &mut Vec<Step>) {
        let last = self.changes.len();
        for after in 0..last {
            for count in 1..=self.page.min(last - after) {
                steps.push(Step::Page { after, count });
            }
        }
        for position in (0..=last).filter(|position| self.is_visible(*position)) {
            for records in (position..=last).filter(|records| self.is_visible(*records)) {
                steps.push(Step::Snapshot { position, records });
            }
        }
        steps.push(Step::Crash);
    }

    fn next_state(&self, copy: &Copy, step: Step) -> Option<Copy> {
        let mut next = copy.clone();
        match step {
            Step::Page { after, count } => {
                let mut page = self.changes[after..after + count].to_vec();
                if self.fault == Fault::Renumbers && page.len() > 1 {
                    page.remove(0);
                    page.iter_mut().for_each(|change| change.position -= 1);
                }
                let page: Vec<Replicated> = page.into_iter().map(Replicated::from).collect();
                apply(&mut next, Action::Replicate(page));
            }
            Step::Snapshot { position, records } => {
                let given = if self.fault == Fault::LatePosition { records.max(position) } else { position };
                let read = if self.fault == Fault::LatePosition { position } else { records };
                let records = self.records[read].clone();
                next.further = if read > given { read as u64 } else { 0 };
                apply(&mut next, Action::Adopt { records, position: given as u64 });
            }
            Step::Crash => return self.init_states().pop(),
        }
        if next.state.position() >= next.further {
            next.further = 0;
        }
        self.check(&mut next);
        (next != *copy).then_some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::<Self>::always("the replica shows what its upstream showed at its position", |_, copy| {
                !copy.is_wrong
            }),
            Property::<Self>::always("the replica is never ahead of its upstream", |model, copy| {
                copy.state.position() <= model.changes.len() as u64
            }),
            Property::<Self>::sometimes("the replica catches up", |model, copy| {
                copy.state.position() == model.changes.len() as u64
            }),
        ]
    }
}
