//! Numbers at their limits, in files that others have left: read as they are, and never incremented beyond the limit.

use super::*;
use crate::{codec, names};

/// A record whose counters all have this value.
async fn at_value(files: &Files, value: i64) -> Address {
    let db = born(files, "mydb", 1).await;
    assert!(files.push_index(&Call::fresh(), &db, &IndexPush::monotonic(index(0, 5))).await.unwrap().is_updated());
    let stored = files.load(&db).await.unwrap().unwrap();
    let mut after = stored.portable.clone();
    let (status, root) = (after.record.status.payload.clone().unwrap(), after.record.index.payload.clone().unwrap());
    after.record.status = Status::stored(value, Some(status));
    after.record.config = Config::stored(value, Some(serde_json::json!({})));
    after.record.index = Index::stored(5, Some(IndexRoot { rev: value, ..root }));
    after.token = value;
    let directory = crate::storage::Directory::open(std::path::Path::new(&root_of(files)), false).unwrap();
    directory.replace_now(&names::main_key(&db), &codec::encode_main(Some(&stored), &after)).unwrap();
    directory.replace_now(&names::index_key(&db), &codec::encode_index(Some(&stored), &after)).unwrap();
    db
}

fn root_of(files: &Files) -> String {
    files.inner.storage.describe("")
}

/// Makes the n-th write that increments a counter. Returns the counter, and whether the write was applied.
async fn increment(files: &Files, db: &Address, n: usize) -> (&'static str, Result<bool>) {
    let call = Call::fresh();
    let record = files.lookup(db).await.unwrap().unwrap();
    let v = (record.status.v, record.config.v);
    match n {
        0 => {
            let status = NewStatus::new(StatusPayload::state("busy")).unwrap();
            let pushed = files.push_status(&call, db, &StatusPush::cas(Status::stored(v.0, None), status)).await;
            ("status_v", pushed.map(|pushed| pushed.is_updated()))
        }
        1 => {
            let config = NewConfig::new(Object::new()).unwrap();
            let pushed = files.push_config(&call, db, &ConfigPush::cas(Config::stored(v.1, None), config)).await;
            ("config_v", pushed.map(|pushed| pushed.is_updated()))
        }
        2 => {
            let pushed = files.push_index(&call, db, &IndexPush::overwrite(index(2, 5))).await;
            ("rev", pushed.map(|pushed| pushed.is_updated()))
        }
        3 => {
            let request = LeaseRequest::new(LeaseName::INDEX, "one").unwrap();
            let leased = files.acquire_lease(&call, db, &request).await;
            ("lease_token", leased.map(|leased| matches!(leased, Leased::Held(_))))
        }
        _ => {
            let retracted = files.retract(&call, db, None).await;
            ("status_v", retracted.map(|done| matches!(done, Retracted::Retracted(_))))
        }
    }
}

#[tokio::test]
async fn no_counter_of_a_file_is_incremented_beyond_its_limit() {
    for value in [0, 1, 1 << 31, MAX_WATERMARK - 1, MAX_WATERMARK, MAX_WATERMARK + 1, i64::MAX - 1, i64::MAX] {
        for n in 0..5 {
            let (files, directory) = directory();
            let db = at_value(&files, value).await;
            let what = format!("write {n} at {value}");
            let record = files.lookup(&db).await.unwrap().unwrap();
            let rev = record.index.payload.as_ref().unwrap().rev;
            assert_eq!((record.status.v, record.config.v, rev), (value, value, value), "it is read as it is");
            let [main, index] = [names::main_key(&db), names::index_key(&db)].map(|key| directory.path().join(key));
            let bytes = || (std::fs::read(&main).unwrap(), std::fs::read(&index).unwrap());
            let before = bytes();
            let (counter, written) = increment(&files, &db, n).await;
            match written {
                Ok(true) => assert!(value < MAX_WATERMARK, "{what}"),
                // No number is greater, so none is admissible.
                Ok(false) => assert!(value == i64::MAX && bytes() == before, "{what}"),
                Err(Error::LimitReached { counter: found }) => {
                    assert!(value >= MAX_WATERMARK, "{what}");
                    assert_eq!((found, bytes()), (counter, before), "{what}");
                }
                other => panic!("{what}: {other:?}"),
            }
            let stored = files.load(&db).await.unwrap().unwrap().portable;
            let rev = stored.record.index.payload.as_ref().unwrap().rev;
            for number in [stored.record.status.v, stored.record.config.v, stored.token, rev] {
                assert!(number <= value.max(MAX_WATERMARK), "{what}: {number}");
            }
            // Everything else continues.
            files.ping().await.unwrap();
            let other = born(&files, "other", 1).await;
            assert!(push(&files, &other, 1, 2).await.is_updated(), "{what}");
            if n < 4 {
                assert!(push(&files, &db, 1, 2).await.is_updated(), "{what}");
            }
            files.compare().await.unwrap();
        }
    }
}

#[tokio::test]
async fn a_file_with_a_number_that_is_none_of_the_format_hides_no_others() {
    for number in ["9223372036854775808", "18446744073709551616", "1.5", "1e400", "\"1\"", "null"] {
        for member in ["f:t", "f:statusV", "f:configV", "f:branches"] {
            let (files, directory) = directory();
            let db = at_value(&files, 7).await;
            born(&files, "other", 1).await;
            let path = directory.path().join(names::main_key(&db));
            let text = std::fs::read_to_string(&path).unwrap();
            let (head, tail) = text.rsplit_once('}').unwrap();
            let mut lines: Vec<&str> = head.lines().filter(|line| !line.contains(&format!("\"{member}\""))).collect();
            let added = format!("  \"{member}\": {number},");
            lines.insert(1, &added);
            std::fs::write(&path, format!("{}\n}}{tail}", lines.join("\n").trim_end().trim_end_matches(','))).unwrap();
            let what = format!("{member} {number}");
            let found = files.lookup(&db).await;
            // Absent members may be `null`.
            assert!(found.is_err() || number == "null", "{what}: {found:?}");
            let there = everything(&files).await.len();
            assert_eq!(there, if found.is_ok() { 2 } else { 1 }, "{what}");
            files.compare().await.unwrap();
            assert!(push(&files, &at("other"), 1, 2).await.is_updated(), "{what}");
        }
    }
}
