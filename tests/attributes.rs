//! Every attribute of a record is in every form that a record has. A new one is declared with the record; these tests name
//! the places that miss it.

use std::collections::HashMap;

use nameservice_api as api;
use nameservice_embedded::{
    Embedded, Options,
    state::{Portable, Replicated},
};
use nameservice_model::{RecordAttribute as Attribute, RecordAttributes as Attributes};
use nameservice_store::{StreamRecord, schema};
use nameservice_tests::prelude::*;

/// Returns a value that the attribute can have.
fn sample(attribute: Attribute) -> Value {
    let mut attributes = Attributes::default();
    let samples = [json!(true), json!("x"), json!(["x:main"])];
    let fits = samples.into_iter().find(|sample| {
        attributes.set(attribute, sample.clone());
        attributes.get(attribute).as_ref() == Some(sample)
    });
    fits.unwrap_or_else(|| panic!("no sample is of the type of {attribute:?}"))
}

/// Returns a graph source that has this attribute, besides its type.
fn with(attribute: Attribute) -> Record {
    let mut attributes = Attributes { source_type: Some("f:Any".into()), ..Attributes::default() };
    attributes.set(attribute, sample(attribute));
    Record {
        status: Status::new(1, StatusPayload::state(StatusPayload::READY)),
        config: Config::new(1, json!({})),
        ..Record::base(at("search"), RecordKind::GraphSource, attributes)
    }
}

/// Returns the same graph source without the attribute; its type stays.
fn without(record: &Record, attribute: Attribute) -> Record {
    let mut attributes = record.attributes();
    attributes.set(attribute, if attribute == Attribute::SourceType { json!("f:Other") } else { Value::Null });
    Record { ..Record::base(record.address.clone(), record.kind, attributes) }
}

fn portable(record: Record) -> Portable {
    Portable { record, lease: None, token: 0, calls: Default::default() }
}

fn camel_case(name: &str) -> String {
    let mut words = name.split('_');
    let first = words.next().unwrap_or_default().to_owned();
    words.fold(first, |all, word| all + &word[..1].to_uppercase() + &word[1..])
}

/// Returns the text of a type of the schema.
fn type_of<'a>(sdl: &'a str, name: &str) -> &'a str {
    let (_, rest) = sdl.split_once(&format!("\ntype {name} {{")).unwrap();
    rest.split_once("\n}").unwrap().0
}

#[test]
fn json_shows_every_attribute_and_reads_it_back() {
    for attribute in Attribute::ALL.iter().copied() {
        let record = with(attribute);
        let shown = api::Record::from(&record);
        let json = serde_json::to_value(&shown).unwrap();
        assert_eq!(json[attribute.as_str()], sample(attribute), "{json}");
        assert_eq!(Record::try_from(shown).unwrap(), record);
        let absent =
            serde_json::to_value(api::Record::from(&Record::base(at("a"), RecordKind::Ledger, Attributes::default())));
        assert_eq!(absent.unwrap().get(attribute.as_str()), None);
    }
}

#[test]
fn every_attribute_is_described_for_callers_and_operators() {
    let openapi: Value = serde_json::from_str(include_str!("../functions/openapi_get/openapi.json")).unwrap();
    let sdl = nameservice_graphql::sdl();
    let (http, specification) = (include_str!("../docs/http.md"), include_str!("../docs/specification.md"));
    for attribute in Attribute::ALL.iter().copied() {
        let name = attribute.as_str();
        let property = &openapi["components"]["schemas"]["Record"]["properties"][name];
        assert!(property["description"].is_string(), "OpenAPI does not describe `{name}`: run .ci/generate");
        let field = format!("\t{}: ", camel_case(name));
        assert!(type_of(&sdl, "Record").contains(&field), "GraphQL's Record has no `{name}`");
        assert!(http.contains(&format!("`{name}`")), "docs/http.md does not mention `{name}`");
        let stored = schema::name_of(attribute);
        assert!(specification.contains(&format!("`{stored}")), "docs/specification.md does not mention `{stored}`");
        let layout = schema::attributes_of(schema::SK_META).find(|known| known.name == stored);
        assert!(
            layout.is_some_and(|known| known.strict || attribute == Attribute::Dependencies),
            "{stored}: {layout:?}"
        );
    }
}

/// Returns what the change that creates the record's meta item shows.
async fn shown_in_the_stream(table: &Table, address: &str) -> ChangePayload {
    let meta = table.row(address, "meta").await.unwrap();
    let record = StreamRecord {
        event_id: "e".into(),
        sequence_number: "1".into(),
        written_at: jiff::Timestamp::UNIX_EPOCH,
        keys: rows::to_item(&rows::bare(address, "meta")),
        old: HashMap::new(),
        new: rows::to_item(&meta),
    };
    record.difference().unwrap().unwrap().payload
}

