//! The canonical form of a state, by which two states are compared.

use super::State;

impl State {
    /// Returns the whole state as text that does not depend on the history that led to it: a line for the position,
    /// then one per record, in the order of lists, and one per
    /// address whose record was purged.
    pub fn dump(&self) -> String {
        let mut text = format!("position {} recorded_at {}\n", self.position, self.recorded_at);
        for place in self.orders.all() {
            if let Some(record) = self.records.get(&place.address) {
                text.push_str(&format!("{record:?}\n"));
            }
        }
        for (address, memory) in self.memories.sorted() {
            text.push_str(&format!("{address} was {memory:?}\n"));
        }
        text
    }

    /// Returns whether the orders match the records.
    #[cfg(test)]
    pub(crate) fn orders_follow(&self) -> bool {
        let mut rebuilt = super::Orders::default();
        self.records().for_each(|record| rebuilt.add(record));
        rebuilt == self.orders
    }

    /// All records, in no order.
    #[cfg(test)]
    pub(crate) fn records(&self) -> impl Iterator<Item = &super::Record> {
        self.records.values().map(|record| &**record)
    }
}
