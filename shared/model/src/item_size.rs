//! The size of items, as DynamoDB counts it. Other backends keep the same limit, so that a record can be copied to any.

use crate::{Address, GraphIndex, Index};

/// The most bytes that an item may have.
pub const MAX_ITEM_BYTES: usize = 400 * 1024;

/// What a map takes besides its members, and each of its members besides name and value.
const MAP: usize = 3;
const MEMBER: usize = 1;
/// A truth value or NULL.
const FLAG: usize = 1;
/// The names of the attributes that every item of an index has, and the values that do not depend on the index: the
/// name of the item, the version of the layout, and a time in milliseconds.
const NAMES: usize = "pksk".len() + "schema".len() + "updated_at_ms".len() + "index_idindex_trevrev_id".len();
const FIXED: usize = NAMES + "index".len() + 2 + 8 + "retracted".len() + FLAG;
/// The attribute that remembers a call: its name and the id.
const CALL: usize = "request_id_1".len() + 48;

/// Returns the size of the item of an index that remembers this many calls.
pub fn index_item_bytes(address: &Address, index: &Index, calls: usize) -> usize {
    let bare = FIXED + address.as_str().len() + number(index.v) + calls * CALL;
    let Some(root) = &index.payload else { return bare };
    let graph =
        |(name, graph): (&String, &Option<GraphIndex>)| MEMBER + name.len() + graph.as_ref().map_or(FLAG, graph_bytes);
    let graphs: usize = root.graphs.iter().map(graph).sum();
    let graphs = if root.graphs.is_empty() { 0 } else { "graphs".len() + MAP + graphs };
    bare + 2 * root.id.as_str().len() + number(root.rev) + graphs
}

fn graph_bytes(graph: &GraphIndex) -> usize {
    MAP + 3 * MEMBER + "idtrev".len() + graph.id.as_str().len() + number(graph.t) + number(graph.rev)
}

/// A byte for each two digits between the first and the last that is not zero, and one more.
fn number(value: i64) -> usize {
    let digits = value.unsigned_abs().to_string();
    digits.trim_end_matches('0').len().div_ceil(2) + 1 + usize::from(value < 0)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::{ConcernValue, ContentId, IndexRoot};

    #[test]
    fn numbers_take_a_byte_for_two_digits() {
        for (value, bytes) in [(0, 1), (1, 2), (12, 2), (123, 3), (1_000_000, 2), (-1, 3), (i64::MIN, 12)] {
            assert_eq!(number(value), bytes, "{value}");
        }
    }

    #[test]
    fn an_index_takes_what_its_graphs_take() {
        let address = Address::parse("mydb").unwrap();
        let id = ContentId::stored("x".repeat(59));
        let of = |count: usize| {
            let graph = |n: usize| (format!("{n:0255}"), Some(GraphIndex { id: id.clone(), t: 12, rev: 0 }));
            let graphs: BTreeMap<_, _> = (0..count).map(graph).collect();
            index_item_bytes(&address, &ConcernValue::new(12, IndexRoot { id: id.clone(), rev: 0, graphs }), 4)
        };
        assert_eq!(of(2) - of(1), 1 + 255 + 3 + 3 + 6 + 59 + 2 + 1);
        assert!(of(0) < 600 && of(1_239) < MAX_ITEM_BYTES && of(1_250) > MAX_ITEM_BYTES, "{}", of(1_239));
        assert_eq!(index_item_bytes(&address, &Index::unborn(), 0), FIXED + 9 + 1);
    }
}
