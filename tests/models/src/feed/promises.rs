//! What the feed promises.

use std::collections::BTreeSet;

use stateright::Property;

use super::{Consumers, Life, Role};
use crate::{process::Record, seen::Contents};

/// What readers read agrees with itself.
pub const READABLE: &str = "readers find the same changes wherever they begin";
/// What histories have agrees with that.
pub const HISTORIES: &str = "histories and the feed agree";
/// Positions have no gap.
pub const DENSE: &str = "positions are dense";
/// Exactly once.
pub const ONCE: &str = "a record is in the feed once";
/// In order.
pub const IN_ORDER: &str = "changes of an item are in its order";
/// A position that was given never changes.
pub const STAYS: &str = "what readers have found stays, and the counter grows";
/// A consumer is returned the truth.
pub const RETURNED: &str = "a consumer gets the positions of its records";
/// A reader is returned the truth.
pub const READ: &str = "a reader gets everything after its position";
/// At least once.
pub const NOT_LOST: &str = "every checkpointed record is in the feed";

pub(super) fn properties(model: &Consumers) -> Vec<Property<Consumers>> {
    let mut properties = vec![
        Property::<Consumers>::always(READABLE, |_, world| world.seen.is_ok()),
        Property::<Consumers>::always(HISTORIES, |_, world| world.contents().disagreement.is_none()),
        Property::<Consumers>::always(DENSE, |_, world| {
            let Contents { counter, epoch, found, .. } = world.contents();
            found.iter().map(|(position, _)| *position).eq((*epoch).max(1)..=*counter)
        }),
        Property::<Consumers>::always(ONCE, |_, world| {
            let ever = &world.contents().ever;
            ever.iter().map(|(_, record)| *record).collect::<BTreeSet<Record>>().len() == ever.len()
        }),
        Property::<Consumers>::always(IN_ORDER, |model, world| {
            let of = |shard: usize| world.contents().ever.iter().map(|(_, of)| *of).filter(move |of| of.0 == shard);
            (0..model.shards.len()).all(|shard| of(shard).is_sorted())
        }),
        Property::<Consumers>::always(STAYS, |_, world| !world.is_rewritten),
        Property::<Consumers>::always(RETURNED, |_, world| world.wrong.is_none()),
        Property::<Consumers>::always(READ, |_, world| world.misread.is_none()),
        Property::<Consumers>::always(NOT_LOST, |_, world| {
            let is_there = |record: Record| world.contents().ever.iter().any(|(_, of)| *of == record);
            world.checkpoints.iter().enumerate().all(|(shard, n)| (0..*n).all(|n| is_there((shard, n))))
        }),
        Property::<Consumers>::sometimes("all is in the feed", |model, world| {
            world.contents().ever.len() == model.shards.iter().sum::<usize>()
        }),
    ];
    let is_there = |of: fn(&Role) -> bool| model.roles.iter().any(of);
    if model.roles.iter().filter(|role| matches!(role, Role::Consumer { .. })).count() > 1 {
        properties.push(Property::<Consumers>::sometimes("a consumer remembers another", |_, world| {
            world.lives.iter().any(|life| life.memory.is_shared)
        }));
    }
    if is_there(|role| *role == Role::Epoch) {
        properties.push(Property::<Consumers>::sometimes(
            "an epoch begins after some records, and before others",
            |_, world| {
                let Contents { found, ever, .. } = world.contents();
                !found.is_empty() && found.len() < ever.len()
            },
        ));
    }
    if is_there(|role| matches!(role, Role::Reader { .. })) {
        properties.push(Property::<Consumers>::sometimes("a reader has read all", |model, world| {
            let last = world.contents().ever.last().map_or(0, |(position, _)| *position);
            let is_at = |(role, life): (&Role, &Life)| matches!(role, Role::Reader { .. }) && life.position == last;
            let all = world.contents().ever.len() == model.shards.iter().sum::<usize>();
            all && model.roles.iter().zip(&world.lives).any(is_at)
        }));
    }
    properties
}
