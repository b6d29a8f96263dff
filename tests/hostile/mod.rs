//! Input that means harm: nothing is answered with a failure of the service's own, and nothing of it is stored.
//!
//! `.ci/hostile` has schemathesis try the whole document; `cargo fuzz` and the corpora of `fuzz/` try bytes.

mod bytes;
mod found;
mod wire;

use nameservice_tests::prelude::*;

/// What must still hold after hostile input: the record is as it was, and the service serves.
async fn unharmed(service: &Service, before: &Value) {
    assert_eq!(&service.get("/v1/records/mydb").await.expect(200), before);
    service.get("/v1/health?deep=true").await.expect(200);
}

async fn ledger(service: &Service) -> Value {
    let head = json!({ "id": cid(1).as_str(), "t": 1 });
    service.post("/v1/ledgers", json!({ "address": "mydb", "head": head })).await.expect(201);
    service.get("/v1/records/mydb").await.expect(200)
}
