//! Random sequences of requests, compared answer by answer and record by record with a plain program that does the same in
//! memory (`reference`), while the engine's answers get lost.
//!
//! `PROPTEST_CASES` says how many sequences. A failure prints the shortest one that still fails; its seed is kept in
//! `failures.txt` beside this file and tried first in every later run.

mod reference;

use std::{
    collections::BTreeMap,
    sync::{
        Mutex, OnceLock,
        atomic::{AtomicU64, Ordering},
    },
};

use nameservice_http::Auth;
use nameservice_tests::{engine, prelude::*};
use proptest::test_runner::{Config, FileFailurePersistence};
use proptest_state_machine::{StateMachineTest, prop_state_machine};
use uuid::Uuid;

use self::reference::{Model, PREFIX, Transition, Trouble, addresses};

const DEFAULT_CASES: u32 = 24;

/// What was done, over all sequences.
#[derive(Default)]
struct Figures {
    requests: u64,
    refused: u64,
    in_doubt: u64,
    troubles: BTreeMap<String, u64>,
}

fn figures() -> &'static Mutex<Figures> {
    static FIGURES: OnceLock<Mutex<Figures>> = OnceLock::new();
    FIGURES.get_or_init(Mutex::default)
}

fn service() -> &'static Service {
    static SERVICE: OnceLock<Service> = OnceLock::new();
    SERVICE.get_or_init(|| {
        engine::runtime()
            .block_on(async { Service::on(Table::without_stream().await.proxied().await, Auth::Open).await })
    })
}

/// A run of one sequence, under names of its own.
struct Run {
    prefix: String,
    key: String,
    steps: u64,
}

impl Run {
    fn ours(&self, text: &str) -> String {
        text.replace(PREFIX, &self.prefix)
    }

    fn theirs(&self, value: &Value) -> Value {
        serde_json::from_str(&value.to_string().replace(&self.prefix, PREFIX)).unwrap()
    }

    fn ask(&mut self, transition: &Transition) -> Answer {
        if !transition.is_repetition() {
            self.key = Uuid::new_v4().to_string();
        }
        let body = transition.body.as_ref().map(|body| serde_json::from_str(&self.ours(&body.to_string())).unwrap());
        let path = self.ours(&transition.path);
        let headers = [("idempotency-key", self.key.as_str())];
        let service = service();
        arm(&service.table.proxy, transition.trouble);
        let method = transition.method.clone();
        let answer = engine::runtime().block_on(service.send(method, &path, &headers, body));
        let struck = service.table.proxy.is_spent();
        service.table.proxy.disarm();
        service.table.proxy.take_requests();
        let mut figures = figures().lock().unwrap();
        figures.requests += 1;
        if struck && transition.trouble != Trouble::None {
            *figures.troubles.entry(format!("{:?}", transition.trouble)).or_default() += 1;
        }
        answer
    }

    fn record(&self, address: &str) -> Option<Value> {
        let answer = engine::runtime().block_on(service().get(&format!("/v1/records/{}", self.ours(address))));
        (answer.status != 404).then(|| shown(self.theirs(&answer.expect(200))))
    }
}

fn arm(proxy: &Proxy, trouble: Trouble) {
    match trouble {
        Trouble::None => {}
        Trouble::Busy => proxy.on_writes(Fault::answer(400, "ThrottlingException")),
        Trouble::RequestCut => proxy.on_writes(Fault::cut_request()),
        Trouble::ReplyCut => proxy.on_writes(Fault::cut_reply()),
        Trouble::ReplyCutAndTokenForgotten => {
            proxy.forget_tokens();
            proxy.on_writes(Fault::cut_reply());
        }
        Trouble::ErrorButDone => proxy.on_writes(Fault::done_but_answer(500, "InternalServerError")),
    }
}

/// A record less its times.
fn shown(mut record: Value) -> Value {
    for time in ["created_at", "updated_at"] {
        record.as_object_mut().unwrap().remove(time);
    }
    let payload = record["status"]["payload"].as_object_mut().unwrap();
    payload.remove("retracted_at");
    for lease in ["index_lock", "reindex_lock", "maintenance_lock"] {
        if let Some(lease) = payload.get_mut(lease) {
            *lease = json!({ "holder": lease["holder"] });
        }
    }
    record
}

