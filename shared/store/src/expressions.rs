//! Every condition and update, composed from the names in [`crate::schema`].
//!
//! An attribute's alias is `#` and its name, so that one alias can never mean two attributes; values are numbered.

mod requests;

use std::collections::HashMap;

use aws_sdk_dynamodb::types::AttributeValue;
use nameservice_model::{LeaseClaim, MAX_WATERMARK, NewHead, RecordKind, RequestId, last_expiry};

use crate::{
    items::{self, Item, number, present, string},
    schema::*,
};

pub(crate) use requests::Action;

/// A condition and an update that are being built.
#[derive(Clone, Debug, Default)]
pub(crate) struct Expression {
    names: HashMap<String, String>,
    values: HashMap<String, AttributeValue>,
    sets: Vec<String>,
    removes: Vec<String>,
    conditions: Vec<String>,
}

/// The key of one item.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Key {
    pub(crate) pk: String,
    pub(crate) sk: String,
}

impl Key {
    pub(crate) fn new(pk: impl ToString, sk: impl ToString) -> Self {
        Self { pk: pk.to_string(), sk: sk.to_string() }
    }

    pub(crate) fn meta(pk: impl ToString) -> Self {
        Self::new(pk, SK_META)
    }

    pub(crate) fn item(&self) -> Item {
        Item::from([(ATTR_PK.to_owned(), string(&self.pk)), (ATTR_SK.to_owned(), string(&self.sk))])
    }
}

impl Expression {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    fn name(&mut self, attribute: &str) -> String {
        // Rows of other programs may have attribute names that are not valid in an alias.
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
        if attribute.starts_with('_') || !attribute.bytes().all(plain) {
            return self.numbered(attribute);
        }
        let alias = format!("#{attribute}");
        self.names.insert(alias.clone(), attribute.to_owned());
        alias
    }

    /// Returns an alias for any name. It cannot clash with the aliases made from names, which do not begin with `_`.
    fn numbered(&mut self, name: &str) -> String {
        if let Some((alias, _)) = self.names.iter().find(|(alias, of)| alias.starts_with("#_") && *of == name) {
            return alias.clone();
        }
        let alias = format!("#_{}", self.names.len());
        self.names.insert(alias.clone(), name.to_owned());
        alias
    }

    /// Returns a path into a map. The member is named by a caller, so its alias must not clash with any other.
    fn member(&mut self, attribute: &str, member: &str) -> String {
        let (map, alias) = (self.name(attribute), self.numbered(member));
        format!("{map}.{alias}")
    }

    fn value(&mut self, value: AttributeValue) -> String {
        let alias = format!(":v{}", self.values.len());
        self.values.insert(alias.clone(), value);
        alias
    }

    // ---- updates ----

    pub(crate) fn set(&mut self, attribute: &str, value: AttributeValue) {
        let (name, value) = (self.name(attribute), self.value(value));
        self.sets.push(format!("{name} = {value}"));
    }

    pub(crate) fn remove(&mut self, attribute: &str) {
        let name = self.name(attribute);
        self.removes.push(name);
    }

    /// Sets the attribute, or removes it for `None`: an absent value is an absent attribute.
    pub(crate) fn put(&mut self, attribute: &str, value: Option<AttributeValue>) {
        match value {
            Some(value) => self.set(attribute, value),
            None => self.remove(attribute),
        }
    }

    /// Adds to a counter, which starts at 0 if it is absent.
    pub(crate) fn add(&mut self, attribute: &str, by: i64) {
        self.add_from(attribute, 0, by);
    }

    /// Adds to a counter, which starts at `start` if it is absent.
    pub(crate) fn add_from(&mut self, attribute: &str, start: i64, by: i64) {
        let name = self.name(attribute);
        let (start, by) = (self.value(number(start)), self.value(number(by)));
        self.sets.push(format!("{name} = if_not_exists({name}, {start}) + {by}"));
    }

