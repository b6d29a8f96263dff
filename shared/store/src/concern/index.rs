use std::collections::BTreeMap;

use aws_sdk_dynamodb::types::AttributeValue;
use nameservice_model::{
    ConcernKind, ConcernState, ConcernValue, Expected, GraphIndex, Index, IndexPush, IndexRoot, Judgement,
    MAX_WATERMARK, NewGraphIndex, NewIndex,
};

use crate::{
    concern::stored::{Concern, RefAttributes, as_seen},
    expressions::Expression,
    items::{self, Item, number, string},
    schema::*,
};

/// The most named graphs that one update sets one by one, because an expression has at most 4 KB. More are set as a
/// whole map, which requires a read first.
const MAX_GRAPH_PATHS: usize = 12;

const INDEX: RefAttributes = RefAttributes { id: ATTR_INDEX_ID, t: ATTR_INDEX_T };

pub(crate) struct IndexConcern;

impl Concern for IndexConcern {
    type Payload = IndexRoot;
    type New = NewIndex;

    const KIND: ConcernKind = ConcernKind::Index;
    const OPERATION: &'static str = "push an index";

    fn read(item: &Item) -> Index {
        items::index(item)
    }

    fn judge(item: &Item, push: &IndexPush) -> Judgement {
        push.judge(&items::index(item))
    }

    fn plan(expression: &mut Expression, push: &IndexPush, seen: Option<&Item>) {
        let new = push.desired();
        INDEX.set(expression, new.id(), new.t());
        if let Some(item) = seen {
            as_seen(expression, item, &[ATTR_INDEX_ID, ATTR_INDEX_T, ATTR_REV, ATTR_REV_ID]);
            let Some(root) = Self::written(item, push).payload else { return };
            expression.set(ATTR_REV, number(root.rev));
            expression.set(ATTR_REV_ID, string(root.id.as_str()));
            if !new.graphs().is_empty() || items::present(item, ATTR_GRAPHS).is_none() {
                as_seen(expression, item, &[ATTR_GRAPHS]);
                expression.set(ATTR_GRAPHS, graphs_attribute(&root.graphs));
            }
            return;
        }
        let expected = match push.expected() {
            Expected::Value(expected) => expected.payload.as_ref().map(|root| (root, expected.v)),
            Expected::Older | Expected::NoRecord => None,
        };
        match push.expected() {
            Expected::Value(value) => {
                Self::expect(expression, value);
                if value.v > 0 {
                    expression.at_most(ATTR_INDEX_T, new.t());
                }
            }
            Expected::Older | Expected::NoRecord => expression.below(ATTR_INDEX_T, new.t()),
        }
        match expected {
            Some((root, t)) if t == new.t() && root.id != *new.id() => {
                expression.rev_speaks_of(root.id.as_str());
                expression.increment(ATTR_REV, 0, None);
                expression.set(ATTR_REV_ID, string(new.id().as_str()));
            }
            // The same index again: only its named graphs can be new.
            Some((root, t)) if t == new.t() && root.id == *new.id() => match news(root, new) {
                News::Some => {}
                News::Perhaps(names) => expression.any_graph_is_not_null(&names),
                News::None => {
                    expression.not_both((ATTR_INDEX_ID, string(new.id().as_str())), (ATTR_INDEX_T, number(new.t())));
                }
            },
            _ => {
                expression.set(ATTR_REV, number(0));
                expression.set(ATTR_REV_ID, string(new.id().as_str()));
            }
        }
        if new.graphs().is_empty() {
            return;
        }
        expression.graphs_is_map();
        let known = expected.map(|(root, _)| &root.graphs);
        for (name, graph) in new.graphs() {
            let before = known.and_then(|graphs| graphs.get(name));
            let at = before.map(|before| before.as_ref().map_or(0, |before| before.t));
            if let Some(graph) = graph
                && at.is_none_or(|at| at > graph.t())
            {
                // If the stored entry is unknown, the condition admits only an advance: the same `t` again is
                // recognised after a read. If the entry is known to be ahead, the condition rejects the push.
                expression.graph_below(name, graph.t());
            }
            let entry = graph.as_ref().map(|graph| counted(before.and_then(Option::as_ref), graph));
            expression.set_member(ATTR_GRAPHS, name, items::graph_attribute(entry.as_ref()));
        }
    }

