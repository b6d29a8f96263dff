//! The tables.

use std::collections::{BTreeMap, BTreeSet};

use hcl_edit::{
    expr::{Expression, Object},
    structure::Body,
};
use nameservice_feed::{DESCRIPTION, Feed};
use nameservice_model::ConcernKind;
use nameservice_projector::records::{RECORDS, table_of};
use nameservice_store::schema::{ATTR_PK, ATTR_SK, ATTR_TTL, INDEXES, SK_META, sk_of};
use nameservice_tests::infra::{MODULE, READ_MODEL, block_of, key, local, resource, strings};
use nameservice_views::{self as feed, KeyType, Projection};

/// Keys, indexes and expiry of a table.
#[derive(Debug, PartialEq)]
pub(super) struct Shape {
    pub keys: (String, String),
    /// Attributes that are keys of the table or an index, all of them strings.
    pub texts: BTreeSet<String>,
    pub indexes: BTreeMap<String, Index>,
    pub ttl: String,
    pub stream: Option<String>,
}

#[derive(Debug, PartialEq)]
pub(super) struct Index {
    pub keys: (String, String),
    /// `None` projects everything, an empty set only the keys.
    pub carries: Option<BTreeSet<String>>,
}

fn text(body: &Body, name: &str) -> String {
    let attribute = body.get_attribute(name).unwrap_or_else(|| panic!("no {name} in {body:?}"));
    attribute.value.as_str().unwrap_or_else(|| panic!("{name} is not text")).to_owned()
}

fn is_on(body: &Body, name: &str) -> bool {
    body.get_attribute(name).is_some_and(|attribute| attribute.value.as_bool() == Some(true))
}

fn keys(body: &Body) -> (String, String) {
    let range_key = body.get_attribute("range_key").map(|_| text(body, "range_key"));
    (text(body, "hash_key"), range_key.unwrap_or_default())
}

/// Returns the shape of a table in the module. Panics unless it is on demand by default, encrypted, and restorable.
fn shape(name: &str) -> Shape {
    let table = resource("aws_dynamodb_table", name);
    assert_eq!(written(table, "billing_mode"), "local.billing_mode");
    assert_eq!(
        local("billing_mode").to_string().trim(),
        r#"var.provisioned_capacity == null ? "PAY_PER_REQUEST" : "PROVISIONED""#
    );
    let block = |name: &'static str| &table.get_blocks(name).next().unwrap_or_else(|| panic!("no {name}")).body;
    assert!(is_on(block("point_in_time_recovery"), "enabled"));
    assert!(is_on(block("server_side_encryption"), "enabled"));
    assert!(is_on(block("ttl"), "enabled"));
    assert_eq!(written(table, "deletion_protection_enabled"), "var.deletion_protection");
    let index = |body: &Body| Index {
        keys: keys(body),
        carries: match text(body, "projection_type").as_str() {
            "ALL" => None,
            "KEYS_ONLY" => Some(BTreeSet::new()),
            "INCLUDE" => Some(strings(&body.get_attribute("non_key_attributes").unwrap().value)),
            other => panic!("{other}"),
        },
    };
    let texts = table.get_blocks("attribute").map(|block| {
        assert_eq!(text(&block.body, "type"), "S");
        text(&block.body, "name")
    });
    let stream = is_on(table, "stream_enabled").then(|| text(table, "stream_view_type"));
    Shape {
        keys: keys(table),
        texts: texts.collect(),
        indexes: table
            .get_blocks("global_secondary_index")
            .map(|block| (text(&block.body, "name"), index(&block.body)))
            .collect(),
        ttl: text(block("ttl"), "attribute_name"),
        stream,
    }
}

/// An attribute, as it is written.
fn written(body: &Body, name: &str) -> String {
    body.get_attribute(name).unwrap_or_else(|| panic!("no {name}")).value.to_string().trim().to_owned()
}

/// The members of an object whose keys are names.
fn members(object: &Object) -> BTreeMap<String, &Expression> {
    object.iter().map(|(name, value)| (key(name), value.expr())).collect()
}

