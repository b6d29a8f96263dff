//! Random commands, and invariants that hold for all of them.

use std::collections::BTreeMap;

use nameservice_model::{
    Address, Call, Change, ChangeKind, ChangedPart, ConcernKind, ConcernState, Config, ConfigPush, Expected,
    GraphSourcePublication, HeadPush, Index, IndexPush, LeaseClaim, LeaseName, LeaseRequest, NewConfig, NewGraphIndex,
    NewIndex, NewLedger, NewStatus, Object, Operation, RequestId, ResetTo, Status, StatusPayload, StatusPush,
    Transaction, Write,
};
use rand::{Rng, RngExt, SeedableRng, rngs::StdRng};
use serde_json::json;

use super::{at, head, id};
use crate::state::{Command, Now, State};

const LEDGERS: [&str; 6] = ["a:main", "a:dev", "a:exp", "b:main", "b/c:main", "c:main"];
const SOURCES: [&str; 3] = ["s:main", "s:two", "t:main"];
const HOLDERS: [&str; 2] = ["one", "two"];

/// A source of commands that depends only on its seed.
pub(super) struct Commands {
    rng: StdRng,
    ms: i64,
    made: Vec<Command>,
    calls: u64,
}

impl Commands {
    pub(super) fn new(seed: u64) -> Self {
        Self { rng: StdRng::seed_from_u64(seed), ms: 1_700_000_000_000, made: Vec::new(), calls: 0 }
    }

    pub(super) fn below(&mut self, n: u64) -> u64 {
        self.rng.random_range(0..n)
    }

    fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    fn one_of(&mut self, list: &[&str]) -> Address {
        at(list[self.below(list.len() as u64) as usize])
    }

    fn any(&mut self) -> Address {
        if self.one_in(4) { self.one_of(&SOURCES) } else { self.one_of(&LEDGERS) }
    }

    fn t(&mut self) -> i64 {
        1 + self.below(12) as i64
    }

