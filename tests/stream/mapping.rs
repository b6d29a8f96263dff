//! The simulator itself: it does what Lambda's guide says, and it catches a consumer that does not hold up.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, Mutex},
};

use nameservice_tests::{
    engine,
    mapping::{Fate, Function, Mapping, Odds, Settings, matches},
    prelude::*,
};
use rand::{SeedableRng, rngs::StdRng};
use stream_consumer::Consumer;

use super::{expected::assert_reported, records, whole, writes};

/// Answers a call, given how often the function was called and the sequence numbers.
type Answer = fn(usize, &[u64]) -> Result<Value, String>;

/// A function with scripted answers.
#[derive(Clone)]
struct Scripted {
    calls: Arc<Mutex<Vec<Vec<u64>>>>,
    answer: Answer,
}

impl Function for Scripted {
    async fn invoke(&self, event: Value) -> Result<Value, String> {
        tokio::task::yield_now().await;
        let records = event["Records"].as_array().unwrap();
        let numbers: Vec<u64> =
            records.iter().map(|r| r["dynamodb"]["SequenceNumber"].as_str().unwrap().parse().unwrap()).collect();
        let mut calls = self.calls.lock().unwrap();
        calls.push(numbers.clone());
        (self.answer)(calls.len(), &numbers)
    }
}

fn scripted(answer: Answer) -> Scripted {
    Scripted { calls: Arc::default(), answer }
}

fn failures(names: &[Value]) -> Result<Value, String> {
    let listed: Vec<Value> = names.iter().map(|name| json!({ "itemIdentifier": name })).collect();
    Ok(json!({ "batchItemFailures": listed }))
}

fn record(n: u64, pk: &str, sk: &str) -> Value {
    json!({ "eventID": format!("e{n}"), "dynamodb": {
        "SequenceNumber": n.to_string(), "ApproximateCreationDateTime": n,
        "Keys": { "pk": { "S": pk }, "sk": { "S": sk } } } })
}

fn ten() -> Vec<Value> {
    (1..=10).map(|n| record(n, "a:main", "head")).collect()
}

/// Delivers ten records in batches of ten; returns the calls and what was dropped.
async fn delivered(settings: Settings, function: &Scripted) -> (Vec<Vec<u64>>, Vec<Value>) {
    let mut mapping = Mapping::new(settings, 1).with_full_batches();
    mapping.open("s", None);
    mapping.feed("s", ten());
    mapping.run(function, 100).await;
    (function.calls.lock().unwrap().clone(), mapping.destination)
}

fn settings() -> Settings {
    Settings { batch_size: 10, bisect_batch_on_function_error: false, ..Settings::default() }
}

#[tokio::test]
async fn the_lowest_number_that_is_named_is_delivered_again_with_all_that_follow() {
    let function = scripted(|call, _| if call == 1 { failures(&[json!("7"), json!("4")]) } else { failures(&[]) });
    let (calls, dropped) = delivered(settings(), &function).await;
    assert_eq!(calls, [(1..=10).collect::<Vec<_>>(), (4..=10).collect()]);
    assert!(dropped.is_empty());
}

#[tokio::test]
async fn an_answer_that_names_nothing_usable_fails_the_whole_batch() {
    let answers: [Answer; 5] = [
        |call, _| if call == 1 { failures(&[json!("")]) } else { Ok(Value::Null) },
        |call, _| if call == 1 { failures(&[Value::Null]) } else { Ok(json!({})) },
        |call, _| if call == 1 { failures(&[json!("99")]) } else { Ok(json!({ "batchItemFailures": null })) },
        |call, _| if call == 1 { Ok(json!({ "batchItemFailures": [{ "id": "4" }] })) } else { failures(&[]) },
        |call, _| if call == 1 { Err("an exception".into()) } else { failures(&[]) },
    ];
    for answer in answers {
        let function = scripted(answer);
        let (calls, _) = delivered(settings(), &function).await;
        assert_eq!(calls, [(1..=10).collect::<Vec<_>>(), (1..=10).collect()]);
    }
}

#[tokio::test]
async fn without_partial_answers_they_are_not_looked_at() {
    let function = scripted(|_, _| failures(&[json!("4")]));
    let (calls, _) = delivered(Settings { report_batch_item_failures: false, ..settings() }, &function).await;
    assert_eq!(calls, [(1..=10).collect::<Vec<_>>()]);
}

