//! Hostile input: none of it is answered with an internal failure, and none of it is stored.
//!
//! `.ci/hostile` runs schemathesis over the whole document; `cargo fuzz` with the corpora of `fuzz/` tries bytes.

pub(crate) mod bytes;
mod found;
mod wire;

use nameservice_tests::prelude::*;

/// Asserts what must hold after hostile input: the record is unchanged, and the service answers.
async fn unharmed(service: &Service, before: &Value) {
    assert_eq!(&service.get("/v1/records/mydb").await.expect(200), before);
    service.get("/v1/health?deep=true").await.expect(200);
}

async fn ledger(service: &Service) -> Value {
    let head = json!({ "id": cid(1).as_str(), "t": 1 });
    service.post("/v1/ledgers", json!({ "address": "mydb", "head": head })).await.expect(201);
    service.get("/v1/records/mydb").await.expect(200)
}