    /// Sets one member of a map that exists.
    pub(crate) fn set_member(&mut self, attribute: &str, member: &str, value: AttributeValue) {
        let (path, value) = (self.member(attribute, member), self.value(value));
        self.sets.push(format!("{path} = {value}"));
    }

    /// Sets the attributes that every write of every item sets.
    pub(crate) fn touch(&mut self, now_ms: i64) {
        self.set(ATTR_SCHEMA, number(SCHEMA_VERSION));
        self.set(ATTR_UPDATED_AT_MS, number(now_ms));
    }

    /// Adds 1 to a counter that may not pass [`MAX_WATERMARK`]. Others may have set it to NULL, or to anything but a number:
    /// DynamoDB cannot add to that, so the condition rejects it, and once it was seen, it counts as absent.
    pub(crate) fn increment(&mut self, attribute: &str, start: i64, seen: Option<&Item>) {
        if let Some(stored) = seen.and_then(|seen| unreadable(seen, attribute)) {
            self.equals(attribute, stored.clone());
            self.set(attribute, number(start.saturating_add(1)));
            return;
        }
        self.add_from(attribute, start, 1);
        let (name, bound) = (self.name(attribute), self.value(number(MAX_WATERMARK)));
        self.require(format!("(attribute_not_exists({name}) OR {name} < {bound})"));
    }

    /// Adds 1 to a counter of references, on the condition that it is a number or absent. `unreadable` is what it was seen to
    /// be instead: that counts as absent.
    pub(crate) fn count(&mut self, attribute: &str, unreadable: Option<&AttributeValue>) {
        if let Some(stored) = unreadable {
            self.equals(attribute, stored.clone());
            self.set(attribute, number(1));
            return;
        }
        let (name, a_number) = (self.name(attribute), self.value(string("N")));
        self.require(format!("(attribute_not_exists({name}) OR attribute_type({name}, {a_number}))"));
        self.add(attribute, 1);
    }

    /// Remembers this call and the three before it in the item, and rejects a call whose key is remembered.
    pub(crate) fn by_call(&mut self, request_id: &RequestId) {
        self.remember(&[request_id.as_str()]);
        self.not_by_call(request_id);
    }

    /// Remembers these calls, the newest first, and as many as fit of those that the item remembers.
    pub(crate) fn remember(&mut self, calls: &[&str]) {
        let ids = ATTR_REQUEST_IDS.map(|attribute| self.name(attribute));
        // DynamoDB rejects an expression with a value that it does not use.
        let none = (calls.len() < ids.len()).then(|| self.value(string(NO_REQUEST)));
        for (n, id) in ids.iter().enumerate() {
            let remembered = match calls.get(n) {
                Some(call) => self.value(string(*call)),
                // Right-hand sides read the item as it was before the update, so that all ids shift.
                None => {
                    let none = none.as_deref().unwrap_or_default();
                    format!("if_not_exists({}, {none})", ids[n - calls.len()])
                }
            };
            self.sets.push(format!("{id} = {remembered}"));
        }
    }

    // ---- conditions ----

    pub(crate) fn require(&mut self, condition: String) {
        self.conditions.push(condition);
    }

    /// Adds the condition of [`Self::by_call`]: none of the calls that the item remembers has the caller and the key of
    /// this one. Whether it was this call or another request is decided from the item that a rejection returns.
    pub(crate) fn not_by_call(&mut self, request_id: &RequestId) {
        let ids = ATTR_REQUEST_IDS.map(|attribute| self.name(attribute));
        let prefix = self.value(string(request_id.prefix()));
        let remembered = ids.map(|id| format!("begins_with({id}, {prefix})")).join(" OR ");
        self.require(format!("NOT ({remembered})"));
    }

    /// This very call is not one of those that the item remembers.
    pub(crate) fn not_this_call(&mut self, request_id: &RequestId) {
        let ids = ATTR_REQUEST_IDS.map(|attribute| self.name(attribute));
        let id = self.value(string(request_id.as_str()));
        let remembered = ids.map(|remembered| format!("{remembered} = {id}")).join(" OR ");
        self.require(format!("NOT ({remembered})"));
    }

