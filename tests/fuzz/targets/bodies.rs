//! Every body that is accepted as a request follows the rules of docs/specification.md (Words, HTTP). The first byte selects the
//! request.
#![no_main]

use libfuzzer_sys::fuzz_target;
use nameservice_api::{
    leases::Wanted,
    requests::{ConfigPush, GraphSource, HeadPush, IndexPush, NewBranch, NewLedger, StatusPush},
    transactions::Transaction,
};
use nameservice_model::{Address, Expected, MAX_DEPENDENCIES, MAX_OPERATIONS, OperationKind};

fuzz_target!(|data: &[u8]| {
    let Some((which, json)) = data.split_first() else { return };
    match which % 8 {
        0 => {
            let Some(Ok(push)) = serde_json::from_slice::<HeadPush>(json).ok().map(HeadPush::into_push) else { return };
            assert!(push.desired().t() >= 1);
            if let Expected::Value(expected) = push.expected() {
                assert_eq!(expected.v == 0, expected.payload.is_none());
            }
        }
        1 => {
            let Some(Ok(push)) = serde_json::from_slice::<IndexPush>(json).ok().map(IndexPush::into_push) else { return };
            let new = push.desired();
            assert!(new.t() >= 1 && new.graphs().values().flatten().all(|graph| graph.t() >= 1));
        }
        2 => {
            let Some(Ok(push)) = serde_json::from_slice::<StatusPush>(json).ok().map(StatusPush::into_push) else { return };
            assert!(push.desired().v().is_none_or(|v| v >= 1) && matches!(push.expected(), Expected::Value(_)));
            let state = &push.desired().payload().state;
            assert!(!state.trim().is_empty() && state != "retracted");
        }
        3 => {
            let Some(Ok(push)) = serde_json::from_slice::<ConfigPush>(json).ok().map(ConfigPush::into_push) else { return };
            assert!(push.desired().v().is_none_or(|v| v >= 1) && matches!(push.expected(), Expected::Value(_)));
        }
        4 => {
            let Some(Ok(ledger)) = serde_json::from_slice::<NewLedger>(json).ok().map(NewLedger::into_model) else { return };
            assert!(ledger.head.is_none_or(|head| head.t() >= 1));
        }
        5 => {
            let own = Address::parse("own").unwrap();
            let Ok(source) = serde_json::from_slice::<GraphSource>(json) else { return };
            let Ok(publication) = source.into_publication(&own) else { return };
            let dependencies = publication.dependencies().unwrap_or_default();
            assert!(dependencies.len() <= MAX_DEPENDENCIES && !dependencies.contains(&own));
        }
        6 => {
            let Some(Ok(branch)) = serde_json::from_slice::<NewBranch>(json).ok().map(NewBranch::into_model) else { return };
            assert!(branch.branch != branch.source && branch.branch.name() == branch.source.name());
        }
        _ => {
            if let Some(Ok((request, _))) = serde_json::from_slice::<Wanted>(json).ok().map(Wanted::into_request) {
                assert!((1..=3_600).contains(&request.ttl_seconds()));
            }
            let Ok(transaction) = serde_json::from_slice::<Transaction>(json) else { return };
            let Ok(transaction) = transaction.into_model() else { return };
            let operations = transaction.operations();
            assert!((1..=MAX_OPERATIONS).contains(&operations.len()));
            for (i, operation) in operations.iter().enumerate() {
                let place = (&operation.address, operation.action.concern());
                assert!(operations[..i].iter().all(|other| (&other.address, other.action.concern()) != place));
                if let OperationKind::PushHead(push) = &operation.action {
                    assert!(*push.expected() != Expected::NoRecord);
                }
            }
        }
    }
});
