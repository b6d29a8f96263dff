//! Brings one record of a backend up to its state elsewhere, with the operations that every writer uses.
//!
//! Each write is a compare-and-set on the value that was judged: if another writer was faster, nothing is written and
//! the record is judged again. So a value that is newer than the source's is never replaced, even if a copy is
//! interrupted.

use std::{
    ops::Deref,
    sync::atomic::{AtomicBool, Ordering},
};

use nameservice_model::{
    Address, Backend, BranchCreated, Call, ChangedPart, ConcernKind, Config, ConfigPush, Created, Error,
    GraphSourcePublication, Head, HeadPush, Index, IndexPush, IndexRoot, InvalidPayload, MAX_GRAPHS, NewConfig,
    NewGraphIndex, NewHead, NewIndex, NewLedger, NewStatus, Object, Protection, Published, PushOutcome, Record,
    RecordKind, Reset, ResetTo, Restored, Retracted, Status, StatusPayload, StatusPush, chain, is_redacted,
};
use serde_json::Value;

use crate::judge::{Difference, Verdict, has_redacted_config, payload};

/// A token without write access to a record sees its config without the secrets. A copy must not replace those.
pub(crate) const REDACTED_CONFIG: &str =
    "its config is shown without its secrets: read it with a token that may write it";

/// A backend to write to, which knows whether anything was written.
pub(crate) struct Target<'a> {
    backend: &'a dyn Backend,
    has_written: AtomicBool,
    /// Whether it takes ids that Fluree's engine cannot read, also where Fluree shares its place.
    takes_foreign: bool,
}

impl<'a> Target<'a> {
    pub(crate) fn new(backend: &'a dyn Backend) -> Self {
        Self { backend, has_written: AtomicBool::new(false), takes_foreign: false }
    }

    /// Returns the target, which takes ids that Fluree's engine cannot read, or does not.
    pub(crate) fn taking_foreign(mut self, takes: bool) -> Self {
        self.takes_foreign = takes;
        self
    }

    /// Returns the call of a new write.
    fn call(&self) -> Call {
        Call::fresh().allowing_foreign(self.takes_foreign)
    }

    /// Returns whether something was written, even if what followed was rejected.
    pub(crate) fn has_written(&self) -> bool {
        self.has_written.load(Ordering::Relaxed)
    }

    fn wrote(&self) {
        self.has_written.store(true, Ordering::Relaxed);
    }
}

impl<'a> Deref for Target<'a> {
    type Target = dyn Backend + 'a;

    fn deref(&self) -> &Self::Target {
        self.backend
    }
}

/// The result of one attempt.
#[derive(Debug)]
pub(crate) enum Brought {
    /// Everything that had to be written was written.
    Done,
    /// Everything was written except for the protection, which was rejected for this reason.
    Unprotected(String),
    /// The record was changed meanwhile: judge it again.
    Again,
    /// The target rejects it, for this reason.
    Rejected(String),
    /// These records must exist at the target first.
    Needs(Vec<Address>),
}

/// The reason why a step was not done.
enum Stop {
    Is(Brought),
    Failed(Error),
}