    pub(crate) fn exists(&mut self, attribute: &str) {
        let name = self.name(attribute);
        self.require(format!("attribute_exists({name})"));
    }

    pub(crate) fn is_number(&mut self, attribute: &str) {
        let (name, number) = (self.name(attribute), self.value(string("N")));
        self.require(format!("attribute_type({name}, {number})"));
    }

    pub(crate) fn not_exists(&mut self, attribute: &str) {
        let name = self.name(attribute);
        self.require(format!("attribute_not_exists({name})"));
    }

    /// Not marked as retracted. `NOT (a = b)` also holds if the attribute is missing.
    pub(crate) fn live(&mut self) {
        let (name, yes) = (self.name(ATTR_RETRACTED), self.value(AttributeValue::Bool(true)));
        self.require(format!("NOT ({name} = {yes})"));
    }

    /// Not marked as protected.
    pub(crate) fn unprotected(&mut self) {
        let (name, marked) = (self.name(ATTR_PROTECTED), self.value(AttributeValue::Bool(true)));
        self.require(format!("NOT ({name} = {marked})"));
    }

    pub(crate) fn retracted(&mut self) {
        self.equals(ATTR_RETRACTED, AttributeValue::Bool(true));
    }

    /// A record exists here (a meta item without `kind` is not one).
    pub(crate) fn record_exists(&mut self) {
        self.exists(ATTR_KIND);
    }

    /// The meta item is still that of the record that was read: neither gone, nor that of another record which was
    /// created since at the same address.
    pub(crate) fn same_record(&mut self, seen: &Item) {
        self.record_exists();
        for attribute in [ATTR_KIND, ATTR_CREATED_AT, ATTR_LIFE] {
            self.is(attribute, present(seen, attribute).cloned());
        }
    }

    pub(crate) fn kind_is(&mut self, kind: RecordKind) {
        self.equals(ATTR_KIND, string(kind.as_str()));
    }

    pub(crate) fn equals(&mut self, attribute: &str, value: AttributeValue) {
        let (name, value) = (self.name(attribute), self.value(value));
        self.require(format!("{name} = {value}"));
    }

    /// Equal to the value or absent, for a value that is the attribute's default. A NULL counts as absent.
    pub(crate) fn equals_or_absent(&mut self, attribute: &str, value: AttributeValue) {
        let absent = self.absent(attribute);
        let (name, value) = (self.name(attribute), self.value(value));
        self.require(format!("({name} = {value} OR {absent})"));
    }

    /// Equal to the value, or absent if there is none.
    pub(crate) fn is(&mut self, attribute: &str, value: Option<AttributeValue>) {
        match value {
            Some(value) => self.equals(attribute, value),
            None => {
                let absent = self.absent(attribute);
                self.require(absent);
            }
        }
    }

    /// Returns the condition that the attribute is absent or NULL, as text.
    pub(crate) fn absent(&mut self, attribute: &str) -> String {
        let (name, null) = (self.name(attribute), self.value(string("NULL")));
        format!("(attribute_not_exists({name}) OR attribute_type({name}, {null}))")
    }

    /// Below the bound, or absent.
    pub(crate) fn below(&mut self, attribute: &str, bound: i64) {
        let absent = self.absent(attribute);
        let (name, bound) = (self.name(attribute), self.value(number(bound)));
        self.require(format!("({name} < {bound} OR {absent})"));
    }

    /// At least the bound.
    pub(crate) fn at_least(&mut self, attribute: &str, bound: i64) {
        let (name, bound) = (self.name(attribute), self.value(number(bound)));
        self.require(format!("{name} >= {bound}"));
    }

    /// The head is this one, or one at a later `t`.
    pub(crate) fn reaches(&mut self, head: &NewHead) {
        let [id, at] = [ATTR_COMMIT_ID, ATTR_COMMIT_T].map(|attribute| self.name(attribute));
        let (is, t) = (self.value(string(head.id().as_str())), self.value(number(head.t())));
        self.require(format!("({at} > {t} OR ({at} = {t} AND {id} = {is}))"));
    }

