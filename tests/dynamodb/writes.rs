//! Every operation of the store that writes, prepared and made by one name, for tests of what all of them have in common.

use nameservice_tests::prelude::*;

/// An operation that writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Write {
    CreateLedger,
    CreateOverLeftovers,
    CreateByPush,
    CreateBranch,
    PushHead,
    PushFlureesHead,
    PushIndex,
    PushManyGraphs,
    PushStatus,
    PushConfig,
    PushUnderLease,
    Publish,
    Republish,
    Retract,
    Restore,
    Purge,
    Drop,
    Reset,
    Protect,
    Unprotect,
    Acquire,
    AcquireFlurees,
    Refresh,
    Release,
    Commit,
}

impl Write {
    pub(super) const ALL: [Self; 25] = [
        Self::CreateLedger,
        Self::CreateOverLeftovers,
        Self::CreateByPush,
        Self::CreateBranch,
        Self::PushHead,
        Self::PushFlureesHead,
        Self::PushIndex,
        Self::PushManyGraphs,
        Self::PushStatus,
        Self::PushConfig,
        Self::PushUnderLease,
        Self::Publish,
        Self::Republish,
        Self::Retract,
        Self::Restore,
        Self::Purge,
        Self::Drop,
        Self::Reset,
        Self::Protect,
        Self::Unprotect,
        Self::Acquire,
        Self::AcquireFlurees,
        Self::Refresh,
        Self::Release,
        Self::Commit,
    ];

    /// How many requests that write are rejected before the one that is applied.
    pub(super) fn rejected_first(self) -> usize {
        match self {
            // Leftovers are swept first, and a row of Fluree's takes a transaction that checks its record.
            Self::CreateOverLeftovers | Self::PushFlureesHead | Self::AcquireFlurees => 1,
            // The first would create.
            Self::Republish => 1,
            _ => 0,
        }
    }

    /// The record that it is about.
    pub(super) fn address(self, name: &str) -> Address {
        match self {
            Self::CreateBranch | Self::Drop => at(&format!("{name}:dev")),
            _ => at(name),
        }
    }

    /// Creates what it needs. `name` is not in use.
    pub(super) async fn prepare(self, table: &Table, name: &str) {
        let store = &table.store;
        let (address, target) = (at(name), format!("{name}-target"));
        let call = Call::fresh;
        match self {
            Self::CreateLedger | Self::CreateByPush | Self::Publish => {}
            Self::CreateOverLeftovers => {
                table.put(&rows::orphans(address.as_str(), cid(3), 3)).await;
                table.put(&[rows::commit_log(address.as_str(), &cid(3), 3)]).await;
            }
            Self::Republish => {
                store.create_ledger(&call(), &at(&target), None, None).await.unwrap().applied();
                let publication = bm25(&address, json!({ "n": 1 }), &[&target]);
                store.publish_graph_source(&call(), &publication).await.unwrap().applied();
            }
            Self::PushFlureesHead | Self::AcquireFlurees => {
                table.put(&rows::ledger(address.as_str()).commit(cid(1), 1).rows()).await;
            }
            _ => store.create_ledger(&call(), &address, Some(&new_head(1)), None).await.unwrap().applied(),
        }
        match self {
            Self::Drop => {
                store.create_branch(&call(), &self.address(name), &address, None).await.unwrap().applied();
            }
            Self::Restore => store.retract(&call(), &address, None).await.unwrap().applied(),
            Self::Unprotect => assert_eq!(store.protect(&call(), &address, true).await.unwrap(), Protection::Set),
            Self::PushUnderLease | Self::Refresh | Self::Release => {
                store.acquire_lease(&call(), &address, &index_lock("me", 60)).await.unwrap().applied();
            }
            _ => {}
        }
        if matches!(self, Self::Purge | Self::Reset | Self::Drop) {
            let pk = self.address(name);
            let log: Vec<_> = (1..=3).map(|t| rows::commit_log(pk.as_str(), &cid(t), t)).collect();
            table.put(&log).await;
        }
    }

    /// Makes it. Returns whether it was applied, and what it answered.
    pub(super) async fn make(self, store: &Store, call: &Call, name: &str) -> Result<(bool, String)> {
        fn answer(outcome: impl Outcome) -> (bool, String) {
            (outcome.is_applied(), format!("{outcome:?}"))
        }
        let address = &self.address(name);
        Ok(match self {
            Self::CreateLedger | Self::CreateOverLeftovers => {
                answer(store.create_ledger(call, address, Some(&new_head(2)), None).await?)
            }
            Self::CreateByPush => answer(store.push_head(call, address, &first(head(2))).await?),
            Self::CreateBranch => answer(store.create_branch(call, address, &at(name), None).await?),
            Self::PushHead | Self::PushFlureesHead => {
                answer(store.push_head(call, address, &cas(head(1), head(2))).await?)
            }
            Self::PushIndex => answer(store.push_index(call, address, &older(index(2))).await?),
            Self::PushManyGraphs => {
                let graphs = (0..20).map(|n| (format!("g{n}"), Some(graph(n, 2, None))));
                answer(store.push_index(call, address, &older(index(2).with_graphs(graphs).unwrap())).await?)
            }
            Self::PushStatus => {
                answer(store.push_status(call, address, &cas(status(1, "ready"), status(2, "x"))).await?)
            }
            Self::PushConfig => {
                let push = cas(Config::unborn(), new_config(json!({ "a": 1 })));
                answer(store.push_config(call, address, &push).await?)
            }
            Self::PushUnderLease => {
                let push = cas(head(1), head(2)).under(claim_of(LeaseName::INDEX, "me", 1)).unwrap();
                answer(store.push_head(call, address, &push).await?)
            }
            Self::Publish => answer(store.publish_graph_source(call, &bm25(name, json!({ "n": 1 }), &[])).await?),
            Self::Republish => answer(store.publish_graph_source(call, &bm25(name, json!({ "n": 2 }), &[])).await?),
            Self::Retract => answer(store.retract(call, address, None).await?),
            Self::Restore => answer(store.restore(call, address).await?),
            Self::Purge => answer(store.purge(call, address).await?),
            Self::Drop => answer(store.drop_branch(call, address).await?),
            Self::Reset => answer(store.reset_head(call, address, &ResetTo::new(None, None).unwrap()).await?),
            Self::Protect | Self::Unprotect => {
                let outcome = store.protect(call, address, self == Self::Protect).await?;
                (outcome == Protection::Set, format!("{outcome:?}"))
            }
            Self::Acquire | Self::AcquireFlurees => {
                answer(store.acquire_lease(call, address, &index_lock("me", 60)).await?)
            }
            Self::Refresh => answer(store.refresh_lease(call, address, &index_lock("me", 60), 1).await?),
            Self::Release => answer(store.release_lease(call, address, &claim_of(LeaseName::INDEX, "me", 1)).await?),
            Self::Commit => {
                let operations = [
                    Operation::new(address.clone(), cas(head(1), head(2))),
                    Operation::new(address.clone(), cas(Config::unborn(), new_config(json!({ "a": 1 })))),
                ];
                answer(store.commit(call, &transaction(&operations)).await?)
            }
        })
    }
}
