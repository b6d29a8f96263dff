use utoipa::{
    PartialSchema, ToSchema,
    openapi::{Object, ObjectBuilder, OneOfBuilder, Ref, RefOr, Schema, Type, schema::AnyOfBuilder},
};

use crate::{
    Listed, Record, Summary,
    check::Check,
    requests::{ConfigPush, HeadPush, IndexPush, StatusPush},
};

/// Returns the schema of a map whose values may be null, which the derive macro cannot express.
pub fn map_of_nullable<T: PartialSchema>() -> Object {
    let null = ObjectBuilder::new().schema_type(Type::Null);
    let value = OneOfBuilder::new().item(null).item(T::schema()).build();
    ObjectBuilder::new().additional_properties(Some(Schema::OneOf(value))).build()
}

impl PartialSchema for Listed {
    /// `anyOf` rather than `oneOf`, since a record has all the members of a summary.
    fn schema() -> RefOr<Schema> {
        AnyOfBuilder::new()
            .item(Ref::from_schema_name(Summary::name()))
            .item(Ref::from_schema_name(Record::name()))
            .description(Some("An entry of a list: a summary, or the whole record if `view=full` asks for it."))
            .into()
    }
}

impl ToSchema for Listed {
    fn schemas(schemas: &mut Vec<(String, RefOr<Schema>)>) {
        schemas.push((Summary::name().into_owned(), Summary::schema()));
        schemas.push((Record::name().into_owned(), Record::schema()));
        Summary::schemas(schemas);
        Record::schemas(schemas);
    }
}

/// An operation as the document describes it: `op`, `address`, and the members of a push as its own route takes them.
#[allow(dead_code, reason = "describes a shape, is never made")]
pub(crate) enum Operation {
    /// Moves a head.
    PushHead(HeadPush),
    /// Moves an index.
    PushIndex(IndexPush),
    /// Changes a status.
    PushStatus(StatusPush),
    /// Changes the config of a ledger.
    PushConfig(ConfigPush),
    /// Writes nothing; the concern must have this value.
    Check(Check),
}

impl PartialSchema for Operation {
    /// Each operation is one closed object. A composition of closed objects would match nothing, since each rejects the
    /// members of the others.
    fn schema() -> RefOr<Schema> {
        let operations = [
            ("push_head", "Moves a head.", HeadPush::schema()),
            ("push_index", "Moves an index.", IndexPush::schema()),
            ("push_status", "Changes a status.", StatusPush::schema()),
            ("push_config", "Changes the config of a ledger.", ConfigPush::schema()),
            ("check", "Writes nothing; the concern must have this value.", Check::schema()),
        ];
        let any = operations.into_iter().fold(OneOfBuilder::new(), |any, (op, description, members)| {
            let RefOr::T(Schema::Object(mut object)) = members else { return any };
            object.description = Some(description.to_owned());
            let only = ObjectBuilder::new().schema_type(Type::String).enum_values(Some([op]));
            let address = ObjectBuilder::new().schema_type(Type::String).description(Some("The record."));
            for (name, schema) in [("op", only), ("address", address.examples(["mydb:main"]))] {
                object.properties.insert(name.to_owned(), schema.into());
                object.required.push(name.to_owned());
            }
            any.item(object)
        });
        any.description(Some("An operation. A push has the same members as on its own route.")).into()
    }
}

impl ToSchema for Operation {
    fn schemas(schemas: &mut Vec<(String, RefOr<Schema>)>) {
        HeadPush::schemas(schemas);
        IndexPush::schemas(schemas);
        StatusPush::schemas(schemas);
        ConfigPush::schemas(schemas);
        Check::schemas(schemas);
    }
}
