use std::sync::Arc;

use nameservice_model::{
    ConcernKind, ConcernState, ConcernValue, Error, Index, IndexPush, IndexRoot, Judgement, MAX_ITEM_BYTES,
    MAX_WATERMARK, NewGraphIndex, NewIndex, RecordKind, Result, index_item_bytes,
};

use super::{
    concern::Concern,
    record::{Graph, IndexItem, Record, Root},
};

/// The counter of indexes at one `t`.
const REV: &str = "rev";

pub(super) struct IndexConcern;

impl Concern for IndexConcern {
    type Payload = IndexRoot;
    type New = NewIndex;

    const KIND: ConcernKind = ConcernKind::Index;
    const OPERATION: &'static str = "push an index";

    fn read(record: &Record) -> Index {
        record.index.value()
    }

    fn judge(record: &Record, push: &IndexPush) -> Judgement {
        push.judge(&Self::read(record))
    }

    fn store(record: &mut Record, push: &IndexPush) -> Result<()> {
        let before = record.index.root.clone();
        set(&mut record.index, push.desired());
        check_revisions(before.as_deref(), record.index.root.as_deref(), push.desired())?;
        let calls = record.index.calls.len_after_one_more();
        match index_item_bytes(&record.model_address(), &record.index.value(), calls) > MAX_ITEM_BYTES {
            true => Err(Error::TooLarge),
            false => Ok(()),
        }
    }

    fn written(record: &Record, push: &IndexPush) -> Index {
        let new = push.desired();
        ConcernValue::new(new.t(), next(record.index.t, record.index.root.as_deref(), new).value())
    }

    fn was_written(push: &IndexPush) -> Option<Index> {
        let (new, before) = (push.desired(), push.assumed_previous()?);
        let root = next(before.v, before.payload.as_ref().map(Root::from).as_ref(), new);
        Some(ConcernValue::new(new.t(), root.value()))
    }

    fn is_same(a: &Record, b: &Record) -> bool {
        let id = |record: &Record| record.index.root.as_ref().map(|root| root.id.clone());
        a.index.t == b.index.t && id(a) == id(b)
    }

    fn belongs_to(_kind: RecordKind) -> bool {
        true
    }

    fn state(value: Index) -> ConcernState {
        ConcernState::Index(value)
    }

    fn value(state: ConcernState) -> Option<Index> {
        if let ConcernState::Index(value) = state { Some(value) } else { None }
    }
}

/// Sets an index to the new value of a push.
pub(super) fn set(item: &mut IndexItem, new: &NewIndex) {
    item.root = Some(Arc::new(next(item.t, item.root.as_deref(), new)));
    item.t = new.t();
}

/// An index root and its revision, if there is one.
type Revision<'a> = Option<(&'a str, i64)>;

/// Checks the revisions that a push has counted. A stored one beyond the greatest may stay as it is.
fn check_revisions(before: Option<&Root>, after: Option<&Root>, new: &NewIndex) -> Result<()> {
    let Some(after) = after else { return Ok(()) };
    let of_graph = |root, name: &str| stored(root, name).map(|graph: &Graph| (&*graph.id, graph.rev));
    let graphs =
        new.graphs().keys().map(|name| (before.and_then(|before| of_graph(before, name)), of_graph(after, name)));
    let of_root = (before.map(|before| (&*before.id, before.rev)), Some((&*after.id, after.rev)));
    let is_beyond = |(before, after): (Revision<'_>, Revision<'_>)| {
        after.is_some_and(|(id, rev)| rev > MAX_WATERMARK && before.is_none_or(|(before, _)| before != id))
    };
    match graphs.chain([of_root]).any(is_beyond) {
        true => Err(Error::LimitReached { counter: REV }),
        false => Ok(()),
    }
}

/// Returns the root after a push. A revision may be one more than the greatest: then the push cannot be stored.
fn next(t: i64, before: Option<&Root>, new: &NewIndex) -> Root {
    let mut graphs = before.map(|root| root.graphs.clone()).unwrap_or_default();
    for (name, pushed) in new.graphs() {
        let graph = pushed.as_ref().map(|pushed| counted(graphs.get(name).and_then(Option::as_ref), pushed));
        graphs.insert(name.clone(), graph);
    }
    let rev = match before.filter(|_| t == new.t()) {
        Some(root) if *root.id == *new.id().as_str() => root.rev,
        Some(root) => root.rev.saturating_add(1),
        None => 0,
    };
    Root { id: Box::from(new.id().as_str()), rev, graphs }
}

/// Returns a named graph after a push. By default its revision is one more at the same `t`, else 0.
fn counted(before: Option<&Graph>, pushed: &NewGraphIndex) -> Graph {
    let counted = || match before.filter(|before| before.t == pushed.t()) {
        Some(before) if *before.id == *pushed.id().as_str() => before.rev,
        Some(before) => before.rev.saturating_add(1),
        None => 0,
    };
    Graph { id: Box::from(pushed.id().as_str()), t: pushed.t(), rev: pushed.rev().unwrap_or_else(counted) }
}

fn stored<'a>(root: &'a Root, name: &str) -> Option<&'a Graph> {
    root.graphs.get(name).and_then(Option::as_ref)
}
