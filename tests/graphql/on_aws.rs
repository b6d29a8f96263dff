//! The schemas of AppSync (`infra/modules/graphql`) are parts of the one schema, except for what is stated here.

use std::{collections::BTreeMap, fmt::Write as _, fs, path::Path};

use async_graphql::{
    Positioned,
    parser::{
        parse_schema,
        types::{ConstDirective, InputValueDefinition, TypeKind, TypeSystemDefinition},
    },
};

/// Types of AppSync that stand for ours: it has no custom scalars, and its `Int` has 32 bits.
const SCALARS: [(&str, &str); 2] = [("Long", "Float"), ("JSON", "AWSJSON")];
/// Types that only the schema with subscriptions has.
const OF_CHANGES: [&str; 6] = ["Change", "ChangeInput", "ChangeKind", "Concern", "Mutation", "Subscription"];

/// The members of each type: fields with arguments, types and directives, or values, each on a line and in their order.
type Types = BTreeMap<String, Vec<String>>;

fn types(file: &str) -> Types {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(file);
    let text = fs::read_to_string(path).unwrap();
    let definitions = parse_schema(text).unwrap().definitions.into_iter();
    let types = definitions.filter_map(|definition| match definition {
        TypeSystemDefinition::Type(definition) => Some(definition.node),
        _ => None,
    });
    let members = |kind| match kind {
        TypeKind::Object(object) => {
            let fields = object.fields.into_iter().map(|Positioned { node: field, .. }| {
                let arguments = match &field.arguments[..] {
                    [] => String::new(),
                    arguments => format!("({})", arguments.iter().map(input).collect::<Vec<_>>().join(", ")),
                };
                let directives: String = field.directives.iter().map(directive).collect();
                format!("{}{arguments}: {}{directives}", field.name.node, scalar(&field.ty.node.to_string()))
            });
            fields.collect()
        }
        TypeKind::InputObject(object) => object.fields.iter().map(input).collect(),
        TypeKind::Enum(values) => values.values.into_iter().map(|value| value.node.value.node.to_string()).collect(),
        _ => Vec::new(),
    };
    types.map(|definition| (definition.name.node.to_string(), members(definition.kind))).collect()
}

fn input(value: &Positioned<InputValueDefinition>) -> String {
    let mut text = format!("{}: {}", value.node.name.node, scalar(&value.node.ty.node.to_string()));
    if let Some(default) = &value.node.default_value {
        write!(text, " = {}", default.node).unwrap();
    }
    text
}

fn directive(directive: &Positioned<ConstDirective>) -> String {
    let arguments = directive.node.arguments.iter().map(|(name, value)| format!("{}: {}", name.node, value.node));
    let arguments = arguments.collect::<Vec<_>>().join(", ");
    let arguments = if arguments.is_empty() { arguments } else { format!("({arguments})") };
    format!(" @{}{arguments}", directive.node.name.node)
}

/// The type as AppSync has it.
fn scalar(of: &str) -> String {
    let name = of.trim_matches(['[', ']', '!']);
    let known = SCALARS.iter().find(|(ours, _)| *ours == name);
    known.map_or_else(|| of.to_owned(), |(ours, theirs)| of.replacen(ours, theirs, 1))
}

#[test]
fn the_lists_on_aws_are_those_of_the_one_schema() {
    let (ours, lists) = (types("shared/graphql/schema.graphql"), types("infra/modules/graphql/schema.graphql"));
    for (name, members) in &lists {
        let expected: Vec<_> = ours[name]
            .iter()
            // The table of the read model has no whole records, and only lists are queries of it.
            .filter(|member| {
                *member != "record: Record" && (name != "Query" || member.contains("RecordRowConnection!"))
            })
            .cloned()
            .collect();
        assert_eq!(members, &expected, "{name}: run: .ci/generate appsync");
    }
    assert_eq!(lists["Query"].len(), 5);
}

#[test]
fn the_subscription_on_aws_is_that_of_the_one_schema() {
    let (ours, mut theirs) = (types("shared/graphql/schema.graphql"), types("infra/modules/graphql/changes.graphql"));
    for same in ["Change", "ChangeKind", "Concern"] {
        assert_eq!(theirs[same], ours[same], "{same}: run: .ci/generate appsync");
    }
    // The same arguments except `after`, since AppSync holds no changes; null while a subscriber waits.
    let [subscription] = &ours["Subscription"][..] else { panic!("{:?}", ours["Subscription"]) };
    let shorter = subscription.replace(", after: Float)", ")");
    assert_ne!(&shorter, subscription);
    let expected = format!("{} @aws_subscribe(mutations: [\"publishChange\"])", shorter.strip_suffix('!').unwrap());
    assert_eq!(theirs["Subscription"], [expected]);
    // What the consumer publishes is what subscribers get. There is no other mutation.
    assert_eq!(theirs["ChangeInput"], theirs["Change"]);
    assert_eq!(theirs["Mutation"], ["publishChange(change: ChangeInput!): Change @aws_iam"]);
    // Everything else is the same as without subscriptions.
    theirs.retain(|name, _| !OF_CHANGES.contains(&&**name));
    assert_eq!(theirs, types("infra/modules/graphql/schema.graphql"));
}