    /// The next command and its time. Some are repeated, and some come under the key of another.
    pub(super) fn next(&mut self) -> (Command, Now) {
        self.ms += self.rng.random_range(0..400);
        let now = Now::from_millis(self.ms);
        if !self.made.is_empty() && self.one_in(12) {
            let again = self.below(self.made.len().min(12) as u64) as usize;
            return (self.made[self.made.len() - 1 - again].clone(), now);
        }
        let action = self.action();
        self.calls += 1;
        let key = if self.one_in(20) { self.calls - 1 } else { self.calls };
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&key.to_be_bytes());
        let request_id = RequestId::from_hashes(bytes, self.calls.to_be_bytes());
        let command = Command::new(&Call::with_id(request_id), action);
        self.made.push(command.clone());
        (command, now)
    }

    fn action(&mut self) -> Write {
        let address = self.any();
        match self.below(26) {
            0 | 1 => {
                let head = if self.one_in(2) { Some(head(self.t())) } else { None };
                let config =
                    self.one_in(2).then(|| NewConfig::new(members(json!({ "password": "p", "n": 1.5 }))).unwrap());
                Write::CreateLedger(NewLedger { head, config, ..NewLedger::at(self.one_of(&LEDGERS)) })
            }
            2 | 3 => {
                let at = if self.one_in(3) { Some(head(self.t())) } else { None };
                Write::CreateBranch { branch: self.one_of(&LEDGERS[..3]), source: self.one_of(&LEDGERS[..3]), at }
            }
            4 | 5 => Write::PublishGraphSource(self.publication()),
            6..=9 => Write::PushHead { address, push: self.head_push() },
            10..=12 => Write::PushIndex { address, push: self.index_push() },
            13 | 14 => Write::PushStatus { address, push: self.status_push() },
            15 => Write::PushConfig { address, push: self.config_push() },
            16 => Write::Retract { address, reason: self.one_in(2).then(|| "why".to_owned()) },
            17 => Write::Restore { address },
            18 => Write::Purge { address },
            19 => match self.one_in(2) {
                true => Write::Protect { address, protected: self.one_in(3) },
                false => Write::DropBranch { address },
            },
            20 => {
                let index = self.one_in(2).then(|| NewIndex::new(id(3), 3).unwrap());
                let head = if self.one_in(3) { None } else { Some(head(self.t())) };
                Write::ResetHead { address, to: ResetTo::new(head, index).unwrap() }
            }
            21 => Write::AcquireLease { address, request: self.lease() },
            22 => {
                let (request, token) = (self.lease(), 1 + self.below(4) as i64);
                Write::RefreshLease { address, request, token }
            }
            23 => Write::ReleaseLease { address, claim: self.claim() },
            _ => self.transaction(),
        }
    }

    fn publication(&mut self) -> GraphSourcePublication {
        let address = self.one_of(&SOURCES);
        let mut dependencies: Vec<Address> = (0..self.below(3)).map(|_| self.any()).collect();
        dependencies.sort();
        dependencies.dedup();
        dependencies.retain(|target| *target != address);
        let source_type = if self.one_in(8) { "f:HnswIndex" } else { "f:Bm25Index" };
        let config = members(json!({ "k1": self.below(9), "secret": "s" }));
        let publication = GraphSourcePublication::new(address, source_type, config).unwrap();
        let publication = match self.one_in(4) {
            true => publication,
            false => publication.with_dependencies(dependencies).unwrap(),
        };
        if self.one_in(4) { publication.expecting(self.below(3) as i64).unwrap() } else { publication }
    }

    fn head_push(&mut self) -> HeadPush {
        let new = head(self.t());
        let expected = match self.t() {
            1 | 2 => nameservice_model::Head::unborn(),
            t => nameservice_model::Head::new(t, id(t)),
        };
        let push = match self.below(4) {
            0 => HeadPush::create(new),
            1 => HeadPush::cas(expected, new),
            _ => HeadPush::monotonic(new),
        };
        self.fenced(push, HeadPush::under)
    }

    fn index_push(&mut self) -> IndexPush {
        let t = self.t();
        let mut new = NewIndex::new(id(100 + self.below(3) as i64), t).unwrap();
        if self.one_in(3) {
            let graph = NewGraphIndex::new(id(200 + self.below(2) as i64), self.t()).unwrap();
            let graph = if self.one_in(4) { None } else { Some(graph) };
            new = new.with_graph(["g", "h"][self.below(2) as usize], graph).unwrap();
        }
        let push = match self.below(5) {
            0 => IndexPush::create(new),
            1 => IndexPush::cas(Index::unborn(), new),
            2 => IndexPush::overwrite(new),
            _ => IndexPush::monotonic(new),
        };
        self.fenced(push, IndexPush::under)
    }

    fn status_push(&mut self) -> StatusPush {
        let state = ["ready", "error", "syncing"][self.below(3) as usize];
        let meta = if self.one_in(2) { members(json!({ "progress": 0.25 })) } else { Object::new() };
        let new = NewStatus::new(StatusPayload { state: state.into(), meta }).unwrap();
        let expected = Status::stored(1 + self.below(6) as i64, None);
        self.fenced(StatusPush::cas(expected, new), StatusPush::under)
    }

    fn config_push(&mut self) -> ConfigPush {
        let new = NewConfig::new(members(json!({ "a": [1, { "b": null }], "apiKey": "k" }))).unwrap();
        let expected = Config::stored(self.below(4) as i64, None);
        self.fenced(ConfigPush::cas(expected, new), ConfigPush::under)
    }

    fn fenced<P: Clone, E: std::fmt::Debug>(&mut self, push: P, under: fn(P, LeaseClaim) -> Result<P, E>) -> P {
        match self.one_in(6) {
            true => under(push.clone(), self.claim()).unwrap_or(push),
            false => push,
        }
    }

    fn lease_name(&mut self) -> LeaseName {
        LeaseName::KNOWN[self.below(2) as usize].clone()
    }

    fn lease(&mut self) -> LeaseRequest {
        let holder = HOLDERS[self.below(2) as usize];
        let request = LeaseRequest::new(self.lease_name(), holder).unwrap();
        request.with_ttl_seconds(1 + self.below(3) as u32).unwrap()
    }

    fn claim(&mut self) -> LeaseClaim {
        let holder = HOLDERS[self.below(2) as usize];
        LeaseClaim::new(self.lease_name(), holder, 1 + self.below(3) as i64).unwrap()
    }

    fn transaction(&mut self) -> Write {
        let mut operations: BTreeMap<(Address, ConcernKind), Operation> = BTreeMap::new();
        for _ in 0..=self.below(4) {
            let address = self.any();
            let operation = match self.below(5) {
                0 => Operation::new(address, self.index_push()),
                1 => Operation::new(address, self.status_push()),
                2 => Operation::new(address, self.config_push()),
                3 => {
                    let v = 1 + self.below(3) as i64;
                    let action = nameservice_model::OperationKind::Check(ConcernState::Status(Status::stored(v, None)));
                    Operation { address, action }
                }
                _ => Operation::new(address, self.head_push()),
            };
            let creates = match &operation.action {
                nameservice_model::OperationKind::PushHead(push) => matches!(push.expected(), Expected::NoRecord),
                nameservice_model::OperationKind::PushIndex(push) => matches!(push.expected(), Expected::NoRecord),
                _ => false,
            };
            if !creates {
                operations.insert((operation.address.clone(), operation.action.concern()), operation);
            }
        }
        match Transaction::new(operations.into_values().collect()) {
            Ok(transaction) => Write::Commit(transaction),
            Err(_) => Write::Restore { address: self.any() },
        }
    }

    pub(super) fn bytes(&mut self, count: usize) -> Vec<u8> {
        let mut bytes = vec![0; count];
        self.rng.fill_bytes(&mut bytes);
        bytes
    }
}