/// Returns the shape that a declaration for the module `read-model` has. Panics if it has what these tests do not read.
fn declared(declaration: &Expression) -> Shape {
    fn word(value: Option<&&Expression>) -> String {
        value.and_then(|value| value.as_str()).unwrap_or_default().to_owned()
    }
    let declaration = members(declaration.as_object().unwrap());
    assert!(declaration.keys().all(|name| ["indexes", "partition_key", "ttl"].contains(&name.as_str())));
    let indexes = members(declaration["indexes"].as_object().unwrap()).into_iter().map(|(name, index)| {
        let index = members(index.as_object().unwrap());
        assert!(index.keys().all(|name| ["partition_key", "sort_key"].contains(&name.as_str())));
        // ALL is what the module projects by default.
        (name, Index { keys: (word(index.get("partition_key")), word(index.get("sort_key"))), carries: None })
    });
    let indexes: BTreeMap<_, _> = indexes.collect();
    let keys = (word(declaration.get("partition_key")), String::new());
    let texts = indexes.values().map(|index| &index.keys).chain([&keys]);
    Shape {
        texts: texts.flat_map(|(hash, range)| [hash, range]).filter(|key| !key.is_empty()).cloned().collect(),
        keys,
        indexes,
        ttl: word(declaration.get("ttl")),
        stream: None,
    }
}

fn pair(hash: &str, range: &str) -> (String, String) {
    (hash.to_owned(), range.to_owned())
}

fn owned(texts: &[&str]) -> BTreeSet<String> {
    texts.iter().map(ToString::to_string).collect()
}

/// The shape of the table, as the store has drawn it.
pub(super) fn drawn() -> Shape {
    let indexes = INDEXES.iter().map(|index| {
        (index.name.to_owned(), Index { keys: pair(index.hash, ATTR_PK), carries: Some(owned(index.include)) })
    });
    let hashes = INDEXES.iter().map(|index| index.hash);
    Shape {
        keys: pair(ATTR_PK, ATTR_SK),
        texts: [ATTR_PK, ATTR_SK].into_iter().chain(hashes).map(ToOwned::to_owned).collect(),
        indexes: indexes.collect(),
        ttl: ATTR_TTL.to_owned(),
        stream: Some("NEW_AND_OLD_IMAGES".to_owned()),
    }
}

#[test]
fn the_table_is_the_one_that_the_store_has_drawn() {
    assert_eq!(shape("this"), drawn());
}

/// The shape that a description draws.
fn described(description: &feed::Description) -> Shape {
    let keys = |index: &feed::Index| {
        let sort_key = index.sort_key.expect("every index is sorted");
        [index.partition_key, sort_key].map(|key| {
            assert_eq!(key.key_type, KeyType::S);
            key.name
        })
    };
    let indexes = description.indexes.iter().map(|index| {
        let [hash, range] = keys(index);
        let carries = match index.projection {
            Projection::All => None,
            Projection::KeysOnly => Some(BTreeSet::new()),
            Projection::Include(attributes) => Some(owned(attributes)),
        };
        (index.name.to_owned(), Index { keys: pair(hash, range), carries })
    });
    let texts = description.indexes.iter().flat_map(keys).chain(description.keys());
    Shape {
        keys: pair(description.partition_key, description.sort_key.unwrap_or_default()),
        texts: texts.map(ToOwned::to_owned).collect(),
        indexes: indexes.collect(),
        ttl: description.ttl.unwrap().to_owned(),
        stream: description.stream.then(|| "NEW_AND_OLD_IMAGES".to_owned()),
    }
}

#[test]
fn the_table_of_the_feed_is_the_one_that_the_feed_has_drawn() {
    assert_eq!(shape("feed"), described(&DESCRIPTION));
    let name = resource("aws_dynamodb_table", "feed").get_attribute("name").unwrap().value.to_string();
    assert_eq!(name.trim().trim_matches('"'), Feed::table_of("${local.table.name}"));
}

#[test]
fn the_table_of_the_read_model_is_the_one_that_its_rows_are_for() {
    let views = block_of(&MODULE, "module", &["views"]);
    assert_eq!(declared(&views.get_attribute("declaration").unwrap().value), described(&RECORDS));
    assert_eq!(text(views, "source"), "../read-model");
    assert_eq!(written(views, "name").trim_matches('"'), table_of("${local.table.name}"));
    for same in ["kms_key_arn", "recovery_period_in_days", "deletion_protection"] {
        assert_eq!(written(views, same), format!("var.{same}"));
    }
    // A rebuild writes all rows in one go, and then there may be no write for weeks.
    assert!(views.get_attribute("provisioned_capacity").is_none());
}