impl From<Error> for Stop {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

impl From<InvalidPayload> for Stop {
    fn from(invalid: InvalidPayload) -> Self {
        Self::Is(Brought::Rejected(format!("it cannot be stored: {invalid}")))
    }
}

type Step<T = ()> = Result<T, Stop>;

fn again<T>() -> Step<T> {
    Err(Stop::Is(Brought::Again))
}

fn rejected<T>(reason: impl Into<String>) -> Step<T> {
    Err(Stop::Is(Brought::Rejected(reason.into())))
}

/// Writes a record that the target lacks.
pub(crate) async fn create(to: &Target<'_>, source: &Record) -> Result<Brought, Error> {
    // Its config would be missing from then on, and nothing would show that.
    if has_redacted_config(source) {
        return Ok(Brought::Rejected(REDACTED_CONFIG.to_owned()));
    }
    done(async {
        let created = match (source.kind, &source.source_branch) {
            (RecordKind::GraphSource, _) => publish(to, source, &source.dependencies, Some(0)).await?,
            (RecordKind::Ledger, None) => create_ledger(to, source).await?,
            (RecordKind::Ledger, Some(parent)) => create_branch(to, source, parent).await?,
        };
        let differences = crate::judge::judge(source, &created);
        write(to, source, created, &differences, |_| true).await
    })
    .await
}

/// Creates a graph source without its dependencies, at a lower `v`: the rest of it is written by an update.
pub(crate) async fn create_bare(to: &Target<'_>, source: &Record) -> Result<Brought, Error> {
    let mut bare = source.clone();
    bare.config.v = source.config.v.saturating_sub(1);
    done(async { publish(to, &bare, &[], Some(0)).await.map(|_| None) }).await
}

/// Writes the parts of a record for which `takes` holds. If it holds for a part that is newer at the target, or differs
/// at the same watermark, that part is set back.
pub(crate) async fn update(
    to: &Target<'_>,
    source: &Record,
    target: Record,
    differences: &[Difference],
    takes: impl Fn(&Difference) -> bool + Send + Sync,
) -> Result<Brought, Error> {
    done(write(to, source, target, differences, takes)).await
}

async fn done(steps: impl Future<Output = Step<Option<String>>>) -> Result<Brought, Error> {
    match steps.await {
        Ok(None) => Ok(Brought::Done),
        Ok(Some(reason)) => Ok(Brought::Unprotected(reason)),
        Err(Stop::Is(brought)) => Ok(brought),
        Err(Stop::Failed(error)) => Err(error),
    }
}

async fn create_ledger(to: &Target<'_>, source: &Record) -> Step<Record> {
    let head = source.head.as_ref().filter(|head| !head.is_unborn()).map(new_head).transpose()?;
    let config = new_config(&source.config)?;
    let ledger = NewLedger { head, config, ..NewLedger::like(source) };
    match to.create(&to.call(), &ledger).await? {
        Created::Created(record) => {
            to.wrote();
            Ok(*record)
        }
        _ => again(),
    }
}

async fn create_branch(to: &Target<'_>, source: &Record, parent: &str) -> Step<Record> {
    let parent = match source.address.with_branch(parent) {
        Ok(parent) => parent,
        Err(error) => return rejected(format!("the address of its source branch is not valid: {error}")),
    };
    let head = source.head.as_ref().filter(|head| !head.is_unborn()).map(new_head).transpose()?;
    match to.create_branch(&to.call(), &source.address, &parent, head.as_ref()).await? {
        BranchCreated::Created(record) => {
            to.wrote();
            Ok(*record)
        }
        BranchCreated::AlreadyExists => again(),
        BranchCreated::UnknownSource => Err(Stop::Is(Brought::Needs(vec![parent]))),
        _ => rejected(format!("a branch cannot start from {parent}, which has no commit there")),
    }
}

/// Creates a graph source, or replaces its config and dependencies.
async fn publish(to: &Target<'_>, source: &Record, depends_on: &[String], expected_v: Option<i64>) -> Step<Record> {
    let config = match &source.config.payload {
        Some(config) if is_redacted(config) => return rejected(REDACTED_CONFIG),
        Some(Value::Object(config)) => config.clone(),
        None => Object::new(),
        Some(_) => return rejected("its config is not a JSON object"),
    };
    let mut dependencies = Vec::with_capacity(depends_on.len());
    for text in depends_on {
        match Address::parse(text) {
            Ok(address) if dependencies.contains(&address) => {}
            Ok(address) => dependencies.push(address),
            Err(error) => return rejected(format!("one of its dependencies is not a valid address: {error}")),
        }
    }
    let source_type = source.source_type.clone().unwrap_or_default();
    let mut publication = GraphSourcePublication::stored(source.address.clone(), source_type, config)?
        .with_dependencies(dependencies)?
        .with_v(source.config.v.max(expected_v.unwrap_or(0).saturating_add(1)))?;
    if let Some(v) = expected_v {
        publication = publication.expecting(v)?;
    }
    match to.publish_graph_source(&Call::fresh(), &publication).await? {
        Published::Created(record) | Published::Updated(record) => {
            to.wrote();
            Ok(*record)
        }
        Published::MissingDependencies(missing) => Err(Stop::Is(Brought::Needs(missing))),
        Published::WrongKind { .. } => rejected("another kind of record has its address"),
        _ => again(),
    }
}

async fn write(
    to: &Target<'_>,
    source: &Record,
    mut target: Record,
    differences: &[Difference],
    takes: impl Fn(&Difference) -> bool + Send + Sync,
) -> Step<Option<String>> {
    let taken = |concern: ConcernKind| {
        let found = differences.iter().find(|difference| difference.part == ChangedPart::Concern(concern));
        found.filter(|difference| takes(difference)).map(|difference| difference.verdict)
    };
    let (head, index, config, status) =
        (taken(ConcernKind::Head), taken(ConcernKind::Index), taken(ConcernKind::Config), taken(ConcernKind::Status));
    let mut unprotected = None;
    let protection = differences.iter().filter(|difference| takes(difference)).find_map(Difference::protection);
    if protection == Some(false) {
        unprotected = protect(to, &source.address, false).await?;
    }
    if head.is_none() && index.is_none() && config.is_none() && status.is_none() {
        if protection == Some(true) {
            unprotected = protect(to, &source.address, true).await?;
        }
        return Ok(unprotected);
    }
    let judged_status_v = target.status.v;
    if target.retracted {
        target = restore(to, source, target, status.is_some()).await?;
    }
    // Values that a push would reject are set by a reset: one that the source has gone back to, or one that is forced.
    let t = |head: &Option<Head>| head.as_ref().map_or(0, |head| head.v);
    let resets_head = head.is_some() && t(&source.head) <= t(&target.head);
    let resets_index = index.is_some_and(|verdict| {
        let id = |index: &Index| index.payload.as_ref().map(|root| root.id.clone());
        let is_same_root = source.index.v == target.index.v && id(&source.index) == id(&target.index);
        source.index.v < target.index.v || (is_same_root && verdict != Verdict::Older)
    });
    if source.kind == RecordKind::Ledger && (resets_head || resets_index) {
        reset(to, source, &target, head.is_some(), index.is_some()).await?;
    } else {
        if head.is_some() {
            push_head(to, source, &target).await?;
        }
        if index.is_some() {
            push_index(to, source, &target.index).await?;
        }
    }
    // The config is written last, as a sign that everything is written (see `lazy`). It comes first only before a
    // retraction, because a retracted record takes no config.
    if config.is_some() && source.retracted {
        push_config(to, source, &target).await?;
    }
    if status.is_some() {
        push_status(to, source, &target, judged_status_v).await?;
    }
    // A protected record is neither reset nor retracted, so the mark comes after both.
    if protection == Some(true) {
        unprotected = protect(to, &source.address, true).await?;
    }
    if config.is_some() && !source.retracted {
        push_config(to, source, &target).await?;
    }
    Ok(unprotected)
}

/// Sets or removes the mark of a protected record, which takes an administrator. Returns the reason if it is rejected.
async fn protect(to: &Target<'_>, address: &Address, protected: bool) -> Step<Option<String>> {
    match to.protect(&Call::fresh(), address, protected).await {
        Ok(Protection::Set) => {
            to.wrote();
            Ok(None)
        }
        Ok(Protection::Already) => Ok(None),
        Ok(_) => again(),
        Err(error @ (Error::OutcomeUnknown { .. } | Error::Unavailable { .. })) => Err(error.into()),
        Err(error) => Ok(Some(format!("its protection cannot be copied: {}", chain(&error)))),
    }
}

/// Restores a retracted record, because it takes no pushes while it is retracted.
async fn restore(to: &Target<'_>, source: &Record, target: Record, takes_status: bool) -> Step<Record> {
    // Restoring sets the status to `ready` and adds 1 to its `v`, and retracting adds 1 again. The status of the source
    // must be ahead of the restored one, or equal to it: otherwise the copy would overtake the source or differ from
    // it.
    let restored_v = target.status.v.saturating_add(1);
    let is_there = || !source.retracted && payload(&source.status) == StatusPayload::state(StatusPayload::READY);
    if !takes_status || source.status.v < restored_v || (source.status.v == restored_v && !is_there()) {
        return rejected(
            "it is retracted at the target, and the source's status is not far enough ahead to restore it",
        );
    }
    check_status(to, &source.address, target.status.v).await?;
    match to.restore(&Call::fresh(), &source.address).await? {
        Restored::Restored(record) => {
            to.wrote();
            Ok(*record)
        }
        _ => again(),
    }
}

async fn push_head(to: &Target<'_>, source: &Record, target: &Record) -> Step {
    let Some(head) = &source.head else { return Ok(()) };
    let expected = target.head.clone().unwrap_or_else(Head::unborn);
    let push = HeadPush::cas(expected, new_head(head)?);
    pushed(to, to.push_head(&to.call(), &source.address, &push).await?)
}

/// Pushes an index and the named graphs that are newer at the source, with as many graphs per push as are allowed.
async fn push_index(to: &Target<'_>, source: &Record, target: &Index) -> Step {
    let Some(root) = &source.index.payload else { return Ok(()) };
    let current = target.payload.as_ref();
    let is_same_root = target.v == source.index.v && current.is_some_and(|current| current.id == root.id);
    let newer: Vec<_> = newer_graphs(root, current).collect();
    let mut expected =
        Index::stored(target.v, current.map(|current| IndexRoot { graphs: Default::default(), ..current.clone() }));
    let mut chunks = newer.chunks(MAX_GRAPHS);
    let mut chunk = chunks.next();
    if chunk.is_none() && is_same_root {
        return Ok(());
    }
    loop {
        let mut new = NewIndex::new(root.id.clone(), source.index.v)?;
        for (name, graph) in chunk.unwrap_or_default() {
            new = new.with_graph(name.clone(), graph.clone())?;
        }
        let push = IndexPush::cas(expected, new);
        match to.push_index(&to.call(), &source.address, &push).await? {
            PushOutcome::Updated { value, .. } => {
                to.wrote();
                expected = value.map(|root| IndexRoot { graphs: Default::default(), ..root });
            }
            other => return pushed(to, other),
        }
        chunk = chunks.next();
        if chunk.is_none() {
            return Ok(());
        }
    }
}

fn newer_graphs<'a>(
    source: &'a IndexRoot,
    target: Option<&'a IndexRoot>,
) -> impl Iterator<Item = (String, Option<NewGraphIndex>)> + 'a {
    source.graphs.iter().filter_map(move |(name, graph)| {
        let current = target.and_then(|target| target.graphs.get(name));
        let new = match (graph, current) {
            (None, Some(_)) => return None,
            (None, None) => None,
            (Some(graph), Some(Some(current))) if current.t >= graph.t => return None,
            (Some(graph), _) => {
                Some(NewGraphIndex::new(graph.id.clone(), graph.t).and_then(|new| new.with_rev(graph.rev)).ok()?)
            }
        };
        Some((name.clone(), new))
    })
}

