use std::collections::HashSet;

use crate::{Address, InvalidPayload, NewHead, NewIndex, Object, check_object, check_watermark};

/// The most records that one graph source may depend on. Replacing all of them involves twice as many, which still fit
/// one DynamoDB transaction of 100 actions.
pub const MAX_DEPENDENCIES: usize = 24;
/// The longest type of a graph source, in bytes: it is the key of an index.
pub const MAX_SOURCE_TYPE_BYTES: usize = 128;

/// A graph source to be created, or the config and dependencies that replace those of an existing one.
#[derive(Clone, Debug, PartialEq)]
pub struct GraphSourcePublication {
    address: Address,
    source_type: String,
    config: Object,
    dependencies: Option<Vec<Address>>,
    expected_v: Option<i64>,
    v: Option<i64>,
}

impl GraphSourcePublication {
    /// Returns a publication of this type, such as `f:Bm25Index`: not blank, at most [`MAX_SOURCE_TYPE_BYTES`], without
    /// control characters. The config is opaque to the nameservice, within the limits of all payloads.
    pub fn new(address: Address, source_type: impl Into<String>, config: Object) -> Result<Self, InvalidPayload> {
        let source_type = source_type.into();
        if source_type.chars().any(char::is_control) {
            return Err(InvalidPayload::new("source_type", "contains a control character"));
        }
        Self::stored(address, source_type, config)
    }

    /// Returns a publication of a graph source that exists elsewhere: other programs set no rules for control characters.
    pub fn stored(address: Address, source_type: impl Into<String>, config: Object) -> Result<Self, InvalidPayload> {
        let source_type = source_type.into();
        if source_type.trim().is_empty() || source_type.len() > MAX_SOURCE_TYPE_BYTES {
            let reason = format!("must not be blank, and may have at most {MAX_SOURCE_TYPE_BYTES} bytes");
            return Err(InvalidPayload::new("source_type", reason));
        }
        check_object(&config).map_err(|error| error.within("config"))?;
        Ok(Self { address, source_type, config, dependencies: None, expected_v: None, v: None })
    }

    /// Sets the records that it depends on: distinct, not the graph source itself, at most [`MAX_DEPENDENCIES`]. By
    /// default, an existing graph source keeps its own.
    pub fn with_dependencies(mut self, dependencies: Vec<Address>) -> Result<Self, InvalidPayload> {
        if dependencies.len() > MAX_DEPENDENCIES {
            return Err(InvalidPayload::new("dependencies", format!("has more than {MAX_DEPENDENCIES} addresses")));
        }
        let mut seen = HashSet::new();
        for (i, address) in dependencies.iter().enumerate() {
            let invalid = |reason: String| Err(InvalidPayload::new(format!("dependencies[{i}]"), reason));
            if *address == self.address {
                return invalid("is the graph source itself".into());
            }
            if !seen.insert(address) {
                return invalid(format!("`{address}` occurs twice"));
            }
        }
        self.dependencies = Some(dependencies);
        Ok(self)
    }

    /// Sets the `v` that the current config must have, 0 if the graph source must not exist.
    pub fn expecting(mut self, v: i64) -> Result<Self, InvalidPayload> {
        self.expected_v = Some(check_watermark("expected_v", v, 0)?);
        Ok(self)
    }

    /// Sets the `v` that the config gets, which must be greater than the current one when it is published. By default
    /// it is one more.
    pub fn with_v(mut self, v: i64) -> Result<Self, InvalidPayload> {
        self.v = Some(check_watermark("v", v, 1)?);
        Ok(self)
    }

    /// Returns the address of the graph source.
    pub const fn address(&self) -> &Address {
        &self.address
    }

    /// Returns its type.
    pub fn source_type(&self) -> &str {
        &self.source_type
    }

    /// Returns its config.
    pub const fn config(&self) -> &Object {
        &self.config
    }

    /// Returns its dependencies; `None` leaves those of an existing graph source unchanged.
    pub fn dependencies(&self) -> Option<&[Address]> {
        self.dependencies.as_deref()
    }

    /// Returns the `v` that the current config must have.
    pub const fn expected_v(&self) -> Option<i64> {
        self.expected_v
    }

    /// Returns the `v` that the config gets, given the current one (0 if there is none); `None` if it would not be
    /// greater.
    pub fn v_after(&self, current: i64) -> Option<i64> {
        match self.v {
            Some(v) => Some(v).filter(|v| *v > current),
            None => Some(current.saturating_add(1)),
        }
    }

    /// Returns the `v` that was set for the config.
    pub const fn v(&self) -> Option<i64> {
        self.v
    }
}

/// The snapshot that a reset sets a ledger to.
#[derive(Clone, Debug, PartialEq)]
pub struct ResetTo {
    head: Option<NewHead>,
    index: Option<NewIndex>,
}

impl ResetTo {
    /// Returns the snapshot of this head and this index; `None` makes them unborn. The index has no named graphs.
    pub fn new(head: Option<NewHead>, index: Option<NewIndex>) -> Result<Self, InvalidPayload> {
        if index.as_ref().is_some_and(|index| !index.graphs().is_empty()) {
            return Err(InvalidPayload::new("index.graphs", "must be empty: a reset removes the named graphs"));
        }
        Ok(Self { head, index })
    }

    /// Returns the head; `None` for unborn.
    pub const fn head(&self) -> Option<&NewHead> {
        self.head.as_ref()
    }

    /// Returns the index; `None` for unborn.
    pub const fn index(&self) -> Option<&NewIndex> {
        self.index.as_ref()
    }

    /// Returns the `t` of the head, 0 for unborn.
    pub fn head_t(&self) -> i64 {
        self.head.as_ref().map_or(0, NewHead::t)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ContentId;

    #[test]
    fn a_graph_source_depends_on_distinct_others() {
        let at = |text: &str| Address::parse(text).unwrap();
        let new = || GraphSourcePublication::new(at("search"), "f:X", Object::new()).unwrap();
        assert!(new().with_dependencies(vec![at("a"), at("b")]).is_ok());
        for (dependencies, path) in [
            (vec![at("search")], "dependencies[0]"),
            (vec![at("a"), at("a:main")], "dependencies[1]"),
            ((0..=MAX_DEPENDENCIES).map(|i| at(&format!("a{i}"))).collect(), "dependencies"),
        ] {
            assert_eq!(new().with_dependencies(dependencies).unwrap_err().path, path);
        }
        assert!(new().expecting(-1).is_err() && new().expecting(0).is_ok());
        assert!(new().with_v(0).is_err());
        assert_eq!((new().v_after(4), new().with_v(9).unwrap().v_after(8)), (Some(5), Some(9)));
        assert_eq!(new().with_v(9).unwrap().v_after(9), None);
        for source_type in [" ", &"s".repeat(129), "f:Bm25\tIndex", "\u{85}"] {
            assert!(GraphSourcePublication::new(at("a"), source_type, Object::new()).is_err());
        }
        assert!(GraphSourcePublication::stored(at("a"), "f:Bm25\tIndex", Object::new()).is_ok());
    }

    #[test]
    fn a_reset_sets_no_named_graphs() {
        let id = ContentId::parse("bafybeigdyrzt5sfp7udm7hu76uh7y26nf3efuylqabf3oclgtqy55fbzdi").unwrap();
        let index = NewIndex::new(id, 1).unwrap();
        assert!(ResetTo::new(None, Some(index.clone())).is_ok());
        assert!(ResetTo::new(None, Some(index.with_graph("g", None).unwrap())).is_err());
    }
}
