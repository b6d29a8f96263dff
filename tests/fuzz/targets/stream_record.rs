//! Every stream record is read, or rejected with a reason.
#![no_main]

use libfuzzer_sys::fuzz_target;
use stream_consumer::Delivery;

fuzz_target!(|data: &[u8]| {
    let Ok(event) = serde_json::from_slice(data) else { return };
    if let Err(reason) = Delivery::from_event(event).read().and_then(|reading| reading.difference) {
        assert!(!reason.is_empty());
    }
});
