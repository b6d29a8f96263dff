//! The declaration of an attribute.

use aws_sdk_dynamodb::types::AttributeValue;
use nameservice_dynamo::as_integer;
use nameservice_model::RecordKind;

/// The type of an attribute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// A string.
    Text,
    /// A watermark, a counter or a time: a non-negative 64-bit integer.
    Count,
    /// A boolean.
    Truth,
    /// A map.
    Map,
    /// A list of strings.
    List,
}

impl Shape {
    /// Returns DynamoDB's name of the type.
    pub const fn type_name(self) -> &'static str {
        match self {
            Self::Text => "S",
            Self::Count => "N",
            Self::Truth => "BOOL",
            Self::Map => "M",
            Self::List => "L",
        }
    }

    /// Returns the name of the type for readers of item images.
    pub(crate) const fn in_image(self) -> &'static str {
        match self {
            Self::Count => "N (i64)",
            other => other.type_name(),
        }
    }

    /// Returns whether a value is of this type.
    pub(crate) fn is(self, value: &AttributeValue) -> bool {
        match self {
            Self::Text => value.is_s(),
            Self::Count => as_integer(value).is_some(),
            Self::Truth => value.is_bool(),
            Self::Map => value.is_m(),
            Self::List => value.is_l(),
        }
    }

    /// Returns whether a value is valid for a writer of this layout.
    pub(crate) fn fits(self, value: &AttributeValue) -> bool {
        match self {
            Self::Count => as_integer(value).is_some_and(|count| count >= 0),
            Self::List => value.as_l().is_ok_and(|entries| entries.iter().all(AttributeValue::is_s)),
            _ => self.is(value),
        }
    }

    /// Formats the type for a sentence.
    pub(crate) const fn words(self) -> &'static str {
        match self {
            Self::Text => "a string",
            Self::Count => "a count",
            Self::Truth => "true or false",
            Self::Map => "a map",
            Self::List => "a list of strings",
        }
    }
}

/// Who defines an attribute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner {
    /// Fluree reads and writes it too: its name and type are fixed.
    Shared,
    /// Our own addition, which Fluree ignores.
    Ours,
}

/// An attribute of the layout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attribute {
    /// Its name.
    pub name: &'static str,
    /// Its type.
    pub shape: Shape,
    /// Who defines it.
    pub owner: Owner,
    /// The kind of record that has it; `None` if both have it.
    pub only: Option<RecordKind>,
    /// Whether an item that we have written may lack it. Items that others have written may lack any attribute.
    pub nullable: bool,
    /// Whether an image in which it has another type cannot be read as a change. Reads of records treat such an
    /// attribute as absent, but a feed that did so would lose the change silently.
    pub strict: bool,
}

impl Attribute {
    pub(crate) const fn shared(name: &'static str, shape: Shape) -> Self {
        Self { name, shape, owner: Owner::Shared, only: None, nullable: true, strict: false }
    }

    pub(crate) const fn ours(name: &'static str, shape: Shape) -> Self {
        Self { owner: Owner::Ours, ..Self::shared(name, shape) }
    }

    pub(crate) const fn required(self) -> Self {
        Self { nullable: false, ..self }
    }

    pub(crate) const fn only(self, kind: RecordKind) -> Self {
        Self { only: Some(kind), ..self }
    }

    pub(crate) const fn strict(self) -> Self {
        Self { strict: true, ..self }
    }
}