/// Sets head and index to those of the source, even backwards, and then the named graphs, which a reset removes.
async fn reset(to: &Target<'_>, source: &Record, target: &Record, head: bool, index: bool) -> Step {
    let chosen_head = if head { source.head.as_ref() } else { target.head.as_ref() };
    let chosen_index = if index { &source.index } else { &target.index };
    let new_head = chosen_head.filter(|head| !head.is_unborn()).map(new_head).transpose()?;
    let new_index = match &chosen_index.payload {
        Some(root) => Some(NewIndex::new(root.id.clone(), chosen_index.v)?),
        None => None,
    };
    match to.reset_head(&to.call(), &source.address, &ResetTo::new(new_head, new_index)?).await? {
        Reset::Reset { index, .. } => {
            to.wrote();
            let record = Record { index: chosen_index.clone(), ..source.clone() };
            push_index(to, &record, &index).await
        }
        Reset::Protected => rejected("it was set back at the source, and is protected at the target"),
        _ => again(),
    }
}

async fn push_config(to: &Target<'_>, source: &Record, target: &Record) -> Step {
    if source.kind == RecordKind::GraphSource {
        return publish(to, source, &source.dependencies, Some(target.config.v)).await.map(|_| ());
    }
    let v = source.config.v.max(target.config.v.saturating_add(1));
    // If the source has none, an empty config is the closest that can be written.
    let config = Config::stored(v, source.config.payload.clone().or_else(|| Some(Value::Object(Object::new()))));
    let Some(new) = new_config(&config)? else { return Ok(()) };
    let push = ConfigPush::cas(target.config.clone(), new);
    pushed(to, to.push_config(&Call::fresh(), &source.address, &push).await?)
}