/// Everything that a declaration can have reaches the table: `terraform test` compares the values, this test the defaults.
#[test]
fn a_table_of_a_read_model_has_the_defaults_of_those_that_the_library_makes() {
    let declaration = block_of(&READ_MODEL, "variable", &["declaration"]);
    let defaults = written(declaration, "type").split_whitespace().collect::<Vec<_>>().join(" ");
    for default in [
        format!(r#"partition_key = optional(string, "{}")"#, RECORDS.partition_key),
        r#"projection = optional(string, "ALL")"#.to_owned(),
        "stream = optional(bool, false)".to_owned(),
    ] {
        assert!(defaults.contains(&default), "{default} is not in {defaults}");
    }
}

/// Permissions name indexes: each name is that of one index of one table.
#[test]
fn every_index_can_be_named_in_a_permission() {
    let resources = local("resources").as_object().unwrap();
    let resources: BTreeMap<String, &Expression> =
        resources.iter().map(|(name, value)| (key(name), value.expr())).collect();
    let bucket = |objects| {
        let arn = "arn:${data.aws_partition.this.partition}:s3:::${var.archive.bucket}";
        format!(r#"try("{arn}{objects}", null)"#)
    };
    let mut expected = BTreeMap::from([
        ("table".to_owned(), "local.table.arn".to_owned()),
        ("stream".to_owned(), "local.table.stream_arn".to_owned()),
        ("feed".to_owned(), "aws_dynamodb_table.feed.arn".to_owned()),
        ("feed_stream".to_owned(), "aws_dynamodb_table.feed.stream_arn".to_owned()),
        ("topic".to_owned(), "one(aws_sns_topic.changes[*].arn)".to_owned()),
        ("dead_letters".to_owned(), "aws_sqs_queue.dead_letters.arn".to_owned()),
        ("event_channels".to_owned(), "one(aws_appsync_channel_namespace.records[*].channel_namespace_arn)".to_owned()),
        (
            "graphql_api".to_owned(),
            r#"try("${var.graphql_api.arn}/types/Mutation/fields/publishChange", null)"#.to_owned(),
        ),
        ("views".to_owned(), "one(module.views[*].arn)".to_owned()),
        ("doorbell".to_owned(), "one(aws_sqs_queue.doorbell[*].arn)".to_owned()),
        ("search".to_owned(), r#"try("${var.search.domain_arn}/${var.search.index}/*", null)"#.to_owned()),
        ("search_queue".to_owned(), "one(aws_sqs_queue.search[*].arn)".to_owned()),
        ("search_dead_letters".to_owned(), "one(aws_sqs_queue.search_dead_letters[*].arn)".to_owned()),
        ("archive".to_owned(), bucket("")),
        ("archive_objects".to_owned(), bucket("/${local.archive_folder}*")),
    ]);
    for (table, arn) in [("this", "local.table.arn"), ("feed", "aws_dynamodb_table.feed.arn")] {
        for name in shape(table).indexes.keys() {
            expected.insert(name.clone(), format!(r#""${{{arn}}}/index/{name}""#));
        }
    }
    let found = resources
        .into_iter()
        .map(|(name, value)| (name, value.to_string().trim().to_owned()))
        .collect::<BTreeMap<_, _>>();
    assert_eq!(found, expected);
}

/// The mapping delivers exactly the items whose differences are changes (docs/specification.md, Change feed).
#[test]
fn the_stream_is_filtered_by_the_sort_keys_of_a_record() {
    let mapping = resource("aws_lambda_event_source_mapping", "changes");
    let filter = &mapping.get_blocks("filter_criteria").next().unwrap().body.get_blocks("filter").next().unwrap().body;
    let pattern = filter.get_attribute("pattern").unwrap().value.as_func_call().unwrap();
    assert_eq!(pattern.name.name.as_str(), "jsonencode");
    let mut member = pattern.args.iter().next().unwrap();
    for name in ["dynamodb", "Keys", ATTR_SK, "S"] {
        let object = member.as_object().unwrap();
        assert_eq!(object.len(), 1);
        member = object.iter().find(|(found, _)| key(found) == name).unwrap().1.expr();
    }
    let concerns = ConcernKind::ALL.into_iter().map(sk_of);
    assert_eq!(strings(member), concerns.chain([SK_META]).map(ToOwned::to_owned).collect());
}
