//! Numbers at their limits, items at theirs, and clocks that go back.

use nameservice_model::{
    Address, Call, ConcernValue, Config, ConfigPush, Error, GraphIndex, GraphSourcePublication, HeadPush, IndexPush,
    IndexRoot, LeaseName, LeaseRequest, Leased, MAX_WATERMARK, NewConfig, NewGraphIndex, NewHead, NewIndex, NewLedger,
    NewStatus, Object, PushOutcome, Status, StatusPayload, StatusPush, Write, Written,
};

use super::{at, head, id};
use crate::state::{Applied, Command, Now, Portable, State};

const NOW: Now = Now::from_millis(1_700_000_000_000);

fn apply(state: &mut State, action: Write) -> Applied {
    apply_at(state, action, NOW)
}

fn apply_at(state: &mut State, action: Write, now: Now) -> Applied {
    state.apply(&Command::new(&Call::fresh(), action), now)
}

fn ledger() -> Address {
    at("a")
}

fn source() -> GraphSourcePublication {
    GraphSourcePublication::new(at("s"), "f:X", Object::new()).unwrap()
}

fn lease(holder: &str) -> LeaseRequest {
    LeaseRequest::new(LeaseName::INDEX, holder).unwrap()
}

/// A ledger and a graph source, all of whose counters are at a value.
fn at_value(value: i64) -> State {
    let mut state = State::new();
    let _ = apply(&mut state, Write::CreateLedger(NewLedger::at(ledger())));
    let _ = apply(&mut state, Write::PublishGraphSource(source()));
    for address in [ledger(), at("s")] {
        let mut portable = state.portable(&address).unwrap();
        set(&mut portable, value);
        state.insert(&portable);
    }
    state
}

fn set(portable: &mut Portable, value: i64) {
    let record = &mut portable.record;
    let graph = GraphIndex { id: id(1), t: 5, rev: value };
    let graphs = [("g".to_owned(), Some(graph))].into();
    record.index = ConcernValue::new(5, IndexRoot { id: id(1), rev: value, graphs });
    record.status.v = value;
    record.config = ConcernValue::stored(value, Some(Object::new().into()));
    (record.branches, record.dependents) = (0, 0);
    portable.token = value;
}

fn index(n: i64) -> NewIndex {
    NewIndex::new(id(n), 5).unwrap()
}

/// Every write that increments a counter, and the counter.
fn increments(value: i64) -> Vec<(Write, &'static str)> {
    let expected = || ConcernValue::stored(5, Some(IndexRoot { id: id(1), rev: 0, graphs: Default::default() }));
    let graph = NewGraphIndex::new(id(2), 5).unwrap();
    let status = NewStatus::new(StatusPayload::state("busy")).unwrap();
    let config = NewConfig::new(Object::new()).unwrap();
    let (address, request) = (ledger(), lease("one"));
    vec![
        (Write::PushIndex { address: ledger(), push: IndexPush::cas(expected(), index(2)) }, "rev"),
        (Write::PushIndex { address: ledger(), push: IndexPush::overwrite(index(3)) }, "rev"),
        (
            Write::PushIndex {
                address: ledger(),
                push: IndexPush::cas(expected(), index(1).with_graph("g", Some(graph)).unwrap()),
            },
            "rev",
        ),
        (
            Write::PushStatus { address: ledger(), push: StatusPush::cas(Status::stored(value, None), status) },
            "status_v",
        ),
        (
            Write::PushConfig { address: ledger(), push: ConfigPush::cas(Config::stored(value, None), config) },
            "config_v",
        ),
        (Write::PublishGraphSource(source()), "config_v"),
        (Write::AcquireLease { address, request }, "lease_token"),
        (Write::Retract { address: ledger(), reason: None }, "status_v"),
    ]
}