/// Pushes the status. `judged_v` is the watermark that was judged, before a restoration moved it.
async fn push_status(to: &Target<'_>, source: &Record, target: &Record, judged_v: i64) -> Step {
    // Only the watermark is compared, which every writer moves: leases are not copied, and may change meanwhile.
    let expected = |v: i64| Status::stored(v, None);
    let next = target.status.v.saturating_add(1);
    if source.retracted {
        // The retraction itself adds the last 1.
        let before = source.status.v.saturating_sub(1);
        if before > target.status.v {
            let current = StatusPayload { state: live_state(target), meta: payload(&target.status).meta };
            let new = NewStatus::new(current)?.with_v(before)?;
            pushed(
                to,
                to.push_status(&Call::fresh(), &source.address, &StatusPush::cas(expected(target.status.v), new))
                    .await?,
            )?;
        }
        check_status(to, &source.address, before.max(target.status.v)).await?;
        let reason = payload(&source.status).meta.get("reason").and_then(Value::as_str).map(str::to_owned);
        return match to.retract(&Call::fresh(), &source.address, reason.as_deref()).await? {
            Retracted::Retracted(_) => {
                to.wrote();
                Ok(())
            }
            Retracted::Already(_) => Ok(()),
            Retracted::Protected => rejected("it is retracted at the source, and protected at the target"),
            Retracted::HasDependents => {
                rejected("it is retracted at the source, and other records depend on it at the target")
            }
            _ => again(),
        };
    }
    let v = if source.status.v > judged_v { source.status.v } else { next };
    if v <= target.status.v {
        // The restoration has brought it there already.
        return Ok(());
    }
    let new = NewStatus::new(payload(&source.status))?.with_v(v)?;
    pushed(to, to.push_status(&Call::fresh(), &source.address, &StatusPush::cas(expected(target.status.v), new)).await?)
}

