//! Model checking of the code itself: every interleaving of a few clients over the embedded backend's state machine, and over the
//! DynamoDB backend (docs/proofs.md).
//!
//! - [`network`]: clients, calls, and a network that loses, delays and repeats;
//! - [`truth`]: what really happened to the calls, and the properties of their answers;
//! - [`machine`]: the state machine behind it, with a replica of its feed beside it;
//! - [`replica`]: a replica that is fed by pages of changes and by snapshots, in any order;
//! - [`store`]: clients, and the DynamoDB backend between two lossy networks;
//! - [`feed`]: consumers of a stream, readers, and the feed on DynamoDB; [`process`]: its code; [`seen`]: what can be read;
//! - [`shared`]: values that many states have in common, hashed once;
//! - [`faults`]: what is taken out of requests, to show that the models notice its absence;
//! - [`wire`]: the backend's code, run up to the next request that it sends;
//! - [`table`], [`expressions`]: DynamoDB, as far as that code uses it.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a model that cannot be set up has failed")]

pub mod expressions;
pub mod faults;
pub mod feed;
pub mod machine;
pub mod network;
pub mod process;
mod reader;
pub mod replica;
pub mod seen;
pub mod shared;
pub mod store;
pub mod table;
pub mod truth;
pub mod wire;

use std::{hash::Hash, thread::available_parallelism, time::Instant};

use stateright::{Checker as _, HasDiscoveries, Model};

/// How much deeper models are explored than CI has time for: `NAMESERVICE_MODELS_DEPTH`, 0 by default, adds calls and clock
/// steps.
pub fn depth() -> usize {
    std::env::var("NAMESERVICE_MODELS_DEPTH").ok().and_then(|depth| depth.parse().ok()).unwrap_or(0)
}

/// What an exploration has found.
#[derive(Debug)]
pub struct Explored {
    /// How many different states there are.
    pub states: usize,
    /// The names of the properties that do not hold, each with the steps that lead there.
    pub violated: Vec<(&'static str, String)>,
    /// The names of the properties that must be possible and were seen.
    pub possible: Vec<&'static str>,
}

/// Explores a model, breadth first, to its end, or to the first violation: of the property `until` where one is named, else of any.
/// Prints how many states it has.
pub fn explore<M>(name: &str, model: M, until: Option<&'static str>) -> Explored
where
    M: Model + Send + Sync + 'static,
    M::State: Clone + std::fmt::Debug + PartialEq + Hash + Send + Sync,
    M::Action: Clone + std::fmt::Debug + PartialEq + Send + Sync,
{
    let begun = Instant::now();
    let threads = available_parallelism().map_or(1, usize::from);
    let enough = match until {
        Some(property) => HasDiscoveries::AnyOf([property].into()),
        None => HasDiscoveries::AnyFailures,
    };
    let checker = model.checker().threads(threads).finish_when(enough).spawn_bfs().join();
    let mut explored = Explored { states: checker.unique_state_count(), violated: Vec::new(), possible: Vec::new() };
    for (property, path) in checker.discoveries() {
        match checker.model().property(property).expectation.discovery_is_failure() {
            true => {
                let steps: Vec<String> = path.into_actions().iter().map(|action| format!("  {action:?}")).collect();
                explored.violated.push((property, steps.join("\n")));
            }
            false => explored.possible.push(property),
        }
    }
    explored.violated.sort();
    explored.possible.sort_unstable();
    let violated: Vec<&str> = explored.violated.iter().map(|(property, _)| *property).collect();
    let seconds = begun.elapsed().as_secs();
    println!("{name}: {} states, {} deep, {seconds} s; violated: {violated:?}", explored.states, checker.max_depth());
    explored
}
