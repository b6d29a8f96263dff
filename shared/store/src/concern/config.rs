use nameservice_model::{
    ConcernKind, ConcernState, Config, ConfigPush, Expected, Judgement, MAX_WATERMARK, NewConfig, RecordKind,
};
use serde_json::Value;

use crate::{
    concern::stored::{Concern, value_as_seen},
    expressions::Expression,
    items::{self, Item, number, string},
    schema::*,
};

pub(crate) struct ConfigConcern;

impl Concern for ConfigConcern {
    type Payload = Value;
    type New = NewConfig;

    const KIND: ConcernKind = ConcernKind::Config;
    const OPERATION: &'static str = "push a config";

    fn read(item: &Item) -> Config {
        items::config(item)
    }

    fn judge(item: &Item, push: &ConfigPush) -> Judgement {
        push.judge(&items::config(item))
    }

    fn plan(expression: &mut Expression, push: &ConfigPush, seen: Option<&Item>) {
        let payload = Value::Object(push.desired().payload().clone());
        let (context, meta) = items::split_config(&payload);
        expression.set(ATTR_CONFIG_V, number(push.new_v()));
        // The value is stored under both names: the guide's, and the one that deployed servers read.
        expression.put(ATTR_DEFAULT_CONTEXT_ADDRESS, context.map(string));
        expression.put(ATTR_DEFAULT_CONTEXT_ID, context.map(string));
        expression.put(ATTR_CONFIG_META, (!meta.is_empty()).then(|| items::map(&meta)));
        if let Some(item) = seen {
            return value_as_seen::<Self>(expression, item);
        }
        let Expected::Value(expected) = push.expected() else { return };
        Self::expect(expression, expected);
        if push.new_v() <= expected.v {
            expression.at_most(ATTR_CONFIG_V, push.new_v() - 1);
        }
    }

    /// Compares the counter, and the payload if one is given.
    fn expect(expression: &mut Expression, expected: &Config) {
        match expected.v {
            0 => expression.equals_or_absent(ATTR_CONFIG_V, number(0)),
            v => expression.equals(ATTR_CONFIG_V, number(v)),
        }
        if let Some(payload) = &expected.payload {
            let (context, meta) = items::split_config(payload);
            expression.default_context_is(context);
            expression.is(ATTR_CONFIG_META, (!meta.is_empty()).then(|| items::map(&meta)));
        }
    }

    fn written(_item: &Item, push: &ConfigPush) -> Config {
        push.new_value()
    }

    fn limit(_item: &Item, push: &ConfigPush) -> Option<&'static str> {
        (push.new_v() > MAX_WATERMARK).then_some(ATTR_CONFIG_V)
    }

    fn requires_read(push: &ConfigPush) -> bool {
        // Whether it expects the stored value has to be known before it is rejected.
        push.new_v() > MAX_WATERMARK
    }

    fn left_by(_item: &Item, push: &ConfigPush) -> Config {
        push.new_value()
    }

    fn state(value: Config) -> ConcernState {
        ConcernState::Config(value)
    }

    fn preset(item: &mut Item, new: &NewConfig) {
        let payload = Value::Object(new.payload().clone());
        let (context, meta) = items::split_config(&payload);
        item.insert(ATTR_CONFIG_V.to_owned(), number(new.v_after(0)));
        if let Some(context) = context {
            item.insert(ATTR_DEFAULT_CONTEXT_ADDRESS.to_owned(), string(context));
            item.insert(ATTR_DEFAULT_CONTEXT_ID.to_owned(), string(context));
        }
        if !meta.is_empty() {
            item.insert(ATTR_CONFIG_META.to_owned(), items::map(&meta));
        }
    }

    fn same(_a: &Item, _b: &Item) -> bool {
        false
    }

    fn foreign(item: &Item) -> bool {
        items::is_graph_source_config(item)
    }

    fn not_foreign(expression: &mut Expression) {
        expression.is(ATTR_CONFIG_JSON, None);
    }

    fn belongs_to(kind: RecordKind) -> bool {
        kind == RecordKind::Ledger
    }
}
