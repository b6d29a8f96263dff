//! Pushes of an index whose answer was lost, repeated after others have written: alone, under a lease and in a transaction. The answer has
//! the revisions that were written, or is outcome unknown (docs/specification.md, Answers).

use futures_util::future::join_all;

use super::*;

/// How an index is pushed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Alone,
    UnderALease,
    InATransaction,
}

impl Way {
    const ALL: [Self; 3] = [Self::Alone, Self::UnderALease, Self::InATransaction];
}

fn root_of(n: i64, rev: i64) -> IndexRoot {
    IndexRoot { id: index_cid(n), rev, graphs: Default::default() }
}

fn entry(n: i64, t: i64, rev: i64) -> (String, Option<GraphIndex>) {
    ("g".to_owned(), Some(GraphIndex { id: index_cid(n), t, rev }))
}

/// What is stored when the push arrives first: the second index at its `t`, and the second of its named graph.
fn stored() -> Index {
    Index::new(2, IndexRoot { graphs: [entry(51, 1, 1)].into(), ..root_of(100, 1) })
}

/// The push of an index, as it is sent each time.
struct Pushed {
    address: String,
    way: Way,
    call: Call,
    push: IndexPush,
}

impl Pushed {
    /// A ledger of its own, with [`stored`] as its index.
    async fn prepare(ns: &Fixture, name: &str, way: Way, push: IndexPush) -> Self {
        let address = format!("{name}-{way:?}").to_lowercase();
        ns.create_ledger(&Call::fresh(), &at(&address), Some(&new_head(1)), None).await.unwrap().applied();
        for new in [
            index(1).with_graph("g", Some(graph(50, 1, None))).unwrap(),
            index(2).with_graph("g", Some(graph(51, 1, None))).unwrap(),
            index_of(100, 2),
        ] {
            let push = IndexPush::overwrite(new);
            ns.push_index(&Call::fresh(), &at(&address), &push).await.unwrap().applied();
        }
        assert_eq!(ns.index(&at(&address)).await.unwrap(), Some(stored()));
        let push = match way {
            Way::UnderALease => push.under(hold(ns, &address).await).unwrap(),
            Way::Alone | Way::InATransaction => push,
        };
        Self { address, way, call: Call::fresh(), push }
    }

    /// Sends it. Returns the value and whether it was replayed.
    async fn send(&self, ns: &Fixture) -> Result<(Index, bool)> {
        let Self { address, way, call, push } = self;
        if *way != Way::InATransaction {
            return match ns.push_index(call, &at(address), push).await? {
                PushOutcome::Updated { value, replayed } => Ok((value, replayed)),
                other => panic!("{address}: {other:?}"),
            };
        }
        let operations = transaction(&[push_head(address, older(head(5))), push_index(address, push.clone())]);
        match ns.commit(call, &operations).await? {
            Committed::Committed(mut outcomes) => match outcomes.pop() {
                Some(OperationOutcome::Updated { value: ConcernState::Index(value), replayed }) => {
                    Ok((value, replayed))
                }
                other => panic!("{address}: {other:?}"),
            },
            Committed::Rejected(outcomes) => panic!("{address}: {outcomes:?}"),
        }
    }

    /// Others replace the index this many times. Returns what they leave.
    async fn replace(&self, ns: &Fixture, times: i64) -> Index {
        for n in 0..times {
            let push = IndexPush::overwrite(index_of(900 + n, 9));
            ns.push_index(&Call::fresh(), &at(&self.address), &push).await.unwrap().applied();
        }
        ns.index(&at(&self.address)).await.unwrap().unwrap()
    }
}

#[every_backend(Transactions, NamedGraphs)]
async fn an_index_push_that_is_repeated_after_others_is_answered_with_the_revisions_that_it_wrote(ns: &Fixture) {
    let named = |rev| Some(graph(52, 1, rev));
    for (name, push, rev, of_graph) in [
        ("again", cas(stored(), index_of(101, 2)), 2, None),
        ("further", cas(stored(), index_of(101, 3)), 0, None),
        ("unstated", cas(Index::new(2, root_of(100, 0)), index_of(101, 3)).with_rev_unstated(), 0, None),
        ("older", older(index_of(101, 3)), 0, None),
        ("named", cas(stored(), index_of(101, 2).with_graph("g", named(None)).unwrap()), 2, Some(2)),
        ("stated", older(index_of(101, 3).with_graph("g", named(Some(7))).unwrap()), 0, Some(7)),
    ] {
        for way in Way::ALL {
            let pushed = Pushed::prepare(ns, name, way, push.clone()).await;
            let (first, replayed) = pushed.send(ns).await.unwrap();
            let root = first.payload.as_ref().unwrap();
            assert_eq!((root.rev, replayed), (rev, false), "{name}, {way:?}");
            let others = pushed.replace(ns, 2).await;
            let (again, replayed) = pushed.send(ns).await.unwrap();
            let root = again.payload.as_ref().unwrap();
            assert_eq!((again.v, &root.id, root.rev), (first.v, &index_cid(101), rev), "{name}, {way:?}");
            if of_graph.is_some() {
                let graph = root.graphs["g"].as_ref();
                assert_eq!(graph.map(|graph| graph.rev), of_graph, "{name}, {way:?}");
            }
            assert!(replayed, "{name}, {way:?}");
            assert_eq!(
                ns.index(&at(&pushed.address)).await.unwrap(),
                Some(others),
                "{name}, {way:?}: nothing is written"
            );
        }
    }
}

