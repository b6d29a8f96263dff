//! Publishing graph sources.

use nameservice_model::{
    Address, Call, ConcernKind, Error, GraphSourcePublication, MAX_WATERMARK, Published, RecordAttributes, RecordKind,
    Result,
};
use serde_json::Value;

use crate::{
    Store, calls,
    client::{Attempts, Failed, MAX_PLANS, Outcome, Reject, contended, key_reused, limit_reached},
    creation::{as_put_before, put_new},
    expressions::{Action, Expression, Key},
    items::{self, Item, RecordItems, number, string, strings},
    records::{Part, any_remembers, check_key, found, own, rejected_at},
    references::{Dependent, References, counted},
    schema::*,
};

const PUBLISH: &str = "publish a graph source";

/// The outcome of an attempt to create a graph source.
enum Creation {
    /// The publication has its outcome.
    Answered(Published),
    /// The address is taken by this record.
    Taken(RecordItems),
}

impl Store {
    /// Creates the graph source in one transaction. If that is rejected because the record exists, the rejection
    /// returns the whole record, and a second transaction replaces its config and dependencies.
    pub(crate) async fn publish_graph_source_record(
        &self,
        call: &Call,
        publication: &GraphSourcePublication,
    ) -> Result<Published> {
        let address = publication.address();
        let mut attempts = Attempts::default();
        let may_create = matches!(publication.expected_v(), None | Some(0));
        let mut is_gone = true;
        for _ in 0..MAX_PLANS {
            let creates = may_create && is_gone;
            let found = match creates {
                true => match self.create_graph_source(call, address, publication, &mut attempts).await? {
                    Creation::Answered(published) => return Ok(published),
                    Creation::Taken(existing) => existing,
                },
                false => self.look_up(PUBLISH, address, &mut attempts).await?,
            };
            is_gone = found.meta().is_none();
            if is_gone && may_create {
                continue;
            }
            // A creation that found it was conditional on the memory of the address.
            let found = (found, creates);
            if let Some(published) = self.republish(call, address, publication, found, &mut attempts).await? {
                return Ok(published);
            }
        }
        Err(contended(PUBLISH, attempts))
    }

    async fn create_graph_source(
        &self,
        call: &Call,
        address: &Address,
        publication: &GraphSourcePublication,
        attempts: &mut Attempts,
    ) -> Result<Creation> {
        let now = self.now_ms();
        let dependencies = publication.dependencies().unwrap_or_default();
        let all = new_graph_source(address, publication, dependencies, call, now);
        let mut references = References::count(dependencies);
        for _ in 0..MAX_PLANS {
            let counting = references.actions(address, now);
            let actions = |orphans| [put_new(address, &all, call, orphans), counting.clone()].concat();
            let failed = match self.create(PUBLISH, call, address, attempts, actions).await? {
                Outcome::Applied(()) => return created(RecordItems::new(all)).map(Creation::Answered),
                Outcome::Rejected(failed) => failed,
            };
            let memory = rejected_at(&failed, &Part::Calls).and_then(|Failed(memory)| memory.as_ref());
            let was_purged = memory.is_some_and(|memory| items::remembers(memory, &call.request_id));
            match found(&failed) {
                Some(existing) if !was_purged => return Ok(Creation::Taken(existing)),
                _ if any_remembers(&failed, call) => {
                    return created(as_put_before(RecordItems::new(all), &failed, call)).map(Creation::Answered);
                }
                _ => check_key(PUBLISH, own(&failed), call, *attempts)?,
            }
            let missing = references.learn(&failed);
            if !missing.is_empty() {
                return attempts.reject(PUBLISH, Creation::Answered(Published::MissingDependencies(missing)));
            }
            self.check_found_rows(PUBLISH, &mut references, &failed, attempts).await?;
        }
        Err(contended(PUBLISH, *attempts))
    }