    /// Compares only the named graphs that the expected value names.
    fn expect(expression: &mut Expression, expected: &Index) {
        INDEX.expect(expression, expected.v, expected.payload.as_ref().map(|root| &root.id));
        let graphs = expected.payload.as_ref().map(|root| &root.graphs).filter(|graphs| !graphs.is_empty());
        for (name, graph) in graphs.into_iter().flatten() {
            expression.graphs_is_map();
            expression.graph_is(name, graph.as_ref().map(|graph| items::graph_attribute(Some(graph))));
        }
    }

    /// Makes a plan without the item assume the expected revision and no named graphs.
    fn constrain(expression: &mut Expression, push: &IndexPush) -> Item {
        expression.no_graphs();
        match push.expected() {
            Expected::Value(ConcernValue { v, payload: Some(root), .. }) if *v == push.desired().t() => {
                if root.rev == 0 {
                    expression.equals_or_absent(ATTR_REV, number(0));
                } else {
                    expression.equals(ATTR_REV, number(root.rev));
                    expression.equals(ATTR_REV_ID, string(root.id.as_str()));
                }
                let root = IndexRoot { graphs: BTreeMap::new(), ..root.clone() };
                item_of(&ConcernValue::new(*v, root))
            }
            _ => Item::new(),
        }
    }

    fn limit(item: &Item, push: &IndexPush) -> Option<&'static str> {
        let (before, new) = (items::index(item), push.desired());
        let root = before.payload.as_ref()?;
        let counts = before.v == new.t() && root.id != *new.id();
        let is_last = |(name, graph): (&String, &Option<NewGraphIndex>)| {
            let stored = root.graphs.get(name).and_then(Option::as_ref);
            graph.as_ref().is_some_and(|graph| {
                graph.rev().is_none()
                    && stored.is_some_and(|stored| stored.rev >= MAX_WATERMARK && counted_up(stored, graph))
            })
        };
        (counts && root.rev >= MAX_WATERMARK || new.graphs().iter().any(is_last)).then_some(ATTR_REV)
    }

    fn left_by(item: &Item, push: &IndexPush) -> Index {
        let new = push.desired();
        // Only we write the revision and the named graphs.
        let mut ours = item.clone();
        ours.insert(ATTR_INDEX_ID.to_owned(), string(new.id().as_str()));
        ours.insert(ATTR_INDEX_T.to_owned(), number(new.t()));
        items::index(&ours)
    }

    fn state(value: Index) -> ConcernState {
        ConcernState::Index(value)
    }

    fn written(item: &Item, push: &IndexPush) -> Index {
        let (before, new) = (items::index(item), push.desired());
        let (rev, mut graphs) = match before.payload {
            Some(root) if before.v == new.t() && root.id == *new.id() => (root.rev, root.graphs),
            Some(root) if before.v == new.t() => (root.rev.saturating_add(1), root.graphs),
            Some(root) => (0, root.graphs),
            None => (0, BTreeMap::new()),
        };
        for (name, graph) in new.graphs() {
            let before = graphs.get(name).and_then(Option::as_ref);
            let entry = graph.as_ref().map(|graph| counted(before, graph));
            graphs.insert(name.clone(), entry);
        }
        ConcernValue::new(new.t(), IndexRoot { id: new.id().clone(), rev, graphs })
    }

    fn assumed_previous(push: &IndexPush) -> Option<Item> {
        push.assumed_previous().as_ref().map(item_of)
    }

    fn preset(item: &mut Item, new: &NewIndex) {
        INDEX.preset(item, new.id(), new.t());
        item.insert(ATTR_REV.to_owned(), number(0));
        item.insert(ATTR_REV_ID.to_owned(), string(new.id().as_str()));
        let graphs =
            new.graphs().iter().map(|(name, graph)| (name.clone(), graph.as_ref().map(|new| counted(None, new))));
        item.insert(ATTR_GRAPHS.to_owned(), graphs_attribute(&graphs.collect()));
    }

    fn same(a: &Item, b: &Item) -> bool {
        let (a, b) = (items::index(a), items::index(b));
        a.v == b.v && a.payload.map(|root| root.id) == b.payload.map(|root| root.id)
    }

    fn requires_read(push: &IndexPush) -> bool {
        let Expected::Value(expected) = push.expected() else {
            return push.desired().graphs().len() > MAX_GRAPH_PATHS;
        };
        let graphs = expected.payload.as_ref().map_or(0, |root| root.graphs.len());
        push.desired().graphs().len() + graphs > MAX_GRAPH_PATHS || Self::limit(&item_of(expected), push).is_some()
    }
}