#[every_backend(Transactions, NamedGraphs)]
async fn an_index_that_a_transaction_found_stored_is_answered_again_with_its_revision(ns: &Fixture) {
    for (name, push) in [("older", older(index_of(100, 2))), ("expected", cas(index_at(1, 0), index_of(100, 2)))] {
        for way in Way::ALL {
            let pushed = Pushed::prepare(ns, name, way, push.clone()).await;
            for attempt in ["first", "again"] {
                assert_eq!(pushed.send(ns).await.unwrap(), (stored(), true), "{name}, {way:?}, {attempt}");
            }
        }
    }
}

async fn a_repeated_index_push_whose_revisions_cannot_be_known_is_outcome_unknown_and_writes_nothing(ns: &Fixture) {
    use Way::*;
    let named = index_of(101, 3).with_graph("g", Some(graph(52, 1, None))).unwrap();
    let unnamed = Index::new(2, root_of(100, 1));
    let mut repeated = Vec::new();
    for (name, push, others, ways) in [
        ("overwrite", IndexPush::overwrite(index_of(101, 2)), 1, Way::ALL.to_vec()),
        ("further", IndexPush::overwrite(index_of(101, 3)), 1, Way::ALL.to_vec()),
        ("named", older(named.clone()), 1, Way::ALL.to_vec()),
        ("unexpected", cas(unnamed, named), 1, Way::ALL.to_vec()),
        ("unstated", cas(Index::new(2, root_of(100, 0)), index_of(101, 2)).with_rev_unstated(), 1, Way::ALL.to_vec()),
        // The head remembers the transaction, the index does not: it has not written it, or has forgotten it.
        ("stored", older(index_of(100, 2)), 1, vec![InATransaction]),
        ("forgotten", older(index_of(101, 3)), 4, vec![InATransaction]),
    ] {
        for way in ways {
            let pushed = Pushed::prepare(ns, name, way, push.clone()).await;
            pushed.send(ns).await.unwrap();
            let others = pushed.replace(ns, others).await;
            repeated.push(async move {
                let again = pushed.send(ns).await;
                assert!(matches!(again, Err(Error::OutcomeUnknown { .. })), "{name}, {way:?}: {again:?}");
                assert_eq!(ns.index(&at(&pushed.address)).await.unwrap(), Some(others), "{name}, {way:?}");
            });
        }
    }
    join_all(repeated).await;
}

mod a_repeated_index_push_whose_revisions_cannot_be_known_is_outcome_unknown_and_writes_nothing {
    // A client, and so a replica, would repeat it until its deadline.
    crate::contract::on_every_backend! {
        a_repeated_index_push_whose_revisions_cannot_be_known_is_outcome_unknown_and_writes_nothing
            [Transactions, NamedGraphs]
        dynamodb: DynamoDb,
        embedded: Embedded,
        memory: Memory,
        legacy: Legacy,
    }
}

/// The table's reply is lost, and another call replaces the index before the request is sent again.
#[tokio::test]
async fn a_transaction_whose_reply_is_lost_and_whose_index_is_replaced_reports_its_own_revision() {
    for (forgetful, push) in [
        (true, cas(Index::new(2, root_of(100, 1)), index_of(101, 2))),
        (false, cas(Index::new(2, root_of(100, 1)), index_of(101, 2))),
        (false, IndexPush::overwrite(index_of(101, 2))),
        (true, IndexPush::overwrite(index_of(101, 2))),
    ] {
        let table = Table::fresh().await;
        records(&table.store).await;
        for new in [index(2), index_of(100, 2)] {
            table.store.push_index(&Call::fresh(), &at("a"), &IndexPush::overwrite(new)).await.unwrap().applied();
        }
        let table = table.proxied().await;
        if forgetful {
            table.proxy.forget_tokens();
        }
        if push.allows_equal() {
            // The first request only advances, and its condition fails; the second overwrites.
            table.proxy.on("TransactWriteItems", Fault::none());
        }
        let direct = table.direct().clone();
        table.proxy.on(
            "TransactWriteItems",
            Fault::cut_reply().after(move || {
                let direct = direct.clone();
                async move {
                    let push = IndexPush::overwrite(index_of(900, 2));
                    direct.push_index(&Call::fresh(), &at("a"), &push).await.unwrap().applied();
                }
            }),
        );
        let operations = [push_head("a", older(head(2))), push_index("a", push)];
        let outcome = commit(&table.store, &operations).await;
        let own = ConcernState::Index(Index::new(2, root_of(101, 2)));
        assert_eq!(outcome, Committed::Committed(vec![changed(is_head(head(2))), changed(own)]), "{forgetful}");
        assert!(table.proxy.is_spent());
        assert_eq!(table.store.index(&at("a")).await.unwrap(), Some(Index::new(2, root_of(900, 3))));
    }
}

/// The revision is counted from the expected one without a read, also where it is not 0.
#[tokio::test]
async fn a_transaction_that_expects_the_stored_revision_is_one_request() {
    let table = Table::fresh().await;
    records(&table.store).await;
    for new in [index(2), index_of(100, 2), index_of(101, 2)] {
        table.store.push_index(&Call::fresh(), &at("a"), &IndexPush::overwrite(new)).await.unwrap().applied();
    }
    let table = table.proxied().await;
    for (expected, n, requests) in [(root_of(101, 2), 102, 1), (root_of(102, 7), 103, 2)] {
        let rev = n - 99;
        let operations = [push_index("a", cas(Index::new(2, expected), index_of(n, 2)))];
        let outcome = commit(&table.store, &operations).await;
        assert_eq!(outcome, Committed::Committed(vec![changed(ConcernState::Index(Index::new(2, root_of(n, rev))))]));
        assert_eq!(table.proxy.take_requests().len(), requests, "an expected revision is not compared");
    }
}
