//! Every stream record is read, or rejected with a reason.
#![no_main]

use libfuzzer_sys::fuzz_target;
use stream_consumer::Delivery;

fuzz_target!(|data: &[u8]| {
    let Ok(event) = serde_json::from_slice::<serde_json::Value>(data) else { return };
    let delivery = Delivery::from_event(event);
    if let Err(reason) = delivery.difference() {
        assert!(!reason.is_empty());
    }
});