#[tokio::test]
async fn a_failed_batch_is_halved_until_the_bad_record_is_alone() {
    let function =
        scripted(|call, numbers| if numbers.contains(&3) && call < 9 { Err("three".into()) } else { failures(&[]) });
    let (calls, _) = delivered(Settings { bisect_batch_on_function_error: true, ..settings() }, &function).await;
    let expected: [&[u64]; 8] =
        [&[1, 2, 3, 4, 5, 6, 7, 8, 9, 10], &[1, 2, 3, 4, 5], &[1, 2], &[3, 4, 5], &[3], &[3], &[3], &[3]];
    assert_eq!(calls[..8], expected);
    assert_eq!(calls[8..], [vec![3], vec![4, 5], vec![6, 7, 8, 9, 10]]);
}

#[tokio::test]
async fn what_has_used_up_its_retries_or_its_age_is_described_to_the_failure_destination() {
    let function = scripted(|_, numbers| if numbers.contains(&3) { Err("three".into()) } else { failures(&[]) });
    let bounded = Settings { bisect_batch_on_function_error: true, maximum_retry_attempts: 2, ..settings() };
    let (calls, dropped) = delivered(bounded, &function).await;
    assert_eq!(calls.iter().filter(|call| **call == [3]).count(), 3, "one try and two retries");
    assert_eq!(dropped.len(), 1);
    assert_eq!(dropped[0]["requestContext"]["condition"], "RetryAttemptsExhausted");
    assert_eq!(dropped[0]["DDBStreamBatchInfo"]["startSequenceNumber"], "3");
    assert_eq!(dropped[0]["DDBStreamBatchInfo"]["batchSize"], 1);
    assert_eq!(calls.last().unwrap(), &[6, 7, 8, 9, 10], "the rest continues");

    let mut mapping = Mapping::new(Settings { maximum_record_age_in_seconds: 60, ..settings() }, 1);
    mapping.open("s", None);
    mapping.feed("s", ten());
    mapping.set_now(64.5);
    let function = scripted(|_, _| failures(&[]));
    mapping.run(&function, 100).await;
    assert_eq!(function.calls.lock().unwrap().concat(), (5..=10).collect::<Vec<_>>());
    assert_eq!(mapping.destination[0]["requestContext"]["condition"], "RecordAgeExceeded");
}

#[tokio::test]
async fn children_wait_for_their_parent_and_lanes_keep_the_order_of_a_key() {
    for seed in 0..20 {
        let mut mapping =
            Mapping::new(Settings { batch_size: 3, parallelization_factor: 3, ..Settings::default() }, seed)
                .with_odds(Odds { times_out: 20, dies: 20, lives_on: 0 });
        mapping.open("parent", None);
        mapping.open("child", Some("parent"));
        let keys = ["a", "b", "c", "d", "e"];
        let nth = |n: u64| record(n, keys[(n % 5) as usize], "head");
        mapping.feed("child", (51..=100).map(nth));
        mapping.feed("parent", (1..=50).map(nth));
        let function = scripted(|_, _| failures(&[]));
        mapping.run(&function, 1_000).await;
        let child = mapping.invocations.iter().position(|invocation| invocation.shard == "child").unwrap();
        assert!(mapping.invocations[child..].iter().all(|invocation| invocation.shard == "child"));
        for key in 0..5 {
            let answered = mapping.invocations.iter().filter(|invocation| invocation.fate == Fate::Answers);
            let numbers =
                answered.flat_map(|invocation| &invocation.sequence_numbers).map(|n| n.parse::<u64>().unwrap());
            let of_key: Vec<u64> = numbers.filter(|n| n % 5 == key).collect();
            assert_eq!(of_key, (1..=100).filter(|n| n % 5 == key).collect::<Vec<_>>(), "seed {seed}");
        }
    }
}

#[tokio::test]
async fn the_same_seed_delivers_the_same() {
    let run = async || {
        let mut mapping = Mapping::new(Settings { batch_size: 4, ..Settings::default() }, 42).with_odds(Odds {
            times_out: 20,
            dies: 20,
            lives_on: 20,
        });
        mapping.open("s", None);
        mapping.feed("s", ten());
        mapping.run(&scripted(|_, _| failures(&[])), 1_000).await;
        mapping.invocations
    };
    let first = run().await;
    assert_eq!(first, run().await);
    assert!(first.len() > 3 && first.iter().any(|invocation| invocation.fate != Fate::Answers));
}

