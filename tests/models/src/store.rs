//! The DynamoDB backend: the store's own code, between clients that repeat their calls and a table behind a lossy network.
//!
//! A call runs until it has sent a request. The request arrives, or it is lost, or its reply is; whatever was sent may arrive again at any
//! time. The function that runs a call may die, and the client then sends the call again, with the same id. The client judges
//! as the HTTP client does.

use std::{
    collections::{BTreeSet, HashMap},
    fmt,
    sync::{Arc, Mutex},
    time::{Duration, UNIX_EPOCH},
};

use aws_sdk_dynamodb::Client as Dynamo;
use nameservice_model::{
    Call, Error, LeasePublisher as _, Publisher as _, PushOutcome, RefPublisher as _, Released, RequestId,
};
use nameservice_store::Store;
use stateright::{Model, Property};

use crate::{
    expressions::{Attribute, Item},
    faults::Fault,
    machine::{address, answer_of, call_of, claim_of, lease_request, leased, push_of, unless_hidden},
    network::{Answer, CallName, Request, TIMES, Task},
    shared::Shared,
    table::{Operation, Reply, Table},
    truth::{Judged, Stored, Truth, properties},
    wire::{Asked, Next, RETRIES, Sent, run},
};

/// The names of the table's key.
const KEYS: [&str; 2] = ["pk", "sk"];

/// How the record was created.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Origin {
    /// By this service.
    Ours,
    /// By another server, which has left only the meta item: everything else is unborn.
    Meta,
}

/// Clients with their tasks, before a store.
#[derive(Clone)]
pub struct Calls {
    /// What each client has to do.
    pub tasks: Vec<Vec<Task>>,
    /// How many times the clock is set.
    pub clock_steps: usize,
    /// How many times a call is sent again because nothing was heard of it.
    pub repeats: u8,
    /// Whether DynamoDB remembers the tokens of transactions, as it does for ten minutes.
    pub remembers_tokens: bool,
    /// How the record was created.
    pub origin: Origin,
    /// The planted bug.
    pub fault: Fault,
    runs: Arc<Runs>,
}

impl fmt::Debug for Calls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} with {:?}", self.tasks, self.fault)
    }
}

/// A call, and the replies that its code has had so far.
type Run = (Request, Vec<Reply>);

/// How far a run has come, and the request that it waits for, as it was sent.
type Reached = (Next<Answer>, Option<Sent>);

/// How far runs of the code have come: equal runs have equal results.
#[derive(Default)]
struct Runs(Mutex<HashMap<Run, Reached>>);

/// A client.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Client {
    /// The calls it has begun.
    begun: usize,
    /// The last call, while it has no answer.
    waits: Option<Waiting>,
    /// The head that it knows.
    known: Option<(i64, CallName)>,
    /// The holder and the token that it was given last.
    claim: Option<(usize, i64)>,
    /// Its answers.
    answers: Vec<Answer>,
}

/// A call under way.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Waiting {
    request: Request,
    /// How many times the call was sent before this.
    repeats: u8,
    /// The replies of this run so far.
    replies: Vec<Reply>,
    /// The request that it waits for.
    asked: Asked,
}

/// A request that was sent and whose reply nobody waits for (any more): it is under way forever.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct UnderWay {
    call: CallName,
    task: Task,
    /// Of a transaction: how many times its call was sent before, which is part of its token.
    repeats: Option<u8>,
    asked: Asked,
}

impl UnderWay {
    fn new(Waiting { request, repeats, asked, .. }: &Waiting) -> Self {
        let repeats = asked.token.map(|_| *repeats);
        Self { call: request.call, task: request.task, repeats, asked: asked.clone() }
    }

    fn token(&self) -> Option<Token> {
        Some((self.call, self.repeats?, self.asked.token?))
    }
}

/// A transaction's token: its call, how many times that was sent before, and the token's number in the run.
type Token = (CallName, u8, usize);

/// Everything at one moment.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct World {
    table: Table<Token>,
    now: i64,
    clock_steps: usize,
    clients: Vec<Client>,
    sent: BTreeSet<UnderWay>,
    truth: Truth,
}

/// A step.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// A client begins its next call.
    Begin(usize),
    /// The request that a client's call waits for arrives, and so does the reply.
    Arrive(usize),
    /// No reply comes to the request that a client's call waits for.
    Lose(usize),
    /// A request that was sent arrives, and nobody hears of it: the one at this index.
    ArriveLate(usize),
    /// Nothing is heard of a client's call, which is sent again.
    Repeat(usize),
    /// The service's clock is set, in milliseconds.
    SetClock(i64),
}

impl Calls {
    /// Creates clients with these tasks, before a record of this service; nothing is planted.
    pub fn new(tasks: &[&[Task]]) -> Self {
        Self {
            tasks: tasks.iter().map(|tasks| tasks.to_vec()).collect(),
            clock_steps: 0,
            repeats: 1,
            remembers_tokens: true,
            origin: Origin::Ours,
            fault: Fault::None,
            runs: Arc::default(),
        }
    }