fn members(value: serde_json::Value) -> Object {
    value.as_object().unwrap().clone()
}

/// The watermark of every part according to the changes, unless the part was deleted.
pub(super) type Watermarks = BTreeMap<(String, ChangedPart), i64>;

/// Applies a change, which must be consistent with those before it.
pub(super) fn follow(watermarks: &mut Watermarks, change: &Change) {
    let place = (change.address.to_string(), change.part);
    let before = watermarks.get(&place).copied();
    let is_meta = change.part == ChangedPart::Meta;
    match change.kind {
        ChangeKind::Created => assert!(before.is_none_or(|before| !is_meta && before == 0), "{change:?}"),
        ChangeKind::Updated if !is_meta => {
            assert!(before.is_some_and(|before| before <= change.watermark), "{change:?} after {before:?}");
        }
        _ => {}
    }
    if let (false, Some(previous)) = (is_meta, change.previous) {
        assert_eq!(before.unwrap_or(0), previous, "{change:?}");
    }
    match change.kind {
        ChangeKind::Purged => watermarks.remove(&place),
        _ => watermarks.insert(place, change.watermark),
    };
}

/// Returns the same according to a state.
pub(super) fn watermarks(state: &State) -> Watermarks {
    let mut found = Watermarks::new();
    for record in state.records() {
        let mut note = |part, watermark| found.insert((record.address.to_string(), part), watermark);
        note(ChangedPart::Meta, 0);
        if let Some(head) = record.head() {
            note(ChangedPart::Concern(ConcernKind::Head), head.v);
        }
        note(ChangedPart::Concern(ConcernKind::Index), record.index.t);
        note(ChangedPart::Concern(ConcernKind::Status), record.status.v);
        note(ChangedPart::Concern(ConcernKind::Config), record.config.v);
    }
    found.retain(|(_, part), watermark| *part == ChangedPart::Meta || *watermark > 0);
    found
}

/// Leaves out unborn parts: a part that never had data is in no change.
pub(super) fn born(mut watermarks: Watermarks) -> Watermarks {
    watermarks.retain(|(_, part), watermark| *part == ChangedPart::Meta || *watermark > 0);
    watermarks
}

#[test]
fn the_same_commands_leave_the_same_state_outcomes_and_changes() {
    let run = || {
        let (mut commands, mut state, mut answers) = (Commands::new(7), State::new(), Vec::new());
        for _ in 0..5_000 {
            let (command, now) = commands.next();
            let applied = state.apply(&command, now);
            answers.push(format!("{:?} {:?}", applied.outcome, applied.changes));
        }
        (state.dump(), answers)
    };
    let (one, other) = (run(), run());
    assert_eq!(one, other);
    let updated = one.1.iter().filter(|answer| answer.contains("Change {")).count();
    assert!(updated > 500, "only {updated} commands of 5000 have changed anything");
}

#[test]
fn changes_follow_each_other_without_a_gap_and_explain_the_state() {
    for seed in 0..20 {
        let (mut commands, mut state, mut seen) = (Commands::new(seed), State::new(), Watermarks::new());
        let mut position = 0;
        for _ in 0..1_000 {
            let (command, now) = commands.next();
            for change in state.apply(&command, now).changes {
                position += 1;
                assert_eq!(change.position, position);
                follow(&mut seen, &change);
            }
            assert_eq!(state.position(), position);
        }
        assert_eq!(born(seen), watermarks(&state), "seed {seed}");
        assert!(state.orders_follow(), "seed {seed}");
    }
}

#[test]
fn counters_are_what_the_records_say() {
    for seed in 0..20 {
        let (mut commands, mut state) = (Commands::new(seed), State::new());
        for _ in 0..1_000 {
            let (command, now) = commands.next();
            let _ = state.apply(&command, now);
        }
        for record in state.records() {
            let dependents = state.records().filter(|other| other.dependencies().contains(&record.address)).count();
            let branches = state
                .records()
                .filter(|other| other.parent().is_some_and(|parent| *parent.as_str() == *record.address));
            assert_eq!((record.dependents as usize, record.branches as usize), (dependents, branches.count()));
        }
    }
}

#[test]
fn a_clone_is_a_snapshot() {
    let (mut commands, mut state) = (Commands::new(3), State::new());
    let mut kept = Vec::new();
    for step in 0..2_000 {
        let (command, now) = commands.next();
        let _ = state.apply(&command, now);
        if step % 100 == 0 {
            kept.push((state.clone(), state.dump()));
        }
    }
    for (clone, dump) in kept {
        assert_eq!(clone.dump(), dump);
    }
}
