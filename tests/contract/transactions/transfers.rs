//! Many transactions at the same time.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
};

use futures_util::future::join_all;
use nameservice_tests::cids::id_of;
use rand::{RngExt, SeedableRng, rngs::StdRng};
use tokio::sync::Barrier;

use super::*;

/// An account is a ledger; the id of its head names its balance. No two writers write the same id, since a push of the current
/// head counts as done.
#[derive(Default)]
struct Bank {
    balances: Mutex<HashMap<String, i64>>,
}

impl Bank {
    fn balance(&self, t: i64, amount: i64) -> Head {
        let mut balances = self.balances.lock().unwrap();
        let id = id_of(&format!("balance {}", balances.len()));
        balances.insert(id.as_str().to_owned(), amount);
        Head::new(t, id)
    }

    fn amount(&self, head: &Head) -> i64 {
        self.balances.lock().unwrap()[head.payload.as_ref().unwrap().as_str()]
    }
}

async fn transfers(ns: &Fixture, accounts: usize, clients: u64, each: usize) {
    const START: i64 = 100;
    let (bank, all_have_read) = (Arc::new(Bank::default()), Arc::new(Barrier::new(clients as usize)));
    let name = |account: usize| format!("account{account}");
    for account in 0..accounts {
        let first = bank.balance(1, START);
        ns.create_ledger(&Call::fresh(), &at(&name(account)), Some(&first.try_into().unwrap()), None)
            .await
            .unwrap()
            .applied();
    }
    let moved = join_all((0..clients).map(|client| {
        let (ns, bank, all_have_read) = (ns.shared(), bank.clone(), all_have_read.clone());
        tokio::spawn(async move {
            let mut dice = StdRng::seed_from_u64(client);
            let (mut committed, mut rejected) = (0, 0);
            while committed < each {
                // Every other client transfers in the opposite direction.
                let from = dice.random_range(0..accounts);
                let to = if client % 2 == 0 { (from + 1) % accounts } else { (from + accounts - 1) % accounts };
                let mut heads = Vec::new();
                for account in 0..accounts {
                    heads.push(ns.head(&at(&name(account))).await.unwrap().unwrap());
                }
                let sum = dice.random_range(1..10).min(bank.amount(&heads[from]));
                let step = |account: usize, by: i64| {
                    let seen = heads[account].clone();
                    let new = bank.balance(seen.v + 1, bank.amount(&seen) + by);
                    push_head(&name(account), cas(seen, new))
                };
                let mut operations = vec![step(from, -sum), step(to, sum)];
                // The transfer also depends on the other accounts, if there are any.
                let others = (0..accounts).filter(|account| ![from, to].contains(account));
                operations.extend(others.map(|other| check(&name(other), is_head(heads[other].clone()))));
                // Only one of the first transfers can be committed: all of them begin at the same heads.
                if committed + rejected == 0 {
                    tokio::time::timeout(LONG, all_have_read.wait()).await.expect("every client has read");
                }
                match ns.commit(&Call::fresh(), &transaction(&operations)).await.unwrap() {
                    Committed::Committed(outcomes) => {
                        assert!(outcomes.iter().all(|outcome| !outcome.rejects()), "{outcomes:?}");
                        committed += 1;
                    }
                    Committed::Rejected(outcomes) => {
                        assert!(
                            outcomes.iter().all(|outcome| {
                                matches!(outcome, OperationOutcome::Passed | OperationOutcome::Conflict { .. })
                            }),
                            "{outcomes:?}"
                        );
                        assert!(outcomes.iter().any(OperationOutcome::rejects));
                        rejected += 1;
                    }
                }
            }
            (committed, rejected)
        })
    }))
    .await;
    let (committed, rejected) = moved.into_iter().map(Result::unwrap).fold((0, 0), |a, b| (a.0 + b.0, a.1 + b.1));
    let (mut total, mut steps) = (0, 0);
    for account in 0..accounts {
        let head = ns.head(&at(&name(account))).await.unwrap().unwrap();
        total += bank.amount(&head);
        steps += head.v - 1;
    }
    println!("{committed} transfers over {accounts} accounts, {rejected} rejected on the way");
    assert_eq!(total, START * accounts as i64, "nothing is lost, and nothing made");
    assert_eq!(steps, 2 * committed as i64, "each transfer moved both of its heads, once");
    assert!(rejected >= clients as usize - 1, "transfers from the same heads did not collide: {rejected}");
}

#[every_backend(Transactions)]
async fn opposite_transfers_between_two_ledgers_lose_nothing(ns: &Fixture) {
    transfers(ns, 2, 6, 15).await;
}

#[every_backend(Transactions)]
async fn transfers_around_three_ledgers_lose_nothing(ns: &Fixture) {
    transfers(ns, 3, 6, 15).await;
}
