//! Write units by DynamoDB's rule, counted from requests: what engines report for transactions differs, and some report too
//! little (<https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/CapacityUnitCalculations.html>).

use serde_json::Value;

use crate::proxy::Request;

/// The write units of a transaction or a batch: two for each started KB of each item of a transaction, one for each of a batch. 0 for
/// other requests.
///
/// An update counts everything that it names, as if the item held nothing else.
pub fn write_units(request: &Request) -> u64 {
    let puts = request.body["RequestItems"].as_object().into_iter().flat_map(|tables| tables.values());
    let puts = puts.filter_map(Value::as_array).flatten().filter_map(|write| write.get("PutRequest"));
    let of_batch: u64 = puts.map(|put| item_size(&put["Item"]).div_ceil(1024).max(1) as u64).sum();
    of_batch + of_transaction(request)
}

fn of_transaction(request: &Request) -> u64 {
    request.body["TransactItems"].as_array().into_iter().flatten().map(transaction_units).sum()
}

/// The write units of an action of a transaction.
pub fn transaction_units(action: &Value) -> u64 {
    let size = match (action.get("Put"), action.get("Update")) {
        (Some(put), _) => item_size(&put["Item"]),
        (_, Some(update)) => {
            let names = update["ExpressionAttributeNames"].as_object().into_iter().flatten();
            let names: usize = names.map(|(_, name)| name.as_str().map_or(0, str::len)).sum();
            item_size(&update["Key"]) + names + item_size(&update["ExpressionAttributeValues"])
        }
        _ => panic!("a write of another kind: {action}"),
    };
    2 * size.div_ceil(1024).max(1) as u64
}

/// The size of an item, or of a map, in bytes: its names and its values.
fn item_size(item: &Value) -> usize {
    item.as_object().into_iter().flatten().map(|(name, value)| name.len() + value_size(value)).sum()
}

fn value_size(value: &Value) -> usize {
    let Some((kind, value)) = value.as_object().and_then(|value| value.iter().next()) else { return 0 };
    let text = || value.as_str().unwrap_or_default();
    match kind.as_str() {
        "S" => text().len(),
        // Two digits take a byte, and there is one more.
        "N" => text().len().div_ceil(2) + 1,
        // Base64 has four characters for three bytes.
        "B" => text().trim_end_matches('=').len() * 3 / 4,
        "M" => 3 + item_size(value) + value.as_object().map_or(0, serde_json::Map::len),
        "L" => 3 + value.as_array().into_iter().flatten().map(|value| 1 + value_size(value)).sum::<usize>(),
        "SS" | "NS" | "BS" => value.as_array().into_iter().flatten().map(|v| v.as_str().map_or(0, str::len)).sum(),
        _ => 1,
    }
}