/// A value of a status less its lease, of anything else as it is.
fn without_lease(value: &Value) -> Value {
    match value {
        Value::Object(members) if members.contains_key("payload") => crate::history::spec::without_lease(value.clone()),
        Value::Array(values) => values.iter().map(without_lease).collect(),
        Value::Object(members) => members
            .iter()
            .map(|(name, value)| (name.clone(), without_lease(value)))
            .collect::<serde_json::Map<_, _>>()
            .into(),
        other => other.clone(),
    }
}

impl StateMachineTest for Run {
    type SystemUnderTest = Self;
    type Reference = Model;

    fn init_test(_: &Model) -> Self {
        static RUNS: AtomicU64 = AtomicU64::new(0);
        let prefix = format!("m{}.", RUNS.fetch_add(1, Ordering::Relaxed));
        Self { prefix, key: String::new(), steps: 0 }
    }

    fn apply(mut state: Self, model: &Model, transition: Transition) -> Self {
        let answer = state.ask(&transition);
        let told = &model.told;
        let body = without_lease(&state.theirs(&answer.body));
        let kind = body["type"].as_str().unwrap_or_default();
        let in_doubt = kind.ends_with("/outcome-unknown");
        if in_doubt {
            // Right only for a refusal after an answer that was lost (contract §4).
            assert!(transition.trouble.leaves_doubt() && told.refuses(), "{transition:#?}\n{told:#?}\n{answer:#?}");
            figures().lock().unwrap().in_doubt += 1;
        } else {
            assert_eq!(answer.status.as_u16(), told.status, "{transition:#?}\n{told:#?}\n{answer:#?}");
            for (member, value) in told.members.as_object().unwrap() {
                let mut value = value.clone();
                if let (true, Value::Array(results)) = (transition.is_repetition(), &mut value) {
                    results
                        .iter_mut()
                        .filter_map(Value::as_object_mut)
                        .for_each(|result| drop(result.remove("replayed")));
                }
                let mut shown = body.get(member).cloned().unwrap_or_default();
                if member == "missing" {
                    shown.as_array_mut().unwrap().sort_by_key(Value::to_string);
                }
                if let Value::Array(results) = &mut shown {
                    for result in results.iter_mut().filter_map(Value::as_object_mut) {
                        // Whose lease it is instead is for the lease tests.
                        result.remove("lease");
                        if transition.is_repetition() {
                            result.remove("replayed");
                        }
                        if result.get("actual") == Some(&Value::Null) {
                            result.remove("actual");
                        }
                    }
                }
                let replayed_again = transition.is_repetition() && member == "replayed";
                assert!(
                    shown == value || replayed_again,
                    "{member}: {shown} is not {value}\n{transition:#?}\n{answer:#?}"
                );
            }
            let untold = body["replayed"] == true && told.members["replayed"] != true && !transition.is_repetition();
            assert!(!untold, "replayed, but by whom?\n{transition:#?}\n{answer:#?}");
        }
        figures().lock().unwrap().refused += u64::from(told.refuses());
        state.steps += 1;
        state
    }

    fn check_invariants(state: &Self, model: &Model) {
        for (at, address) in addresses().enumerate() {
            // Two of them after each step: all of them in turn.
            if (at as u64 + state.steps).is_multiple_of(3) {
                assert_eq!(state.record(address), model.record(address), "{address}");
            }
        }
    }

    fn teardown(_: Self, _: Model) {
        let figures = figures().lock().unwrap();
        // Told once, by the last that comes.
        if std::env::var_os("NAMESERVICE_MODEL_FIGURES").is_some() {
            let Figures { requests, refused, in_doubt, troubles } = &*figures;
            println!(
                "{requests} requests as the model has them, {refused} refused, {in_doubt} of unknown outcome; {troubles:?}"
            );
        }
    }
}

fn config() -> Config {
    let cases = std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(DEFAULT_CASES);
    let failure_persistence = Some(Box::new(FileFailurePersistence::Direct("model/failures.txt")) as Box<_>);
    Config { cases, max_shrink_iters: 4_000, failure_persistence, ..Config::default() }
}

prop_state_machine! {
    #![proptest_config(config())]

    #[test]
    fn any_sequence_of_requests_is_answered_as_a_program_in_memory_would(sequential 1..40 => Run);
}
