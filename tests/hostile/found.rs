//! Bugs that schemathesis found: one test each.

use nameservice_tests::prelude::*;

fn document() -> Value {
    json!(nameservice_cli::routes::document())
}

#[test]
fn something_fits_each_operation_of_a_transaction() {
    let document = document();
    let operations = document["components"]["schemas"]["Operation"]["oneOf"].as_array().unwrap();
    assert_eq!(operations.len(), 5);
    for operation in operations {
        // One closed object: a schema that is closed to `op`, composed with one that requires it, matches nothing.
        assert_eq!(operation["additionalProperties"], json!(false), "{operation}");
        for member in operation["required"].as_array().unwrap() {
            assert!(operation["properties"].get(member.as_str().unwrap()).is_some(), "{member} of {operation}");
        }
        assert!(operation["properties"]["op"]["enum"].is_array() && operation["properties"].get("address").is_some());
    }
}

#[test]
fn a_record_in_a_list_may_fit_a_summary_too() {
    let listed = &document()["components"]["schemas"]["Page_Listed"]["properties"]["records"]["items"];
    assert!(listed["anyOf"].is_array() && listed.get("oneOf").is_none(), "{listed}");
}

#[test]
fn a_body_that_may_be_left_out_is_not_said_to_be_null() {
    let document = document();
    for (path, item) in document["paths"].as_object().unwrap() {
        for (method, operation) in item.as_object().unwrap() {
            let schema = &operation["requestBody"]["content"]["application/json"]["schema"];
            let alternatives = schema["oneOf"].as_array().map(Vec::as_slice).unwrap_or_default();
            assert!(!alternatives.contains(&json!({ "type": "null" })), "{method} {path}");
        }
    }
}

#[test]
fn what_a_change_is_fits_its_schema() {
    let document = document();
    for member in ["change", "concern"] {
        // Composed with `type: object`, the values of an enumeration would match nothing.
        let schema = &document["components"]["schemas"]["Change"]["properties"][member];
        assert!(schema["$ref"].is_string() && schema.get("allOf").is_none(), "{schema}");
    }
}

#[tokio::test]
async fn a_cursor_of_another_list_is_no_failure() {
    let service = Service::start().await;
    for name in ["a", "m", "z"] {
        service.post("/v1/ledgers", json!({ "address": name })).await.expect(201);
    }
    let cursor = Cursor::after_row(RecordKind::Ledger, "m:main").encode();
    let listed = async |name: &str| {
        let page = service.get(&format!("/v1/records?name={name}&cursor={cursor}")).await.expect(200);
        page["records"].as_array().unwrap().len()
    };
    // The list has what follows the cursor, whatever list the cursor is from.
    assert_eq!((listed("a").await, listed("m").await, listed("z").await), (0, 0, 1));
    assert_eq!(listed("l").await, 0);
}