#[test]
fn a_counter_at_its_limit_answers_so_and_everything_else_goes_on() {
    for value in [MAX_WATERMARK, MAX_WATERMARK + 1, i64::MAX - 1] {
        for (action, counter) in increments(value) {
            let mut state = at_value(value);
            let before = state.dump();
            let what = format!("{action:?} at {value}");
            let Applied { outcome, changes, .. } = apply(&mut state, action);
            match outcome {
                Err(Error::LimitReached { counter: found }) => assert_eq!(found, counter, "{what}"),
                other => panic!("{what}: {other:?}"),
            }
            assert!(changes.is_empty() && state.dump() == before, "{what}");
            let push = HeadPush::monotonic(head(1));
            let pushed = apply(&mut state, Write::PushHead { address: ledger(), push }).outcome;
            assert!(matches!(pushed, Ok(Some(Written::Head(PushOutcome::Updated { .. })))), "{what}: {pushed:?}");
        }
    }
}

#[test]
fn no_number_makes_the_state_machine_panic_or_count_beyond_the_limit() {
    for value in [i64::MIN, -1, 0, 1, 1 << 31, MAX_WATERMARK - 1, MAX_WATERMARK, 1 << 53, i64::MAX - 1, i64::MAX] {
        for now in [i64::MIN, -1, 0, NOW.seconds() * 1000, i64::MAX] {
            let mut state = at_value(value);
            for (action, _) in increments(value) {
                let _ = apply_at(&mut state, action, Now::from_millis(now));
            }
            let record = state.portable(&ledger()).unwrap();
            let IndexRoot { rev, graphs, .. } = record.record.index.payload.unwrap();
            let graph = graphs["g"].as_ref().unwrap().rev;
            for counter in [rev, graph, record.record.status.v, record.record.config.v, record.token] {
                assert!(counter <= MAX_WATERMARK.max(value), "{counter} from {value}");
            }
        }
    }
}

#[test]
fn an_index_that_no_table_could_hold_is_too_large() {
    let mut state = State::new();
    let first = NewIndex::new(id(1), 1).unwrap();
    let _ = apply(&mut state, Write::PushIndex { address: ledger(), push: IndexPush::create(first) });
    let mut taken = 0;
    for t in 2..140 {
        let names = (0..100).map(|n| (format!("{t:03}{n:0252}"), Some(NewGraphIndex::new(id(1), t).unwrap())));
        let new = NewIndex::new(id(1), t).unwrap().with_graphs(names).unwrap();
        match apply(&mut state, Write::PushIndex { address: ledger(), push: IndexPush::monotonic(new) }).outcome {
            Ok(_) => taken += 1,
            Err(error) => {
                assert!(matches!(error, Error::TooLarge), "{error:?}");
                break;
            }
        }
    }
    // Each of them has 27,500 bytes.
    assert_eq!(taken, 14);
    let push = HeadPush::monotonic(NewHead::new(id(1), 1).unwrap());
    assert!(apply(&mut state, Write::PushHead { address: ledger(), push }).outcome.is_ok());
    let small = NewIndex::new(id(1), 200).unwrap();
    assert!(
        apply(&mut state, Write::PushIndex { address: ledger(), push: IndexPush::monotonic(small) }).outcome.is_ok()
    );
}

#[test]
fn a_clock_that_was_set_back_holds_no_lease_longer_than_the_longest() {
    let mut state = at_value(1);
    let acquire = |state: &mut State, holder: &str, seconds: i64| {
        let request = lease(holder).with_ttl_seconds(3600).unwrap();
        let now = Now::from_millis(seconds * 1000);
        apply_at(state, Write::AcquireLease { address: ledger(), request }, now).outcome.unwrap()
    };
    let (day, begun) = (86_400, 1_700_000_000);
    assert!(matches!(acquire(&mut state, "one", begun), Some(Written::Leased(Leased::Held(_)))));
    // Somewhat earlier, and later: it is held.
    for seconds in [begun - 30, begun, begun + 3_599] {
        let found = acquire(&mut state, "two", seconds);
        assert!(matches!(&found, Some(Written::Leased(Leased::Busy(_)))), "{seconds}: {found:?}");
    }
    assert!(matches!(acquire(&mut state, "two", begun - day), Some(Written::Leased(Leased::Held(_)))));
    assert!(matches!(acquire(&mut state, "three", begun - day + 3_599), Some(Written::Leased(Leased::Busy(_)))));
    assert!(matches!(acquire(&mut state, "three", begun - day + 3_600), Some(Written::Leased(Leased::Held(_)))));
}