    /// Replaces the config and dependencies of the record that was found. `is_new_here` says that the memory of the address
    /// does not know this call. Returns `None` if the record has changed meanwhile.
    async fn republish(
        &self,
        call: &Call,
        address: &Address,
        publication: &GraphSourcePublication,
        (mut found, is_new_here): (RecordItems, bool),
        attempts: &mut Attempts,
    ) -> Result<Option<Published>> {
        let config = found.concern_or_empty(ConcernKind::Config);
        if let Some((meta, _)) = found.meta()
            && items::remembers(&config, &call.request_id)
        {
            let v = items::integer(&config, ATTR_CONFIG_V);
            let first = match items::text(meta, ATTR_LIFE) {
                Some(life) => life == call.request_id.as_str(),
                // Records of earlier versions do not say which call created them.
                None => v == Some(publication.v().unwrap_or(1)),
            };
            let published = if first { Published::Created } else { Published::Updated };
            return Ok(found.record().map(|record| published(Box::new(record))));
        }
        let (meta, new_v) = match republishable(publication, &found, call) {
            Ok(republishable) => republishable,
            Err(obstacle) => {
                // Only here: otherwise the transaction finds out.
                if !is_new_here {
                    let memory = self.memory(PUBLISH, address, attempts).await?;
                    if items::remembers(&memory, &call.request_id) {
                        return self.published_before(call, publication, memory).map(Some);
                    }
                }
                return match obstacle {
                    Obstacle::Rejected(rejection) => attempts.reject(PUBLISH, Some(rejection)),
                    Obstacle::KeyReused => Err(key_reused(PUBLISH, *attempts)),
                    Obstacle::Limit => Err(limit_reached(PUBLISH, ATTR_CONFIG_V, *attempts)),
                };
            }
        };
        let now = self.now_ms();
        let mut references = match publication.dependencies() {
            Some(wanted) => References::change(&counted(meta), wanted),
            None => References::default(),
        };
        let mut others =
            vec![(Part::Concern(ConcernKind::Config), update_config(address, publication, &config, new_v, call, now))];
        if !is_new_here {
            others.push((Part::Calls, calls::not_this_one_before(address, call)));
        }
        let later = references.limit(1 + others.len());
        others.push((Part::Meta, update_meta(address, publication, meta, &later, now)));
        for _ in 0..MAX_PLANS {
            let actions = [others.clone(), references.actions(address, now)].concat();
            let failed = match self.transact(PUBLISH, actions, attempts).await? {
                Outcome::Applied(()) => {
                    let kept = publication.dependencies().unwrap_or_default();
                    let rest = (Dependent::Stays(meta, kept), later);
                    self.undo_afterwards(PUBLISH, address, rest, now, attempts).await;
                    apply(&mut found, publication, new_v, now);
                    return Ok(found.record().map(|record| Published::Updated(Box::new(record))));
                }
                Outcome::Rejected(failed) => failed,
            };
            if let Some(Failed(Some(memory))) = rejected_at(&failed, &Part::Calls) {
                return self.published_before(call, publication, memory.clone()).map(Some);
            }
            if failed.iter().any(|(part, _)| matches!(part, Part::Meta | Part::Concern(_))) {
                return Ok(None);
            }
            let missing = references.learn(&failed);
            if !missing.is_empty() {
                return attempts.reject(PUBLISH, Some(Published::MissingDependencies(missing)));
            }
            self.check_found_rows(PUBLISH, &mut references, &failed, attempts).await?;
        }
        Err(contended(PUBLISH, *attempts))
    }

    /// Returns the answer to a publication of a graph source that was purged since: as it would be created.
    fn published_before(&self, call: &Call, publication: &GraphSourcePublication, memory: Item) -> Result<Published> {
        let dependencies = publication.dependencies().unwrap_or_default();
        let all = new_graph_source(publication.address(), publication, dependencies, call, self.now_ms());
        created(as_put_before(RecordItems::new(all), &[(Part::Calls, Failed(Some(memory)))], call))
    }
}

/// The reason why a publication cannot replace what was found.
enum Obstacle {
    Rejected(Published),
    KeyReused,
    /// Its counter is at its maximum.
    Limit,
}

/// Returns the meta item of the record that a publication may replace the config of, and the `v` of the new config.
fn republishable<'a>(
    publication: &GraphSourcePublication,
    found: &'a RecordItems,
    call: &Call,
) -> Result<(&'a Item, i64), Obstacle> {
    let rejected = |published| Err(Obstacle::Rejected(published));
    let Some((meta, kind)) = found.meta() else { return rejected(Published::Conflict { actual: None }) };
    let config = found.concern_or_empty(ConcernKind::Config);
    if items::reuses_key(&config, &call.request_id) {
        return Err(Obstacle::KeyReused);
    }
    let source_type = items::text(meta, ATTR_SOURCE_TYPE);
    if kind != RecordKind::GraphSource || source_type.is_some_and(|stored| stored != publication.source_type()) {
        return rejected(Published::WrongKind { kind, source_type: source_type.map(str::to_owned) });
    }
    if items::flag(meta, ATTR_RETRACTED) {
        return rejected(Published::Retracted);
    }
    let v = items::integer(&config, ATTR_CONFIG_V).unwrap_or(0);
    let conflict = || rejected(Published::Conflict { actual: Some(items::config(&config)) });
    if publication.expected_v().is_some_and(|expected| expected != v) {
        return conflict();
    }
    match publication.v_after(v) {
        None => conflict(),
        Some(new_v) if new_v > MAX_WATERMARK => Err(Obstacle::Limit),
        Some(new_v) => Ok((meta, new_v)),
    }
}

