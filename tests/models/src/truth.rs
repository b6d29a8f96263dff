//! What really happened to the calls, beside what their clients are answered, and the properties that both must have.

use stateright::{Model, Property};

use crate::network::{Answer, CallName, Task};

/// What really happened to a call.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Fate {
    /// How many times it was applied.
    pub applied: u8,
    /// How many writes of others came after it, as far as that matters.
    pub since: u8,
}

/// What a write finds and leaves: the `t` and the writer of the head, and the last token.
pub type Stored = (Option<(i64, CallName)>, i64);

/// Everything that has happened to the record.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Truth {
    fates: Vec<(CallName, Task, Fate)>,
    /// The client that was given the lease last; `None` after it was released.
    owner: Option<usize>,
    /// What went wrong on the way.
    wrong: Vec<Wrong>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Wrong {
    AppliedTwice,
    UnknownTooEarly,
    OvertakenPush,
    HeadDidNotGrow,
    TokenWentBack,
}

/// How many writes of others a call is remembered for.
pub const REMEMBERED: u8 = 4;

impl Truth {
    /// A call is sent for the first time.
    pub fn begin(&mut self, call: CallName, task: Task) {
        self.fates.push((call, task, Fate::default()));
        // The order in which calls were begun does not matter: one state for all of them.
        self.fates.sort_unstable_by_key(|(call, _, _)| *call);
    }

    /// What has happened to a call so far.
    pub fn fate(&self, call: CallName) -> Fate {
        self.fates.iter().find(|(of, _, _)| *of == call).map(|(_, _, fate)| fate.clone()).unwrap_or_default()
    }

    /// A request of a call was applied.
    pub fn note_write(&mut self, call: CallName, task: Task, before: Stored, after: Stored) {
        let mut wrong = Vec::new();
        for (of, its_task, fate) in &mut self.fates {
            if *of != call {
                // A head and a status each remember their own calls.
                fate.since = REMEMBERED.min(fate.since + u8::from(its_task.is_push() == task.is_push()));
                continue;
            }
            // A lease may be acquired or released again by a duplicate that nothing remembers any more.
            if fate.applied > 0 && (task.is_push() || fate.since < REMEMBERED) {
                wrong.push(Wrong::AppliedTwice);
            }
            *fate = Fate { applied: fate.applied.saturating_add(1), since: 0 };
        }
        let [t_before, t_after] = [&before, &after].map(|stored| stored.0.map_or(0, |(t, _)| t));
        if t_after < t_before || (task.is_push() && t_after == t_before) {
            wrong.push(Wrong::HeadDidNotGrow);
        }
        if after.1 < before.1 {
            wrong.push(Wrong::TokenWentBack);
        }
        match task {
            Task::Acquire { .. } => self.owner = Some(call.client),
            Task::Release { .. } => self.owner = None,
            Task::PushUnderLease if self.owner != Some(call.client) => wrong.push(Wrong::OvertakenPush),
            _ => {}
        }
        self.note(wrong);
    }

    /// A call is answered with an unknown outcome.
    pub fn note_unknown(&mut self, call: CallName, task: Task) {
        let fate = self.fate(call);
        if fate.applied > 0 && fate.since < task.shown_for() {
            self.note(vec![Wrong::UnknownTooEarly]);
        }
    }

    fn note(&mut self, wrong: Vec<Wrong>) {
        self.wrong.extend(wrong);
        self.wrong.sort_unstable();
        self.wrong.dedup();
    }

    fn is_right(&self, what: Wrong) -> bool {
        !self.wrong.contains(&what)
    }
}

/// A state that can be judged.
pub trait Judged {
    /// What has happened to the record.
    fn truth(&self) -> &Truth;

    /// Every answer that a client has received, with its call.
    fn answers(&self) -> impl Iterator<Item = (CallName, &Answer)>;
}

/// Whether a property holds of every answer together with the fate of its call.
fn of_answers(state: &impl Judged, holds: impl Fn(&Answer, &Fate) -> bool) -> bool {
    state.answers().all(|(call, answer)| holds(answer, &state.truth().fate(call)))
}

/// The properties of calls to one record, and what the tasks of the model must make possible.
pub fn properties<M>(tasks: &[Vec<Task>]) -> Vec<Property<M>>
where
    M: Model<State: Judged>,
{
    let mut properties = vec![
        Property::always("a call is applied at most once", |_: &M, state: &M::State| {
            state.truth().is_right(Wrong::AppliedTwice)
        }),
        Property::always("a rejected push was not applied, and never is", |_, state: &M::State| {
            let rejects = |answer: &Answer| matches!(answer, Answer::Rejected(_) | Answer::LeaseLost);
            of_answers(state, |answer, fate| !rejects(answer) || fate.applied == 0)
        }),
        Property::always("an updated call was applied", |_, state: &M::State| {
            let is_done = |answer: &Answer| matches!(answer, Answer::Updated | Answer::Held(_));
            of_answers(state, |answer, fate| !is_done(answer) || fate.applied > 0)
        }),
        Property::always("an applied push is unknown only after four writes of others", |_, state: &M::State| {
            state.truth().is_right(Wrong::UnknownTooEarly)
        }),
        Property::always("no push is applied under an overtaken token", |_, state: &M::State| {
            state.truth().is_right(Wrong::OvertakenPush)
        }),
        Property::always("watermarks and tokens only grow", |_, state: &M::State| {
            state.truth().is_right(Wrong::HeadDidNotGrow) && state.truth().is_right(Wrong::TokenWentBack)
        }),
        Property::always("every answer is one that the request can have", |_, state: &M::State| {
            of_answers(state, |answer, _| !matches!(answer, Answer::Strange(_)))
        }),
    ];
    let can = |is: fn(&Task) -> bool| tasks.iter().flatten().any(is);
    properties.push(Property::sometimes("a push is applied", |_, state: &M::State| {
        state.answers().any(|(_, answer)| *answer == Answer::Updated)
    }));
    if can(|task| matches!(task, Task::Push)) {
        properties.push(Property::sometimes("a push is rejected", |_, state: &M::State| {
            state.answers().any(|(_, answer)| matches!(answer, Answer::Rejected(_)))
        }));
    }
    if can(|task| matches!(task, Task::PushUnderLease)) {
        properties.push(Property::sometimes("a lease is lost", |_, state: &M::State| {
            // A client that was never given the lease gets this answer too, without a request.
            state.answers().any(|(call, answer)| *answer == Answer::LeaseLost && state.truth().has_begun(call))
        }));
    }
    properties
}

impl Truth {
    fn has_begun(&self, call: CallName) -> bool {
        self.fates.iter().any(|(of, _, _)| *of == call)
    }
}