    /// At most the bound.
    pub(crate) fn at_most(&mut self, attribute: &str, bound: i64) {
        let (name, bound) = (self.name(attribute), self.value(number(bound)));
        self.require(format!("{name} <= {bound}"));
    }

    /// The counter of references is 0, or is absent or not a number.
    pub(crate) fn no_references(&mut self, attribute: &str) {
        let (name, zero, a_number) = (self.name(attribute), self.value(number(0)), self.value(string("N")));
        self.require(format!("({name} <= {zero} OR NOT attribute_type({name}, {a_number}))"));
    }

    /// Not both of these: the value that is about to be written is not stored already.
    pub(crate) fn not_both(&mut self, a: (&str, AttributeValue), b: (&str, AttributeValue)) {
        let [a, b] = [a, b].map(|(attribute, value)| format!("{} = {}", self.name(attribute), self.value(value)));
        self.require(format!("NOT ({a} AND {b})"));
    }

    /// The default context of a ledger is this one, whichever attribute holds it (see [`crate::items`]).
    pub(crate) fn default_context_is(&mut self, id: Option<&str>) {
        let [deployed, guide, ours] =
            [ATTR_DEFAULT_CONTEXT_ADDRESS, ATTR_DEFAULT_CONTEXT_ID, ATTR_REQUEST_IDS[0]].map(|a| self.name(a));
        let no_deployed = self.absent(ATTR_DEFAULT_CONTEXT_ADDRESS);
        match id {
            Some(id) => {
                let id = self.value(string(id));
                self.require(format!(
                    "({deployed} = {id} OR ({no_deployed} AND attribute_not_exists({ours}) AND {guide} = {id}))"
                ));
            }
            None => {
                let no_guide = self.absent(ATTR_DEFAULT_CONTEXT_ID);
                self.require(format!("({no_deployed} AND (attribute_exists({ours}) OR {no_guide}))"));
            }
        }
    }

    /// `rev` either belongs to this index or was never set, so that it can be incremented.
    pub(crate) fn rev_speaks_of(&mut self, id: &str) {
        let [rev, rev_id] = [ATTR_REV, ATTR_REV_ID].map(|attribute| self.name(attribute));
        let id = self.value(string(id));
        self.require(format!("({rev_id} = {id} OR attribute_not_exists({rev}))"));
    }

    /// `graphs` is a map, so that paths into it can be set.
    pub(crate) fn graphs_is_map(&mut self) {
        let (graphs, map) = (self.name(ATTR_GRAPHS), self.value(string("M")));
        self.require(format!("attribute_type({graphs}, {map})"));
    }

    /// This named graph has no index, or one at a lower `t`.
    pub(crate) fn graph_below(&mut self, graph: &str, t: i64) {
        let path = self.member(ATTR_GRAPHS, graph);
        let at = self.name(MEMBER_T);
        let (null, t) = (self.value(string("NULL")), self.value(number(t)));
        self.require(format!("(attribute_not_exists({path}) OR attribute_type({path}, {null}) OR {path}.{at} < {t})"));
    }

    /// This named graph has exactly this entry; `None` for one that is absent or NULL.
    pub(crate) fn graph_is(&mut self, graph: &str, entry: Option<AttributeValue>) {
        let path = self.member(ATTR_GRAPHS, graph);
        match entry {
            Some(entry) => {
                let entry = self.value(entry);
                self.require(format!("{path} = {entry}"));
            }
            None => {
                let null = self.value(string("NULL"));
                self.require(format!("(attribute_not_exists({path}) OR attribute_type({path}, {null}))"));
            }
        }
    }

    /// At least one of these named graphs is absent or has an index.
    pub(crate) fn any_graph_is_not_null(&mut self, graphs: &[&str]) {
        let null = self.value(string("NULL"));
        let nulls = graphs.iter().map(|graph| format!("attribute_type({}, {null})", self.member(ATTR_GRAPHS, graph)));
        let nulls = nulls.collect::<Vec<_>>().join(" AND ");
        self.require(format!("NOT ({nulls})"));
    }