/// Applies a republication to the items that it was planned from.
fn apply(items: &mut RecordItems, publication: &GraphSourcePublication, v: i64, now: i64) {
    items.patch(SK_META, |meta| {
        meta.insert(ATTR_SOURCE_TYPE.to_owned(), string(publication.source_type()));
        if let Some(dependencies) = publication.dependencies() {
            meta.insert(ATTR_DEPENDENCIES.to_owned(), addresses(dependencies));
        }
    });
    items.patch(sk_of(ConcernKind::Config), |config| {
        config.insert(ATTR_CONFIG_JSON.to_owned(), config_text(publication));
        config.insert(ATTR_CONFIG_V.to_owned(), number(v));
        config.insert(ATTR_UPDATED_AT_MS.to_owned(), number(now));
    });
}

fn addresses(targets: &[Address]) -> aws_sdk_dynamodb::types::AttributeValue {
    strings(targets.iter().map(Address::as_str))
}

fn new_graph_source(
    address: &Address,
    publication: &GraphSourcePublication,
    dependencies: &[Address],
    call: &Call,
    now: i64,
) -> Vec<Item> {
    let mut meta = items::new_meta(address, RecordKind::GraphSource, &call.request_id, now);
    let attributes = RecordAttributes {
        source_type: Some(publication.source_type().to_owned()),
        dependencies: dependencies.iter().map(Address::to_string).collect(),
        ..RecordAttributes::default()
    };
    items::put_attributes(&mut meta, &attributes);
    meta.insert(ATTR_COUNTED.to_owned(), addresses(dependencies));
    let concerns = concerns_of(RecordKind::GraphSource).iter().map(|concern| {
        let mut item = items::new_concern(address, *concern, &call.request_id, now);
        if *concern == ConcernKind::Config {
            item.insert(ATTR_CONFIG_JSON.to_owned(), config_text(publication));
            item.insert(ATTR_CONFIG_V.to_owned(), number(publication.v_after(0).unwrap_or(1)));
        }
        item
    });
    std::iter::once(meta).chain(concerns).collect()
}

fn config_text(publication: &GraphSourcePublication) -> aws_sdk_dynamodb::types::AttributeValue {
    string(Value::Object(publication.config().clone()).to_string())
}

/// Returns the record of the new items, which the meta of a new graph source always makes.
fn created(all: RecordItems) -> Result<Published> {
    let none = || Error::Store { operation: PUBLISH, source: "the items of a new record do not form a record".into() };
    all.record().map(|record| Published::Created(Box::new(record))).ok_or_else(none)
}

/// Returns the update of the meta, on the condition that what the plan was made from is unchanged.
/// `later` are targets that stay counted for now.
fn update_meta(
    address: &Address,
    publication: &GraphSourcePublication,
    seen: &Item,
    later: &[Address],
    now: i64,
) -> Action {
    let mut meta = Expression::new();
    meta.same_record(seen);
    meta.live();
    for attribute in [ATTR_DEPENDENCIES, ATTR_COUNTED, ATTR_SOURCE_TYPE] {
        meta.is(attribute, items::present(seen, attribute).cloned());
    }
    if let Some(dependencies) = publication.dependencies() {
        meta.set(ATTR_DEPENDENCIES, addresses(dependencies));
        meta.set(ATTR_COUNTED, addresses(&[dependencies, later].concat()));
    }
    if items::present(seen, ATTR_SOURCE_TYPE).is_none() {
        meta.set(ATTR_SOURCE_TYPE, string(publication.source_type()));
    }
    meta.touch(now);
    meta.into_update(&Key::meta(address))
}

fn update_config(
    address: &Address,
    publication: &GraphSourcePublication,
    seen: &Item,
    v: i64,
    call: &Call,
    now: i64,
) -> Action {
    let mut config = Expression::new();
    config.is(ATTR_CONFIG_V, items::present(seen, ATTR_CONFIG_V).cloned());
    config.is(ATTR_CONFIG_JSON, items::present(seen, ATTR_CONFIG_JSON).cloned());
    config.set(ATTR_CONFIG_JSON, config_text(publication));
    config.set(ATTR_CONFIG_V, number(v));
    config.by_call(&call.request_id);
    config.touch(now);
    config.into_update(&Key::new(address, sk_of(ConcernKind::Config)))
}