    /// The requests that were sent, each once.
    pub fn sent(&self) -> Vec<Sent> {
        let runs = self.runs.0.lock().expect("no run panics");
        runs.values().filter_map(|(_, sent)| sent.clone()).collect()
    }

    /// Runs a call until it waits for the reply that comes after these, or ends.
    fn next(&self, request: &Request, repeats: u8, replies: &[Reply]) -> Next<Answer> {
        let mut request = request.clone();
        if self.fault == Fault::FreshIds {
            // A number beyond the calls of any client.
            request.call.n += 100 * usize::from(repeats);
        }
        let of = (request, replies.to_vec());
        if let Some((next, _)) = self.runs.0.lock().expect("no run panics").get(&of) {
            return next.clone();
        }
        let (mut next, sent) = run(KEYS, replies, |dynamo| answer(dynamo, &of.0));
        if let Next::Asks(asked) = &mut next {
            let mut operation = Operation::clone(&asked.operation);
            self.fault.strip(&mut operation);
            asked.operation = Shared::new(operation);
        }
        let mut runs = self.runs.0.lock().expect("no run panics");
        runs.entry(of).or_insert((next, sent)).0.clone()
    }

    fn begin(&self, world: &mut World, index: usize) {
        let client = &mut world.clients[index];
        let task = self.tasks[index][client.begun];
        let call = CallName { client: index, n: client.begun };
        client.begun += 1;
        let claim = match task {
            Task::PushUnderLease | Task::Release { .. } => {
                // A client without a lease has nothing to do under one.
                let Some(claim) = client.claim else { return client.answers.push(Answer::LeaseLost) };
                Some(claim)
            }
            _ => None,
        };
        let request = Request { call, task, known: client.known, claim, began: world.now };
        world.truth.begin(call, task);
        self.proceed(world, index, request, 0, Vec::new());
    }

    /// Runs a client's call as far as it gets with these replies.
    fn proceed(&self, world: &mut World, index: usize, request: Request, repeats: u8, replies: Vec<Reply>) {
        let client = &mut world.clients[index];
        let answer = match self.next(&request, repeats, &replies) {
            Next::Asks(asked) => {
                client.waits = Some(Waiting { request, repeats, replies, asked });
                return;
            }
            Next::Done(answer) => answer,
        };
        client.waits = None;
        let answer = unless_hidden(answer, &request, repeats > 0 && self.fault != Fault::NoDoubt);
        match &answer {
            Answer::Unknown => world.truth.note_unknown(request.call, request.task),
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
    }

    fn arrive(&self, world: &mut World, of: &UnderWay) -> (Reply, bool) {
        let before = world.stored();
        let token = of.token().filter(|_| self.remembers_tokens);
        let (reply, wrote) = world.table.answer(&of.asked.operation, token, KEYS);
        if wrote {
            let after = world.stored();
            world.truth.note_write(of.call, of.task, before, after);
        }
        (reply, wrote)
    }
}

impl World {
    /// Takes what a client waits for. From then on, the request may arrive at any time.
    fn give_up(&mut self, client: usize) -> Option<Waiting> {
        let waiting = self.clients[client].waits.take()?;
        self.sent.insert(UnderWay::new(&waiting));
        Some(waiting)
    }

    fn item(&self, sort: &str) -> Option<&Item> {
        self.table.items.get(&(address().to_string(), sort.to_owned())).map(|item| &**item)
    }

