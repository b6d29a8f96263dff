//! Clients and a network that loses requests and replies, delays both, and delivers a request again at any time.
//!
//! A client has a few things to do, one call after the other. A request that was sent stays under way forever: each arrival is
//! a first attempt, a retry, or a late duplicate, and its reply is received or lost. After an attempt without an answer the client
//! is in doubt, as the HTTP client is.

use std::{fmt::Debug, hash::Hash, marker::PhantomData};

use stateright::{Model, Property};

use crate::truth::{Judged, REMEMBERED, Truth, properties};

/// A call: its client, and its number among that client's calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CallName {
    /// The client.
    pub client: usize,
    /// Counted from 0.
    pub n: usize,
}

impl CallName {
    /// Reads the id of a head that a call has brought.
    pub fn read(id: &str) -> Option<Self> {
        let (client, n) = id.split_once('.')?;
        Some(Self { client: client.parse().ok()?, n: n.parse().ok()? })
    }
}

/// What a client has to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Task {
    /// Push a head, expecting the one that the client knows.
    Push,
    /// Push a newer head than the one that the client knows, without an expectation.
    PushOlder,
    /// Push a newer head under the lease that the client was given last.
    PushUnderLease,
    /// Acquire the lease under the holder's name of this number.
    Acquire {
        /// Two clients with one number are one holder, started twice.
        holder: usize,
    },
    /// Release the lease that the client was given last.
    Release {
        /// The number under which it was acquired.
        holder: usize,
    },
}

impl Task {
    /// For how many writes of others an applied call is still answered as applied. Of a lease, the token that it was given is known
    /// only until the next one.
    pub(crate) fn shown_for(self) -> u8 {
        if self.is_push() { REMEMBERED } else { 1 }
    }

    pub(crate) fn is_push(self) -> bool {
        matches!(self, Self::Push | Self::PushOlder | Self::PushUnderLease)
    }
}

/// A request, the same bytes in every attempt.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Request {
    /// The call that it belongs to.
    pub call: CallName,
    /// What it does.
    pub task: Task,
    /// The `t` and the writer of the head that the client knows; `None` of the unborn one.
    pub known: Option<(i64, CallName)>,
    /// The holder and the token of the client's lease.
    pub claim: Option<(usize, i64)>,
    /// The service's time when it began, in milliseconds.
    pub began: i64,
}

impl Request {
    /// The `t` of the head that it pushes.
    pub fn new_t(&self) -> i64 {
        self.known.map_or(1, |(t, _)| t + 1)
    }
}

/// What a client is answered.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Answer {
    /// The push is applied.
    Updated,
    /// The push was not applied: this head is stored, by that call; `None` for the unborn one.
    Rejected(Option<(i64, CallName)>),
    /// The push was not applied: its lease is not the current one.
    LeaseLost,
    /// The lease is held, with this token.
    Held(i64),
    /// Another holder has it.
    Busy,
    /// The lease is released.
    Released,
    /// It may have been applied or not.
    Unknown,
    /// An answer that the service does not have for this request.
    Strange(String),
}

/// The result of a request that arrives.
#[derive(Clone, Debug)]
pub struct Arrival {
    /// The answer, if it is received.
    pub answer: Answer,
    /// Whether something was written now.
    pub wrote: bool,
}

/// The service behind the network: one record.
pub trait Service: Clone + Debug + Eq + Hash + Send + Sync + 'static {
    /// A record without data.
    fn new(fault: Fault) -> Self;
    /// Takes a request at a time, in milliseconds; `in_doubt` where an earlier attempt had no answer.
    fn take(&mut self, request: &Request, now: i64, in_doubt: bool) -> Arrival;
    /// The stored head: its `t` and the call that wrote it.
    fn head(&self) -> Option<(i64, CallName)>;
    /// The last token that was given.
    fn token(&self) -> i64;
    /// Whether the changes that were reported so far are dense, and explain the record.
    fn is_explained(&self) -> bool;
}

/// A bug that is planted in the model, to show that it is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fault {
    /// None.
    None,
    /// A retry has a request id of its own.
    FreshIds,
    /// A lost reply is forgotten.
    NoDoubt,
    /// A push does not carry its lease.
    NoLease,
    /// A push claims the token that is current, and not the one that its client was given.
    AnyToken,
    /// A change is left out of the feed.
    LostChange,
}

/// A client.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Client {
    /// The calls it has begun.
    begun: usize,
    /// Whether it waits for an answer to the last.
    waits: bool,
    /// Whether an attempt of the last was not answered.
    in_doubt: bool,
    /// The head that it knows.
    known: Option<(i64, CallName)>,
    /// The holder and the token that it was given last.
    claim: Option<(usize, i64)>,
    /// Its answers.
    answers: Vec<Answer>,
}

/// Everything at one moment.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct World<S> {
    service: S,
    now: i64,
    clock_steps: usize,
    clients: Vec<Client>,
    /// The requests that were sent; they stay under way forever.
    sent: Vec<Request>,
    truth: Truth,
}

/// A step.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// A client begins its next call.
    Begin(usize),
    /// A request arrives.
    Arrive(CallName, Reply),
    /// An attempt of a client's last call is lost on the way.
    LoseRequest(usize),
    /// The service's clock is set, in milliseconds.
    SetClock(i64),
}

/// Whether a reply is received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reply {
    /// It is received.
    Received,
    /// It is lost, or nobody waits for it.
    Lost,
}

