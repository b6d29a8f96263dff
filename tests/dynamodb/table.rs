use aws_sdk_dynamodb::types::{KeyType, ProjectionType, StreamViewType, TimeToLiveStatus};
use nameservice_tests::prelude::*;

#[tokio::test]
async fn the_table_is_made_as_the_layout_says() {
    let table = Table::unmade();
    let report = table.store.ensure_table().await.unwrap();
    assert!(report.created);
    assert_eq!(report.lacks, Vec::<String>::new());
    let described = table.client.describe_table().table_name(&table.name).send().await.unwrap().table.unwrap();
    let keys: Vec<_> =
        described.key_schema().iter().map(|key| (key.attribute_name(), key.key_type().clone())).collect();
    assert_eq!(keys, [("pk", KeyType::Hash), ("sk", KeyType::Range)]);
    let stream = described.stream_specification.as_ref().unwrap();
    assert!(stream.stream_enabled);
    assert_eq!(stream.stream_view_type, Some(StreamViewType::NewAndOldImages));
    let mut indexes: Vec<_> = described
        .global_secondary_indexes()
        .iter()
        .map(|index| {
            let projection = index.projection.as_ref().unwrap();
            let mut carried = projection.non_key_attributes().to_vec();
            carried.sort();
            let keys: Vec<_> = index.key_schema().iter().map(|key| key.attribute_name()).collect();
            (index.index_name().unwrap(), keys, projection.projection_type().unwrap().clone(), carried)
        })
        .collect();
    indexes.sort_by_key(|index| index.0);
    let listed = ["branch", "dependencies", "name", "retracted", "source_type"].map(String::from).to_vec();
    assert_eq!(
        indexes,
        [
            ("gsi1-kind", vec!["kind", "pk"], ProjectionType::Include, listed.clone()),
            ("source-type-index", vec!["source_type", "pk"], ProjectionType::Include, listed),
            ("state-index", vec!["status", "pk"], ProjectionType::KeysOnly, vec![]),
        ]
    );
    let ttl = table.client.describe_time_to_live().table_name(&table.name).send().await.unwrap();
    let ttl = ttl.time_to_live_description.unwrap();
    assert_eq!(ttl.attribute_name.as_deref(), Some("ttl"));
    assert!(matches!(ttl.time_to_live_status, Some(TimeToLiveStatus::Enabled | TimeToLiveStatus::Enabling)));
}

#[tokio::test]
async fn a_table_that_is_complete_lacks_nothing() {
    let table = Table::with_stream().await;
    let report = table.store.ensure_table().await.unwrap();
    assert!(!report.created);
    assert_eq!(report.lacks, Vec::<String>::new());
}

#[tokio::test]
async fn a_fresh_table_of_the_tests_lacks_a_stream_and_expiry_alone() {
    let table = Table::fresh().await;
    let report = table.store.check_table().await.unwrap();
    let missing = ["no change feed", "commit log is never trimmed"];
    assert_eq!(report.lacks.len(), missing.len(), "{:?}", report.lacks);
    assert!(missing.iter().zip(&report.lacks).all(|(missing, lack)| lack.contains(missing)), "{:?}", report.lacks);
}

#[tokio::test]
async fn a_table_that_fluree_made_works_and_its_report_names_what_it_lacks() {
    let table = Table::made_by_fluree().await;
    let report = table.store.ensure_table().await.unwrap();
    assert!(!report.created);
    for missing in ["source-type-index", "state-index", "ttl", "no change feed", "commit log is never trimmed"] {
        assert!(report.lacks.iter().any(|sentence| sentence.contains(missing)), "{missing}: {:?}", report.lacks);
    }
    let lacks_stream = report.lacks.iter().any(|sentence| sentence.to_lowercase().contains("stream"));
    assert!(lacks_stream, "{:?}", report.lacks);
    table.store.ping().await.unwrap();
}

#[tokio::test]
async fn a_missing_table_cannot_serve() {
    let table = Table::unmade();
    assert!(table.store.ping().await.is_err());
    let error = table.store.lookup(&at("mydb")).await.unwrap_err();
    assert!(matches!(error, Error::Store { .. }), "{error:?}");
}