    /// The `t` and the writer of the stored head, and the last token.
    fn stored(&self) -> Stored {
        let head = self.item("head").and_then(|head| match (head.get("commit_id"), head.get("commit_t")) {
            (Some(Attribute::S(id)), Some(Attribute::N(t))) => Some((*t, CallName::read(id)?)),
            _ => None,
        });
        let token = match self.item("status").and_then(|status| status.get("lease_token")) {
            Some(Attribute::N(token)) => *token,
            _ => 0,
        };
        (head, token)
    }
}

/// Makes the call of a request, and returns what its client is answered.
async fn answer(dynamo: Dynamo, request: &Request) -> Answer {
    let began = UNIX_EPOCH + Duration::from_millis(u64::try_from(request.began).expect("it is a time"));
    let reads = Mutex::new(0);
    let store = Store::new(dynamo, "t").with_retry_policy(RETRIES).with_clock(move || {
        let mut reads = reads.lock().expect("no run panics");
        *reads += 1;
        // A clock that is set while the call runs would have to be modelled.
        assert_eq!(*reads, 1, "a call reads the clock once");
        began
    });
    let (address, call) = (address(), call_of(request.call));
    let claim = |request: &Request| claim_of(request.claim.expect("only a holder releases"));
    let answer = match request.task {
        Task::Push | Task::PushOlder | Task::PushUnderLease => {
            let pushed = store.push_head(&call, &address, &push_of(request)).await;
            pushed.map(|outcome| match outcome {
                PushOutcome::Updated { value, .. } if value != push_of(request).desired().value() => {
                    Answer::Strange(format!("updated to {value:?}"))
                }
                outcome => answer_of(outcome),
            })
        }
        Task::Acquire { holder } => store.acquire_lease(&call, &address, &lease_request(holder)).await.map(leased),
        Task::Release { .. } => {
            store.release_lease(&call, &address, &claim(request)).await.map(|outcome| match outcome {
                Released::Released => Answer::Released,
                Released::Lost { .. } => Answer::LeaseLost,
                other => Answer::Strange(format!("{other:?}")),
            })
        }
    };
    answer.unwrap_or_else(|error| match error {
        Error::OutcomeUnknown { .. } => Answer::Unknown,
        error => Answer::Strange(error.to_string()),
    })
}

/// The table with one ledger in it.
fn new_table(origin: Origin) -> Table<Token> {
    let mut table = Table::default();
    let mut replies = Vec::new();
    let call = Call::with_id(RequestId::from_hashes([255; 16], [0; 8]));
    loop {
        let create = async |dynamo: Dynamo| {
            let store = Store::new(dynamo, "t").with_clock(|| UNIX_EPOCH);
            store.create_ledger(&call, &address(), None, None).await
        };
        match run(KEYS, &replies, create).0 {
            Next::Asks(asked) => replies.push(table.answer(&asked.operation, None, KEYS).0),
            Next::Done(created) => {
                assert!(created.is_ok(), "{created:?}");
                break;
            }
        }
    }
    if origin == Origin::Meta {
        Arc::make_mut(&mut table.items).retain(|(_, sort), _| sort == "meta");
    }
    table
}

impl Judged for World {
    fn truth(&self) -> &Truth {
        &self.truth
    }

    fn answers(&self) -> impl Iterator<Item = (CallName, &Answer)> {
        self.clients.iter().enumerate().flat_map(|(client, of)| {
            of.answers.iter().enumerate().map(move |(n, answer)| (CallName { client, n }, answer))
        })
    }
}

impl Model for Calls {
    type State = World;
    type Action = Step;

    fn init_states(&self) -> Vec<World> {
        vec![World {
            table: new_table(self.origin),
            now: TIMES[0],
            clock_steps: 0,
            clients: vec![Client::default(); self.tasks.len()],
            sent: BTreeSet::new(),
            truth: Truth::default(),
        }]
    }

    fn actions(&self, world: &World, steps: &mut Vec<Step>) {
        for (index, client) in world.clients.iter().enumerate() {
            match &client.waits {
                None if client.begun < self.tasks[index].len() => steps.push(Step::Begin(index)),
                None => {}
                Some(waiting) => {
                    steps.push(Step::Arrive(index));
                    // A second loss in a row leaves the code as the first one did.
                    if !matches!(waiting.replies.last(), Some(Reply::Lost | Reply::Unreachable)) {
                        steps.push(Step::Lose(index));
                    }
                    if waiting.repeats < self.repeats {
                        steps.push(Step::Repeat(index));
                    }
                }
            }
        }
        steps.extend((0..world.sent.len()).map(Step::ArriveLate));
        if world.clock_steps < self.clock_steps {
            steps.extend(TIMES.into_iter().filter(|time| *time != world.now).map(Step::SetClock));
        }
    }

    fn next_state(&self, world: &World, step: Step) -> Option<World> {
        let mut next = world.clone();
        match step {
            Step::Begin(client) => self.begin(&mut next, client),
            Step::Arrive(client) => {
                let waiting = next.give_up(client)?;
                let (reply, _) = self.arrive(&mut next, &UnderWay::new(&waiting));
                let Waiting { request, repeats, mut replies, .. } = waiting;
                replies.push(reply);
                self.proceed(&mut next, client, request, repeats, replies);
            }
            Step::Lose(client) => {
                let Waiting { request, repeats, mut replies, .. } = next.give_up(client)?;
                replies.push(if self.fault == Fault::NoDoubt { Reply::Unreachable } else { Reply::Lost });
                self.proceed(&mut next, client, request, repeats, replies);
            }
            Step::ArriveLate(n) => {
                let under_way = world.sent.iter().nth(n)?;
                let (_, wrote) = self.arrive(&mut next, under_way);
                // An arrival that changes nothing is no step.
                return wrote.then_some(next);
            }
            Step::Repeat(client) => {
                let Waiting { mut request, repeats, .. } = next.give_up(client)?;
                request.began = next.now;
                self.proceed(&mut next, client, request, repeats + 1, Vec::new());
            }
            Step::SetClock(now) => {
                next.now = now;
                next.clock_steps += 1;
            }
        }
        Some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        let mut properties = properties(&self.tasks);
        let pushes = self.tasks.iter().flatten().filter(|task| task.is_push()).count();
        if pushes > 4 && self.fault == Fault::None {
            properties.push(Property::sometimes("an applied push is unknown", |_: &Self, world: &World| {
                world.answers().any(|(call, answer)| *answer == Answer::Unknown && world.truth.fate(call).applied > 0)
            }));
        }
        properties
    }
}
