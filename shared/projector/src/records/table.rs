use nameservice_views::{Description, Index, Key, Projection};

use super::index;

/// The name of the read model's table for a nameservice's table.
pub fn table_of(table: &str) -> String {
    format!("{table}-views")
}

/// An index by one attribute, in the order of addresses. Rows without the attribute are not in it.
const fn by(name: &'static str, attribute: &'static str) -> Index {
    Index {
        name,
        partition_key: Key::string(attribute),
        sort_key: Some(Key::string("address")),
        projection: Projection::All,
    }
}

/// The table of the read model.
pub static RECORDS: Description = Description {
    partition_key: "address",
    sort_key: None,
    indexes: &[
        by(index::BY_KIND, "kind"),
        by(index::BY_STATE, "state"),
        by(index::BY_TYPE, "source_type"),
        by(index::BY_HOLDER, "holder"),
        by(index::BY_DUE, "due"),
    ],
    ttl: Some("ttl"),
    stream: false,
};
