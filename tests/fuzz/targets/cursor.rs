//! Every text that decodes as a cursor round-trips.
#![no_main]

use libfuzzer_sys::fuzz_target;
use nameservice_model::Cursor;

fuzz_target!(|text: &str| {
    let Ok(cursor) = Cursor::decode(text) else { return };
    assert!(!cursor.after().is_empty() && cursor.after().len() <= 1_024);
    assert_eq!(Cursor::decode(&cursor.encode()), Ok(cursor));
});
