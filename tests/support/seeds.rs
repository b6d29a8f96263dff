//! Seeds of random tests: the same ones in every run, unless a variable names others.

use std::{env, ops::Range, thread};

/// The one seed that is repeated. Failures print it.
pub const SEED: &str = "NAMESERVICE_TEST_SEED";
/// The first seed of every test. The nightly workflow draws it.
const BASE: &str = "NAMESERVICE_TEST_BASE";
const DEFAULT_BASE: u64 = 1;

/// Returns the number in a variable of the environment.
pub fn number(variable: &str) -> Option<u64> {
    let text = env::var(variable).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{variable} is not a number: {text}")))
}

/// Returns this many seeds, from the base on, or only the one that is repeated.
pub fn seeds(rounds: u64) -> Seeds {
    let left = match number(SEED) {
        Some(seed) => seed..seed + 1,
        None => {
            let base = number(BASE).unwrap_or(DEFAULT_BASE);
            println!("{rounds} seeds from {BASE}={base} on");
            base..base + rounds
        }
    };
    Seeds { left, current: None }
}

/// Seeds, one after the other. A panic beside one of them prints it.
#[derive(Debug)]
pub struct Seeds {
    left: Range<u64>,
    current: Option<u64>,
}

impl Iterator for Seeds {
    type Item = u64;

    fn next(&mut self) -> Option<u64> {
        self.current = self.left.next();
        self.current
    }
}

impl Drop for Seeds {
    fn drop(&mut self) {
        if let Some(seed) = self.current.filter(|_| thread::panicking()) {
            println!("{SEED}={seed}");
        }
    }
}
