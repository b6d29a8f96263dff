use async_trait::async_trait;
use nameservice_model::*;
use serde_json::Value;
use crate::Store;
#[async_trait]
impl GraphSourceLookup for Store {
    async fn graph_source(&self, _address: &Address) -> Result<Option<Record>> { unimplemented!() }
}
#[async_trait]
impl NameService for Store {
    async fn lookup(&self, _address: &Address) -> Result<Option<Record>> { unimplemented!() }
    async fn list(&self, _query: &ListQuery, _visible: Visible<'_>) -> Result<Page<Listed>> { unimplemented!() }
    async fn snapshot(&self, _limit: usize, _after: Option<&Cursor>, _visible: Visible<'_>) -> Result<Page<Record>> { unimplemented!() }
    async fn dependents(&self, _address: &Address) -> Result<Vec<Address>> { unimplemented!() }
    async fn ping(&self) -> Result<()> { unimplemented!() }
}
#[async_trait]
impl Publisher for Store {
    async fn create_ledger(
        &self,
        _call: &Call,
        _address: &Address,
        _head: Option<&Head>,
        _config: Option<&Value>,
    ) -> Result<Created> { unimplemented!() }
    async fn create_branch(
        &self,
        _call: &Call,
        _branch: &Address,
        _source: &Address,
        _at: Option<&Head>,
    ) -> Result<BranchCreated> { unimplemented!() }
    async fn retract(&self, _call: &Call, _address: &Address, _reason: Option<&str>) -> Result<Retracted> { unimplemented!() }
    async fn restore(&self, _call: &Call, _address: &Address) -> Result<Restored> { unimplemented!() }
}
#[async_trait]
impl AdminPublisher for Store {
    async fn purge(&self, _call: &Call, _address: &Address) -> Result<Purged> { unimplemented!() }
    async fn drop_branch(&self, _call: &Call, _address: &Address) -> Result<Dropped> { unimplemented!() }
    async fn reset_head(&self, _call: &Call, _address: &Address, _to: &ResetTo) -> Result<Reset> { unimplemented!() }
}
#[async_trait]
impl RefPublisher for Store {
    async fn head(&self, _address: &Address) -> Result<Option<Head>> { unimplemented!() }
    async fn index(&self, _address: &Address) -> Result<Option<Index>> { unimplemented!() }
    async fn push_head(
        &self,
        _call: &Call,
        _address: &Address,
        _push: &Push<ContentId, Head>,
    ) -> Result<PushOutcome<ContentId>> { unimplemented!() }
    async fn push_index(
        &self,
        _call: &Call,
        _address: &Address,
        _push: &Push<IndexRoot, IndexUpdate>,
    ) -> Result<PushOutcome<IndexRoot>> { unimplemented!() }
}
#[async_trait]
impl StatusPublisher for Store {
    async fn status(&self, _address: &Address) -> Result<Option<Status>> { unimplemented!() }
    async fn push_status(
        &self,
        _call: &Call,
        _address: &Address,
        _push: &Push<StatusPayload, Status>,
    ) -> Result<PushOutcome<StatusPayload>> { unimplemented!() }
}
#[async_trait]
impl ConfigPublisher for Store {
    async fn config(&self, _address: &Address) -> Result<Option<Config>> { unimplemented!() }
    async fn push_config(
        &self,
        _call: &Call,
        _address: &Address,
        _push: &Push<Value, Config>,
    ) -> Result<PushOutcome<Value>> { unimplemented!() }
}
#[async_trait]
impl GraphSourcePublisher for Store {
    async fn publish_graph_source(
        &self,
        _call: &Call,
        _address: &Address,
        _publication: &GraphSourcePublication,
    ) -> Result<Published> { unimplemented!() }
}