    /// No named graph has an entry.
    pub(crate) fn no_graphs(&mut self) {
        let absent = self.absent(ATTR_GRAPHS);
        let (graphs, none) = (self.name(ATTR_GRAPHS), self.value(AttributeValue::M(HashMap::new())));
        self.require(format!("({graphs} = {none} OR {absent})"));
    }

    /// The lease is free for this holder: there is none, or it has expired, or its expiry is further ahead than any lease's
    /// can be, or the holder has it already.
    pub(crate) fn lease_is_free_for(&mut self, holder: &str, now_s: i64) {
        let absent = self.absent(ATTR_LEASE);
        let [held_by, expires] = [MEMBER_LEASE_HOLDER, MEMBER_LEASE_EXPIRES_AT].map(|m| self.member(ATTR_LEASE, m));
        let (holder, now) = (self.value(string(holder)), self.value(number(now_s)));
        let last = self.value(number(last_expiry(now_s)));
        self.require(format!("({absent} OR {expires} <= {now} OR {expires} > {last} OR {held_by} = {holder})"));
    }

    /// The claimed token is the current one, and belongs to the claimed lease.
    pub(crate) fn lease_is(&mut self, claim: &LeaseClaim) {
        let [name, holder] = [MEMBER_LEASE_NAME, MEMBER_LEASE_HOLDER].map(|member| self.member(ATTR_LEASE, member));
        let (lease, map) = (self.name(ATTR_LEASE), self.value(string("M")));
        let (is_name, is_holder) = (self.value(string(claim.name.as_str())), self.value(string(&claim.holder)));
        self.require(format!("attribute_type({lease}, {map}) AND {name} = {is_name} AND {holder} = {is_holder}"));
        self.equals(ATTR_LEASE_TOKEN, number(claim.token));
    }

    /// The lease was held at this time: see [`is_held_until`](nameservice_model::is_held_until).
    pub(crate) fn lease_outlives(&mut self, now_s: i64) {
        let expires = self.member(ATTR_LEASE, MEMBER_LEASE_EXPIRES_AT);
        let (now, last) = (self.value(number(now_s)), self.value(number(last_expiry(now_s))));
        self.require(format!("{expires} > {now} AND {expires} <= {last}"));
    }
}

/// Returns an attribute that should be a counter, and is not: NULL, for example.
pub(crate) fn unreadable<'a>(item: &'a Item, counter: &str) -> Option<&'a AttributeValue> {
    item.get(counter).filter(|_| items::integer(item, counter).is_none())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_of_an_update_that_remembers_calls_is_used() {
        let all = ["a", "b", "c", "d", "e"];
        for many in 0..=all.len() {
            let mut expression = Expression::new();
            expression.remember(&all[..many]);
            assert_eq!(expression.sets.len(), ATTR_REQUEST_IDS.len());
            let update = expression.update();
            for (alias, value) in &expression.values {
                assert!(update.contains(alias), "{many}: {alias} = {value:?} is not in {update}");
            }
            let remembered = all.iter().filter(|call| expression.values.values().any(|value| *value == string(**call)));
            assert_eq!(remembered.count(), many.min(ATTR_REQUEST_IDS.len()));
        }
    }

    #[test]
    fn any_attribute_name_has_an_alias_of_its_own() {
        let mut expression = Expression::new();
        let names = ["plain", "a:b", "a.b", "a b", "#a", "_0", "_1", "größe", "-", "plain"];
        let aliases = names.map(|name| expression.name(name));
        for (name, alias) in names.iter().zip(&aliases) {
            assert_eq!(expression.names[alias], *name);
            assert!(alias[1..].bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_'), "{alias}");
        }
        assert_eq!(expression.names.len(), names.len() - 1);
        assert_eq!(expression.name("a:b"), aliases[1]);
        assert_eq!(expression.member("plain", "a:b"), format!("#plain.{}", aliases[1]));
    }
}
