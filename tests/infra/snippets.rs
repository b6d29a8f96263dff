//! The ways to make the table without Terraform: `infra/table`.

use std::{collections::BTreeMap, fs, path::PathBuf};

use serde_json::Value;

use super::tables::{Index, Shape, drawn};

fn file(name: &str) -> String {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../infra/table");
    fs::read_to_string(folder.join(name)).unwrap()
}

fn json(name: &str) -> Value {
    serde_json::from_str(&file(name)).unwrap()
}

fn string(value: &Value) -> String {
    value.as_str().unwrap_or_else(|| panic!("{value} is not text")).to_owned()
}

fn list(value: &Value) -> &[Value] {
    value.as_array().unwrap_or_else(|| panic!("{value} is no list"))
}

/// Reads hash and range key of a `KeySchema`.
fn keys(schema: &Value) -> (String, String) {
    let of = |kind: &str| {
        let found = list(schema).iter().find(|key| key["KeyType"] == kind);
        string(&found.unwrap_or_else(|| panic!("no {kind} key in {schema}"))["AttributeName"])
    };
    (of("HASH"), of("RANGE"))
}

/// Reads the shape of a table from the members that CreateTable and CloudFormation share.
fn shape(table: &Value, ttl: String) -> Shape {
    assert_eq!(table["BillingMode"], "PAY_PER_REQUEST");
    assert_eq!(table["DeletionProtectionEnabled"], true);
    let texts = list(&table["AttributeDefinitions"]).iter().map(|attribute| {
        assert_eq!(attribute["AttributeType"], "S");
        string(&attribute["AttributeName"])
    });
    let index = |index: &Value| {
        let projection = &index["Projection"];
        let carries = match string(&projection["ProjectionType"]).as_str() {
            "ALL" => None,
            "KEYS_ONLY" => Some([].into()),
            "INCLUDE" => Some(list(&projection["NonKeyAttributes"]).iter().map(string).collect()),
            other => panic!("{other}"),
        };
        (string(&index["IndexName"]), Index { keys: keys(&index["KeySchema"]), carries })
    };
    Shape {
        keys: keys(&table["KeySchema"]),
        texts: texts.collect(),
        indexes: list(&table["GlobalSecondaryIndexes"]).iter().map(index).collect::<BTreeMap<_, _>>(),
        ttl,
        stream: Some(string(&table["StreamSpecification"]["StreamViewType"])),
    }
}

#[test]
fn the_cli_makes_the_table_that_the_store_has_drawn() {
    let request = json("create-table.json");
    assert_eq!(request["StreamSpecification"]["StreamEnabled"], true);
    let script = file("create-table.sh");
    assert!(script.contains("--cli-input-json \"file://$(dirname \"$0\")/create-table.json\""));
    assert!(script.contains("--point-in-time-recovery-specification PointInTimeRecoveryEnabled=true"));
    let (_, ttl) = script.split_once("--time-to-live-specification Enabled=true,AttributeName=").unwrap();
    let ttl = ttl.lines().next().unwrap_or_default();
    assert_eq!(shape(&request, ttl.to_owned()), drawn());
}

#[test]
fn cloudformation_makes_the_table_that_the_store_has_drawn() {
    let template = json("cloudformation.json");
    let table = &template["Resources"]["Table"];
    assert_eq!(table["Type"], "AWS::DynamoDB::Table");
    // A stack that is deleted or replaced leaves the table.
    assert_eq!(table["DeletionPolicy"], "Retain");
    assert_eq!(table["UpdateReplacePolicy"], "Retain");
    let properties = &table["Properties"];
    assert_eq!(properties["PointInTimeRecoverySpecification"]["PointInTimeRecoveryEnabled"], true);
    assert_eq!(properties["SSESpecification"]["SSEEnabled"], true);
    assert_eq!(properties["TimeToLiveSpecification"]["Enabled"], true);
    assert_eq!(shape(properties, string(&properties["TimeToLiveSpecification"]["AttributeName"])), drawn());
}
