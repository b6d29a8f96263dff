use nameservice_model::{
    ConcernKind, ConcernState, ConcernValue, Config, ConfigPush, Expected, Judgement, NewConfig, Object, RecordKind,
    Result,
};
use serde_json::Value;

use super::{
    concern::Concern,
    grown,
    record::{ConfigItem, Record, json_text},
};

/// The member of a ledger's config that names its default JSON-LD context.
const DEFAULT_CONTEXT_ID: &str = "default_context_id";

/// The counter of a config.
pub(super) const CONFIG_V: &str = "config_v";

pub(super) struct ConfigConcern;

impl Concern for ConfigConcern {
    type Payload = Value;
    type New = NewConfig;

    const KIND: ConcernKind = ConcernKind::Config;
    const OPERATION: &'static str = "push a config";

    fn read(record: &Record) -> Config {
        record.config.value()
    }

    fn judge(record: &Record, push: &ConfigPush) -> Judgement {
        push.judge(&Self::read(record))
    }

    fn store(record: &mut Record, push: &ConfigPush) -> Result<()> {
        let v = grown(CONFIG_V, record.config.v, was_written(push).v)?;
        set(&mut record.config, v, push.desired().payload());
        Ok(())
    }

    fn written(_record: &Record, push: &ConfigPush) -> Config {
        was_written(push)
    }

    fn was_written(push: &ConfigPush) -> Option<Config> {
        Some(was_written(push))
    }

    fn is_same(_a: &Record, _b: &Record) -> bool {
        false
    }

    fn belongs_to(kind: RecordKind) -> bool {
        kind == RecordKind::Ledger
    }

    fn state(value: Config) -> ConcernState {
        ConcernState::Config(value)
    }

    fn value(state: ConcernState) -> Option<Config> {
        if let ConcernState::Config(value) = state { Some(value) } else { None }
    }
}

fn was_written(push: &ConfigPush) -> Config {
    let expected = if let Expected::Value(ConcernValue { v, .. }) = push.expected() { *v } else { 0 };
    push.desired().value_after(expected)
}

/// Stores the config of a ledger. A default context that is `null` counts as absent.
pub(super) fn set(item: &mut ConfigItem, v: i64, payload: &Object) {
    item.v = v;
    item.payload = Some(match payload.get(DEFAULT_CONTEXT_ID) {
        Some(context) if !context.is_string() => {
            let mut payload = payload.clone();
            payload.remove(DEFAULT_CONTEXT_ID);
            json_text(&payload)
        }
        _ => json_text(payload),
    });
}