/// Clients with their tasks, before a service.
#[derive(Clone, Debug)]
pub struct Network<S> {
    /// What each client has to do.
    pub tasks: Vec<Vec<Task>>,
    /// How many times the clock is set.
    pub clock_steps: usize,
    /// The planted bug.
    pub fault: Fault,
    service: PhantomData<S>,
}

/// The times that the clock is set to, in milliseconds: a lease lasts a second.
pub const TIMES: [i64; 3] = [0, 900, 5_000];

impl<S: Service> Network<S> {
    /// Creates clients with these tasks, a clock that is set this many times, and a bug.
    pub fn new(tasks: &[&[Task]], clock_steps: usize, fault: Fault) -> Self {
        Self { tasks: tasks.iter().map(|tasks| tasks.to_vec()).collect(), clock_steps, fault, service: PhantomData }
    }

    fn begin(&self, world: &mut World<S>, index: usize) {
        let (service, client) = (&world.service, &mut world.clients[index]);
        let task = self.tasks[index][client.begun];
        let call = CallName { client: index, n: client.begun };
        client.begun += 1;
        client.waits = true;
        client.in_doubt = false;
        let claim = match task {
            Task::PushUnderLease | Task::Release { .. } => client.claim,
            _ => None,
        };
        let claim = match self.fault {
            Fault::NoLease if task == Task::PushUnderLease => None,
            Fault::AnyToken => claim.map(|(holder, _)| (holder, service.token())),
            _ => claim,
        };
        // A client without a lease has nothing to do under one.
        let needs_claim = matches!(task, Task::PushUnderLease | Task::Release { .. });
        if needs_claim && client.claim.is_none() {
            client.waits = false;
            client.answers.push(Answer::LeaseLost);
            return;
        }
        world.sent.push(Request { call, task, known: client.known, claim, began: world.now });
        world.truth.begin(call, task);
    }

    fn arrive(&self, world: &mut World<S>, call: CallName, reply: Reply) {
        let Some(request) = world.sent.iter().find(|request| request.call == call).cloned() else { return };
        let client = &world.clients[call.client];
        let awaited = client.waits && client.begun == call.n + 1;
        let in_doubt = awaited && client.in_doubt && self.fault != Fault::NoDoubt;
        let before = (world.service.head(), world.service.token());
        let mut sent = request.clone();
        if self.fault == Fault::FreshIds && client.in_doubt {
            // A number beyond the calls of any client.
            sent.call.n += 100;
        }
        let Arrival { answer, wrote } = world.service.take(&sent, world.now, in_doubt);
        if wrote {
            let after = (world.service.head(), world.service.token());
            world.truth.note_write(call, request.task, before, after);
        }
        let client = &mut world.clients[call.client];
        match reply {
            Reply::Lost => client.in_doubt |= awaited,
            Reply::Received => {
                match &answer {
                    Answer::Unknown => world.truth.note_unknown(call, request.task),
                    Answer::Rejected(actual) => client.known = *actual,
                    Answer::Held(token) => {
                        if let Task::Acquire { holder } = request.task {
                            client.claim = Some((holder, *token));
                        }
                    }
                    Answer::Updated => client.known = Some((request.new_t(), request.call)),
                    _ => {}
                }
                client.answers.push(answer);
                client.waits = false;
                client.in_doubt = false;
            }
        }
    }
}

impl<S> Judged for World<S> {
    fn truth(&self) -> &Truth {
        &self.truth
    }

    fn answers(&self) -> impl Iterator<Item = (CallName, &Answer)> {
        self.clients.iter().enumerate().flat_map(|(client, of)| {
            of.answers.iter().enumerate().map(move |(n, answer)| (CallName { client, n }, answer))
        })
    }
}

impl<S: Service> Model for Network<S> {
    type State = World<S>;
    type Action = Step;

    fn init_states(&self) -> Vec<World<S>> {
        vec![World {
            service: S::new(self.fault),
            now: TIMES[0],
            clock_steps: 0,
            clients: vec![Client::default(); self.tasks.len()],
            sent: Vec::new(),
            truth: Truth::default(),
        }]
    }

    fn actions(&self, world: &World<S>, steps: &mut Vec<Step>) {
        for (index, client) in world.clients.iter().enumerate() {
            if !client.waits && client.begun < self.tasks[index].len() {
                steps.push(Step::Begin(index));
            }
            if client.waits && !client.in_doubt {
                steps.push(Step::LoseRequest(index));
            }
        }
        for request in &world.sent {
            let client = &world.clients[request.call.client];
            if client.waits && client.begun == request.call.n + 1 {
                steps.push(Step::Arrive(request.call, Reply::Received));
            }
            steps.push(Step::Arrive(request.call, Reply::Lost));
        }
        if world.clock_steps < self.clock_steps {
            steps.extend(TIMES.into_iter().filter(|time| *time != world.now).map(Step::SetClock));
        }
    }

    fn next_state(&self, world: &World<S>, step: Step) -> Option<World<S>> {
        let mut next = world.clone();
        match step {
            Step::Begin(client) => self.begin(&mut next, client),
            Step::Arrive(call, reply) => self.arrive(&mut next, call, reply),
            Step::LoseRequest(client) => next.clients[client].in_doubt = true,
            Step::SetClock(now) => {
                next.now = now;
                next.clock_steps += 1;
            }
        }
        // The order in which requests were sent does not matter: one state for all of them.
        next.sent.sort_unstable_by_key(|request| (request.call.client, request.call.n));
        (next != *world).then_some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        let mut properties = properties(&self.tasks);
        properties.push(Property::<Self>::always("changes are dense, and explain the record", |_, world| {
            world.service.is_explained()
        }));
        properties
    }
}