/// Stops if the status was written since it was compared. A retraction and a restoration take no condition, so the time between this
/// look and the write is all that another writer's change may be missed in.
async fn check_status(to: &Target<'_>, address: &Address, compared_v: i64) -> Step {
    match to.lookup(address).await? {
        Some(record) if record.status.v == compared_v => Ok(()),
        _ => again(),
    }
}

/// Returns a state that a push may set, for the moment before a retraction.
fn live_state(record: &Record) -> String {
    let state = payload(&record.status).state;
    if state == StatusPayload::RETRACTED { StatusPayload::READY.to_owned() } else { state }
}

fn pushed<T>(to: &Target<'_>, outcome: PushOutcome<T>) -> Step {
    match outcome {
        PushOutcome::Updated { .. } => {
            to.wrote();
            Ok(())
        }
        PushOutcome::WrongKind(_) => rejected("another kind of record has its address"),
        _ => again(),
    }
}

fn new_head(head: &Head) -> Result<NewHead, InvalidPayload> {
    NewHead::try_from(head.clone())
}

fn new_config(config: &Config) -> Step<Option<NewConfig>> {
    match &config.payload {
        None => Ok(None),
        Some(payload) if is_redacted(payload) => rejected(REDACTED_CONFIG),
        Some(Value::Object(payload)) => Ok(Some(NewConfig::new(payload.clone())?.with_v(config.v.max(1))?)),
        Some(_) => rejected("its config is not a JSON object"),
    }
}