/// Returns the attributes of an index.
fn item_of(index: &Index) -> Item {
    let Some(root) = &index.payload else { return Item::new() };
    Item::from([
        (ATTR_INDEX_ID.to_owned(), string(root.id.as_str())),
        (ATTR_INDEX_T.to_owned(), number(index.v)),
        (ATTR_REV_ID.to_owned(), string(root.id.as_str())),
        (ATTR_REV.to_owned(), number(root.rev)),
        (ATTR_GRAPHS.to_owned(), graphs_attribute(&root.graphs)),
    ])
}

pub(crate) fn graphs_attribute(graphs: &BTreeMap<String, Option<GraphIndex>>) -> AttributeValue {
    AttributeValue::M(
        graphs.iter().map(|(name, graph)| (name.clone(), items::graph_attribute(graph.as_ref()))).collect(),
    )
}

/// Returns whether a push would write the stored value. An absent named graph is not the same as one without an index.
fn graph_is_current(stored: Option<&Option<GraphIndex>>, pushed: Option<&NewGraphIndex>) -> bool {
    match (stored, pushed) {
        (Some(None), None) => true,
        (Some(Some(stored)), Some(pushed)) => {
            stored.id == *pushed.id() && stored.t == pushed.t() && pushed.rev().is_none_or(|rev| rev == stored.rev)
        }
        _ => false,
    }
}

/// Whether the named graphs of a push change the index that it expects.
enum News<'a> {
    None,
    /// They do, unless these exist already and have no index.
    Perhaps(Vec<&'a str>),
    Some,
}

fn news<'a>(expected: &IndexRoot, new: &'a NewIndex) -> News<'a> {
    let mut unknown = Vec::new();
    for (name, graph) in new.graphs() {
        match (expected.graphs.get(name), graph) {
            // The expected value does not distinguish an absent graph from one without an index.
            (None | Some(None), None) => unknown.push(name.as_str()),
            (known, graph) if graph_is_current(known, graph.as_ref()) => {}
            // One with an index that is not expected by name is below, by another condition.
            _ => return News::Some,
        }
    }
    if unknown.is_empty() { News::None } else { News::Perhaps(unknown) }
}

/// Returns whether another index of a named graph replaces one at the same `t`.
fn counted_up(before: &GraphIndex, pushed: &NewGraphIndex) -> bool {
    before.t == pushed.t() && before.id != *pushed.id()
}

/// Returns the entry of a named graph after a push. By default its revision is one more at the same `t`, else 0.
fn counted(before: Option<&GraphIndex>, pushed: &NewGraphIndex) -> GraphIndex {
    let rev = pushed.rev().unwrap_or_else(|| match before {
        Some(before) if counted_up(before, pushed) => before.rev.saturating_add(1),
        Some(before) if before.t == pushed.t() => before.rev,
        _ => 0,
    });
    GraphIndex { id: pushed.id().clone(), t: pushed.t(), rev }
}
