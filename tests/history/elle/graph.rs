//! Dependencies between transactions, and the cycles in them.

use std::collections::VecDeque;

/// The reason why one transaction comes before another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// The other appended after it.
    Ww,
    /// The other read what it appended.
    Wr,
    /// The other appended what it had not read yet.
    Rw,
    /// It had ended before the other began.
    Realtime,
    /// Both are reads of one client at one replica, one after the other.
    Session,
}

impl Kind {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Ww => "ww",
            Self::Wr => "wr",
            Self::Rw => "rw",
            Self::Realtime => "realtime",
            Self::Session => "session",
        }
    }
}

/// A dependency.
#[derive(Clone, Debug)]
pub(super) struct Edge {
    pub(super) to: usize,
    pub(super) kind: Kind,
    /// The record and the versions that it is about; empty for an order in time.
    pub(super) about: String,
}

/// A step of a cycle: the transaction that comes first, and its dependency on the next.
pub(super) type Step<'a> = (usize, &'a Edge);

/// How many anti-dependencies (rw) a cycle has.
#[derive(Clone, Copy)]
enum Anti {
    None,
    One,
    Any,
}

/// The phenomena in the order of Adya's isolation levels: each excludes those before it.
const PHENOMENA: [(&str, &[Kind], Anti); 4] = [
    ("G0", &[Kind::Ww], Anti::None),
    ("G1c", &[Kind::Ww, Kind::Wr], Anti::None),
    ("G-single", &[Kind::Ww, Kind::Wr], Anti::One),
    ("G2", &[Kind::Ww, Kind::Wr, Kind::Rw], Anti::Any),
];
const IN_TIME: [Kind; 2] = [Kind::Realtime, Kind::Session];

/// Transactions, by number, and what comes after each.
#[derive(Debug)]
pub(super) struct Graph {
    edges: Vec<Vec<Edge>>,
}

impl Graph {
    pub(super) fn new(transactions: usize) -> Self {
        Self { edges: vec![Vec::new(); transactions] }
    }

    /// Adds a dependency. A transaction does not depend on itself.
    pub(super) fn add(&mut self, from: usize, to: usize, kind: Kind, about: String) {
        if from != to {
            self.edges[from].push(Edge { to, kind, about });
        }
    }

    pub(super) fn len(&self) -> usize {
        self.edges.iter().map(Vec::len).sum()
    }

    /// Returns the first phenomenon that the graph has, and a shortest cycle that shows it. Those of data alone come before
    /// those that need the order in time.
    pub(super) fn phenomenon(&self) -> Option<(String, Vec<Step<'_>>)> {
        for in_time in [false, true] {
            for (name, kinds, anti) in PHENOMENA {
                let kinds: Vec<Kind> = kinds.iter().chain(IN_TIME.iter().filter(|_| in_time)).copied().collect();
                let cycle = match anti {
                    Anti::None | Anti::Any => self.cycle(&kinds),
                    Anti::One => self.cycle_with_one(Kind::Rw, &kinds),
                };
                if let Some(cycle) = cycle {
                    let has = |kind: Kind| cycle.iter().any(|(_, edge)| edge.kind == kind);
                    let suffix = match (has(Kind::Realtime), has(Kind::Session)) {
                        (true, _) => "-realtime",
                        (false, true) => "-session",
                        (false, false) => "",
                    };
                    return Some((format!("{name}{suffix}"), cycle));
                }
            }
        }
        None
    }

    /// Returns a shortest cycle of dependencies of these kinds.
    fn cycle(&self, kinds: &[Kind]) -> Option<Vec<Step<'_>>> {
        let components = self.components(kinds);
        let on_cycle = |node: &usize| {
            let here = components[*node];
            self.edges[*node].iter().any(|edge| kinds.contains(&edge.kind) && components[edge.to] == here)
        };
        let nodes = (0..self.edges.len()).filter(on_cycle);
        nodes.filter_map(|node| self.walk(node, node, kinds)).min_by_key(Vec::len)
    }

    /// Returns a shortest cycle of one dependency of a kind and others of these.
    fn cycle_with_one(&self, one: Kind, kinds: &[Kind]) -> Option<Vec<Step<'_>>> {
        let components = self.components(&[kinds, &[one]].concat());
        let mut shortest: Option<Vec<Step<'_>>> = None;
        for (from, edges) in self.edges.iter().enumerate() {
            for edge in edges.iter().filter(|edge| edge.kind == one && components[edge.to] == components[from]) {
                let Some(mut cycle) = self.walk(edge.to, from, kinds) else { continue };
                cycle.push((from, edge));
                if shortest.as_ref().is_none_or(|shortest| cycle.len() < shortest.len()) {
                    shortest = Some(cycle);
                }
            }
        }
        shortest
    }

    /// Numbers the strongly connected components (Tarjan): two transactions are on a common cycle of dependencies of these
    /// kinds exactly if they have the same number.
    fn components(&self, kinds: &[Kind]) -> Vec<usize> {
        const NONE: usize = usize::MAX;
        let nodes = self.edges.len();
        let (mut index, mut low, mut component) = (vec![NONE; nodes], vec![NONE; nodes], vec![NONE; nodes]);
        let (mut open, mut visited, mut found): (Vec<usize>, usize, usize) = (Vec::new(), 0, 0);
        for root in 0..nodes {
            if index[root] != NONE {
                continue;
            }
            // The nodes of the current path, each with the number of its edge to follow next.
            let mut way = vec![(root, 0)];
            while let Some((node, mut next)) = way.pop() {
                if next == 0 {
                    (index[node], low[node]) = (visited, visited);
                    visited += 1;
                    open.push(node);
                }
                let mut deeper = None;
                while let (None, Some(edge)) = (deeper, self.edges[node].get(next)) {
                    next += 1;
                    if !kinds.contains(&edge.kind) {
                        continue;
                    }
                    if index[edge.to] == NONE {
                        deeper = Some(edge.to);
                    } else if component[edge.to] == NONE {
                        low[node] = low[node].min(index[edge.to]);
                    }
                }
                if let Some(deeper) = deeper {
                    way.extend([(node, next), (deeper, 0)]);
                    continue;
                }
                if low[node] == index[node] {
                    while let Some(member) = open.pop() {
                        component[member] = found;
                        if member == node {
                            break;
                        }
                    }
                    found += 1;
                }
                if let Some((parent, _)) = way.last() {
                    low[*parent] = low[*parent].min(low[node]);
                }
            }
        }
        component
    }

    /// Returns a shortest path of at least one step from one transaction to another, or back to itself.
    fn walk(&self, from: usize, to: usize, kinds: &[Kind]) -> Option<Vec<Step<'_>>> {
        // By which step each transaction was reached.
        let mut by: Vec<Option<Step<'_>>> = vec![None; self.edges.len()];
        let mut queue = VecDeque::from([from]);
        while let Some(node) = queue.pop_front() {
            for edge in self.edges[node].iter().filter(|edge| kinds.contains(&edge.kind)) {
                if edge.to == to {
                    let mut way = vec![(node, edge)];
                    let mut at = node;
                    while let Some(step) = by[at] {
                        way.push(step);
                        at = step.0;
                    }
                    way.reverse();
                    return Some(way);
                }
                if edge.to != from && by[edge.to].is_none() {
                    by[edge.to] = Some((node, edge));
                    queue.push_back(edge.to);
                }
            }
        }
        None
    }
}