#[test]
fn filters_leave_out_what_is_no_part_of_a_record() {
    let listed = json!({ "dynamodb": { "Keys": { "sk": { "S": ["meta", "head"] } } } });
    let not = json!({ "dynamodb": { "Keys": { "sk": { "S": [{ "anything-but": { "prefix": "commit#" } }] } } } });
    let there = json!({ "dynamodb": { "OldImage": { "kind": { "S": [{ "exists": false }] } } } });
    for (sk, by_list, by_prefix) in [("head", true, true), ("backref#b:main", false, true), ("commit#1", false, false)]
    {
        let record = record(1, "a:main", sk);
        assert_eq!(matches(&listed, &record), by_list, "{sk}");
        assert_eq!(matches(&not, &record), by_prefix, "{sk}");
        assert!(matches(&there, &record));
    }
}

/// The consumer with one thing wrong.
#[derive(Clone)]
struct Careless {
    consumer: Consumer,
    mistake: Mistake,
}

#[derive(Clone, Copy, Debug)]
enum Mistake {
    None,
    /// It does not recognise a record that it has appended.
    Forgets,
    /// It reports a batch as done before it is.
    AnswersFirst,
    /// It takes a batch from its end.
    Reverses,
    /// It names the record after a failed one instead of the failed one.
    NamesTheNext,
}

impl Function for Careless {
    async fn invoke(&self, mut event: Value) -> Result<Value, String> {
        let records = event["Records"].as_array_mut().unwrap();
        match self.mistake {
            Mistake::None | Mistake::NamesTheNext => {}
            Mistake::Forgets => {
                for record in records.iter_mut() {
                    record["eventID"] = Call::fresh().request_id.to_string().into();
                }
            }
            Mistake::Reverses => records.reverse(),
            Mistake::AnswersFirst => {
                records.pop();
            }
        }
        let numbers: Vec<Value> = records.iter().map(|record| record["dynamodb"]["SequenceNumber"].clone()).collect();
        let mut answer = self.consumer.invoke(event).await?;
        if let (Mistake::NamesTheNext, Some(named)) =
            (self.mistake, answer.pointer_mut("/batchItemFailures/0/itemIdentifier"))
        {
            let failed = numbers.iter().position(|number| number == named).unwrap();
            match numbers.get(failed + 1) {
                Some(next) => *named = next.clone(),
                None => return Ok(Value::Null),
            }
        }
        Ok(answer)
    }
}

#[tokio::test]
async fn a_consumer_that_makes_a_mistake_is_caught() {
    let table = Proxied::with_stream().await;
    let expected = writes::write(&table, &mut StdRng::seed_from_u64(7), 30).await;
    let records = records(&table).await;
    let mistakes = [Mistake::None, Mistake::Forgets, Mistake::AnswersFirst, Mistake::Reverses, Mistake::NamesTheNext];
    for mistake in mistakes {
        let mut caught = false;
        for seed in 1..=4 {
            let name = format!("{}-{mistake:?}-{seed}", table.name);
            let feed = nameservice_feed::Feed::new(table.client.clone(), &name);
            feed.ensure_table().await.unwrap();
            // Now and then nothing of a batch can be appended.
            let rejecting = nameservice_feed::Feed::new(engine::client(table.proxy.url()), &name);
            for skipped in [1, 3, 6, 10] {
                let rejected = Fault::answer(400, "AccessDeniedException").times(1).skipping(skipped);
                table.proxy.on("TransactWriteItems", rejected.perhaps());
            }
            let consumer = Consumer::new(table.store.clone(), rejecting);
            let mut mapping = Mapping::new(Settings { batch_size: 10, ..Settings::default() }, seed).with_odds(Odds {
                times_out: 20,
                dies: 20,
                lives_on: 0,
            });
            mapping.open("s", None);
            mapping.feed("s", records.iter().cloned());
            mapping.run(&Careless { consumer, mistake }, 3_000).await;
            table.proxy.disarm();
            let changes = whole(&feed).await;
            let reported = catch_unwind(AssertUnwindSafe(|| assert_reported(&changes, &expected)));
            caught |= reported.is_err();
            if caught {
                break;
            }
        }
        assert_eq!(caught, !matches!(mistake, Mistake::None), "{mistake:?}");
    }
}
