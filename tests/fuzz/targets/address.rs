//! Every text that parses as an address has the type's invariants and round-trips.
#![no_main]

use libfuzzer_sys::fuzz_target;
use nameservice_model::Address;

fuzz_target!(|text: &str| {
    let Ok(address) = Address::parse(text) else { return };
    assert_eq!(Address::parse(address.as_str()).as_ref(), Ok(&address));
    assert_eq!(address.as_str(), format!("{}:{}", address.name(), address.branch()));
    assert!(address.as_str().len() <= 1_000 && address.branch().len() <= 128);
    for part in [address.name(), address.branch()] {
        assert!(!part.trim().is_empty());
        assert!(!part.contains([':', '@', '%', '?', '#', '\\']) && !part.contains(char::is_control));
        assert!(part.split('/').all(|segment| !["", ".", ".."].contains(&segment)));
    }
    assert_eq!(address.with_branch(address.branch()).as_ref(), Ok(&address));
});