#[tokio::test]
async fn the_table_holds_every_attribute_and_its_stream_shows_it() {
    let table = Table::fresh().await;
    for attribute in Attribute::ALL.iter().copied() {
        let expected = with(attribute);
        table.put(&rows::graph_source("search:main", "f:Any", "{}", &[])).await;
        let value = serde_dynamo::to_attribute_value(sample(attribute)).unwrap();
        table.set("search:main", "meta", schema::name_of(attribute), rows::from_attribute(&value)).await;
        let found = table.store.lookup(&expected.address).await.unwrap().unwrap();
        assert_eq!(found.attributes(), expected.attributes(), "{attribute:?}");

        let shown = shown_in_the_stream(&table, "search:main").await;
        assert_eq!(shown, ChangePayload::Value(expected.attributes().change_payload(false)));
    }
}

/// A row without a type is not written by the service, but by whoever shares the table.
#[tokio::test]
async fn a_change_of_a_graph_source_without_a_type_shows_what_it_depends_on_and_a_replica_keeps_it() {
    // The console's tests read it, too.
    let payload: Value = serde_json::from_str(include_str!("fixtures/graph-source-without-type.json")).unwrap();
    let table = Table::fresh().await;
    table.put(&rows::ledger("mydb:main").rows()).await;
    let mut source = rows::graph_source("search:main", "f:Any", "{}", &["mydb:main"]);
    source[0].remove("source_type");
    source[0].insert("retracted".into(), rows::truth(true));
    table.put(&source).await;
    let found = table.store.lookup(&at("search")).await.unwrap().unwrap();
    assert_eq!((&found.source_type, &*found.dependencies), (&None, &["mydb:main".to_owned()][..]));
    assert_eq!(shown_in_the_stream(&table, "search:main").await, ChangePayload::Value(payload));

    let names = Embedded::memory(Options::default()).unwrap();
    names.observe(&found.address, Some(portable(found.clone()))).await.unwrap();
    let changes = names.history(&found.address, &HistoryQuery::default()).await.unwrap().changes;
    let replica = Embedded::memory_replica(Options::default()).unwrap();
    let replicated = |change: &Change| Replicated { change: change.clone(), payload: None, is_orphan: false };
    replica.replicate(changes.iter().map(replicated).collect()).await.unwrap();
    assert_eq!(replica.lookup(&found.address).await.unwrap().unwrap().dependencies, found.dependencies);
}

#[tokio::test]
async fn the_log_keeps_every_attribute_and_its_changes_carry_it_to_replicas() {
    for attribute in Attribute::ALL.iter().copied() {
        let directory = tempfile::tempdir().unwrap();
        let record = with(attribute);
        let names = Embedded::open(directory.path(), Options::default()).unwrap();
        names.observe(&record.address, Some(portable(record.clone()))).await.unwrap();
        drop(names);

        let names = Embedded::open(directory.path(), Options::default()).unwrap();
        let found = names.lookup(&record.address).await.unwrap().unwrap();
        assert_eq!(found.attributes(), record.attributes(), "after a restart");
        let other = without(&record, attribute);
        names.observe(&record.address, Some(portable(other.clone()))).await.unwrap();
        names.observe(&record.address, Some(portable(record.clone()))).await.unwrap();

        let changes = names.history(&record.address, &HistoryQuery::default()).await.unwrap().changes;
        let metas: Vec<_> = changes.iter().filter(|change| change.part == ChangedPart::Meta).collect();
        let payloads: Vec<_> = metas.iter().map(|change| &change.payload).collect();
        let [with, without] =
            [&record, &other].map(|record| ChangePayload::Value(record.attributes().change_payload(false)));
        assert_eq!(payloads, [&with, &without, &with], "{attribute:?}: a difference is a change");

        let replica = Embedded::memory_replica(Options::default()).unwrap();
        let replicated = |change: &Change| Replicated { change: change.clone(), payload: None, is_orphan: false };
        replica.replicate(changes.iter().map(replicated).collect()).await.unwrap();
        let found = replica.lookup(&record.address).await.unwrap().unwrap();
        assert_eq!(found.attributes(), record.attributes(), "a replica of changes");
        let replica = Embedded::memory_replica(Options::default()).unwrap();
        replica.adopt(vec![record.clone()], 1).await.unwrap();
        let found = replica.lookup(&record.address).await.unwrap().unwrap();
        assert_eq!(found.attributes(), record.attributes(), "a replica of a snapshot");
    }
}
