//! The attributes of records: what a record says of itself besides its identity, its times, its counts and its concerns.
//!
//! They are declared once, with the [`Record`](crate::Record), by [`record!`]. Whatever treats them alike (items of the table,
//! changes, copies, files) takes them from [`RecordAttributes`], by their names.

use serde_json::Value;

/// A value that an attribute can have. One that says nothing is left out wherever the attribute is shown or stored.
pub(crate) trait Attributable: Sized {
    /// Returns it as JSON; `None` if it says nothing.
    fn to_json(&self) -> Option<Value>;

    /// Reads it; anything of another type says nothing.
    fn of_json(value: Value) -> Self;
}

impl Attributable for bool {
    fn to_json(&self) -> Option<Value> {
        self.then_some(Value::Bool(true))
    }

    fn of_json(value: Value) -> Self {
        value == true
    }
}

impl Attributable for Option<String> {
    fn to_json(&self) -> Option<Value> {
        self.clone().map(Value::String)
    }

    fn of_json(value: Value) -> Self {
        match value {
            Value::String(text) => Some(text),
            _ => None,
        }
    }
}

impl Attributable for Vec<String> {
    fn to_json(&self) -> Option<Value> {
        (!self.is_empty()).then(|| self.clone().into())
    }

    fn of_json(value: Value) -> Self {
        match value {
            Value::Array(values) => values.into_iter().filter_map(Option::<String>::of_json).collect(),
            _ => Self::new(),
        }
    }
}

/// Declares the record and its attributes: each becomes a field of the record and a [`RecordAttribute`], and is part of
/// [`RecordAttributes`]. Its name is that of the member in JSON. The types are those that [`Attributable`] has.
///
/// What has a form of its own for a record says what an attribute is there, in a `match` or a literal that does not
/// compile without it: `schema.rs` of the store, `state/record.rs` of the embedded backend and `log/rows.rs` beside it, the JSON of
/// answers, GraphQL's objects. The suite's `attributes` finds the others.
macro_rules! record {
    (
        $(#[$about:meta])*
        record { $($(#[$field_doc:meta])* $field:ident: $field_type:ty,)* }
        attributes { $($(#[$doc:meta])* $variant:ident => $name:ident: $type:ty,)* }
    ) => {
        $(#[$about])*
        #[derive(Clone, Debug, PartialEq)]
        pub struct Record {
            $($(#[$field_doc])* pub $field: $field_type,)*
            $($(#[$doc])* pub $name: $type,)*
        }

        /// One of the attributes of records.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum RecordAttribute {
            $($(#[$doc])* $variant,)*
        }

        impl RecordAttribute {
            /// Every attribute.
            pub const ALL: &'static [Self] = &[$(Self::$variant),*];

            /// Returns the name in JSON.
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => stringify!($name),)*
                }
            }
        }

        /// The attributes of one record.
        #[derive(Clone, Debug, Default, PartialEq, Eq)]
        pub struct RecordAttributes {
            $($(#[$doc])* pub $name: $type,)*
        }

        impl RecordAttributes {
            /// Returns an attribute as JSON; `None` if it says nothing.
            pub fn get(&self, attribute: RecordAttribute) -> Option<Value> {
                match attribute {
                    $(RecordAttribute::$variant => Attributable::to_json(&self.$name),)*
                }
            }

            /// Sets an attribute to a JSON value; one of another type says nothing.
            pub fn set(&mut self, attribute: RecordAttribute, value: Value) {
                match attribute {
                    $(RecordAttribute::$variant => self.$name = Attributable::of_json(value),)*
                }
            }
        }

        impl Record {
            /// Returns the attributes.
            pub fn attributes(&self) -> RecordAttributes {
                RecordAttributes { $($name: self.$name.clone(),)* }
            }

            /// Returns a live record with these attributes and nothing else: the rest of a literal. No concern has data.
            pub fn base(address: Address, kind: RecordKind, attributes: RecordAttributes) -> Self {
                Self {
                    $($name: attributes.$name,)*
                    address,
                    kind,
                    retracted: false,
                    created_at: None,
                    updated_at: Timestamp::UNIX_EPOCH,
                    branches: 0,
                    dependents: 0,
                    head: None,
                    index: Index::unborn(),
                    status: Status::unborn(),
                    config: Config::unborn(),
                }
            }
        }
    };
}

pub(crate) use record;
