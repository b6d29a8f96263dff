//! What still works while a service is unavailable.
//!
//! Such a test waits for as long as a write is retried. Tests begin in the order of their names, and the name of this module lets
//! the others run meanwhile.

use super::{
    free_address,
    replica::{ask, eventually, head_t, header, is_ready, push, spawn_replica},
    run, spawn_serve_with,
};

#[test]
fn a_replica_continues_without_its_upstream_and_reconnects_to_it() {
    let parent = tempfile::tempdir().unwrap();
    let data = parent.path().join("upstream");
    let listen = free_address();
    let mut upstream = spawn_serve_with(&data, &["--listen", &listen]);
    run(&["--url", &upstream.url], "create mydb");
    let replica_data = parent.path().join("replica");
    let mut replica = spawn_replica(&replica_data, &upstream.url);
    eventually("the first snapshot", || is_ready(&replica.url));
    assert_eq!(push(&replica.url, 4), 200);
    upstream.kill();
    assert_eq!(head_t(&replica.url), 4);
    assert_eq!(push(&replica.url, 5), 503);
    eventually("the degraded health", || ask(&replica.url, "GET", "/v1/health", "").2["status"] == "degraded");
    // It starts from its own disk.
    replica.kill();
    let replica = spawn_replica(&replica_data, &upstream.url);
    assert_eq!(head_t(&replica.url), 4);
    let (_, head, _) = ask(&replica.url, "GET", "/v1/records/mydb", "");
    assert!(header(&head, "age").is_some(), "{head}");
    assert_eq!(ask(&replica.url, "GET", "/v1/health", "").2["status"], "degraded");
    let upstream = spawn_serve_with(&data, &["--listen", &listen]);
    assert_eq!(push(&upstream.url, 6), 200);
    eventually("what was missed", || head_t(&replica.url) == 6);
    assert_eq!(push(&replica.url, 7), 200);
    assert_eq!(head_t(&replica.url), 7);
    assert_eq!(ask(&replica.url, "GET", "/v1/health", "").2["status"], "ok");
}
