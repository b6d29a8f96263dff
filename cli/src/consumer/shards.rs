//! The shards of a stream, and the progress of each.

use std::collections::{BTreeMap, HashMap, HashSet};

use aws_sdk_dynamodbstreams::types::Shard as Listed;
use jiff::Timestamp;
use nameservice_feed::Checkpoint;

/// A shard and its progress.
#[derive(Debug, Default)]
pub(super) struct Shard {
    pub(super) parent: Option<String>,
    pub(super) state: State,
    /// Where to continue; `None` before the first read, and after an iterator has expired.
    pub(super) iterator: Option<String>,
    /// The last record that was passed.
    pub(super) passed: Option<String>,
    /// `passed` as it was last saved.
    pub(super) saved: Option<String>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum State {
    /// Its parent has not been read to the end.
    #[default]
    Waiting,
    /// It is being read.
    Begun,
    /// It has no more records, but its children may not be listed yet.
    Ended,
    /// It has ended, and its children have begun.
    Finished,
}

/// By id.
pub(super) type Shards = BTreeMap<String, Shard>;

/// Returns the listed shards with their progress and, if it is certain that some changes were lost, how that is known. With
/// `kept_since`, the stream only has records since that time.
pub(super) fn resumed(
    stream: &str,
    known: &[Checkpoint],
    listed: &[Listed],
    kept_since: Option<Timestamp>,
) -> (Shards, Option<String>) {
    let known: HashMap<&str, &Checkpoint> =
        known.iter().map(|checkpoint| (checkpoint.shard.as_str(), checkpoint)).collect();
    let names: HashSet<&str> = listed.iter().filter_map(|shard| shard.shard_id.as_deref()).collect();
    let mut gap = known.values().find(|checkpoint| checkpoint.stream != stream).map(|other| {
        format!("the table has another stream than the one that was read: {stream} instead of {}", other.stream)
    });
    let is_gone = |checkpoint: &&&Checkpoint| !checkpoint.finished && !names.contains(checkpoint.shard.as_str());
    if let Some(gone) = known.values().find(is_gone) {
        gap.get_or_insert(format!("the shard {} is gone before it was read to its end", gone.shard));
    }
    // For a shard with a passed record, the request for what follows it reports a loss itself.
    let is_old = |checkpoint: &&&Checkpoint| {
        !checkpoint.finished
            && checkpoint.passed.is_none()
            && kept_since.is_some_and(|since| checkpoint.saved_at < since)
    };
    if let Some(old) = known.values().find(is_old) {
        gap.get_or_insert(format!("the shard {} began before the oldest records that are still kept", old.shard));
    }
    let mut shards = Shards::new();
    for shard in listed {
        let Some(id) = &shard.shard_id else { continue };
        let parent = shard.parent_shard_id.clone();
        let past = known.get(id.as_str());
        let missed = |parent: &&String| !names.contains(parent.as_str()) && !known.contains_key(parent.as_str());
        if let (None, Some(parent)) = (past, parent.as_ref().filter(missed))
            && !known.is_empty()
        {
            gap.get_or_insert(format!("the shard {parent}, which went before {id}, is gone and was never read"));
        }
        let state = match past {
            None => State::Waiting,
            Some(checkpoint) if checkpoint.finished => State::Finished,
            Some(_) => State::Begun,
        };
        let passed = past.and_then(|checkpoint| checkpoint.passed.clone());
        shards.insert(id.clone(), Shard { parent, state, iterator: None, saved: passed.clone(), passed });
    }
    (shards, gap)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listed(shards: &[(&str, Option<&str>)]) -> Vec<Listed> {
        let shard = |(id, parent): &(&str, Option<&str>)| {
            Listed::builder().shard_id(*id).set_parent_shard_id(parent.map(str::to_owned)).build()
        };
        shards.iter().map(shard).collect()
    }

    fn checkpoint(shard: &str, finished: bool) -> Checkpoint {
        let saved_at = Timestamp::UNIX_EPOCH;
        Checkpoint { stream: "s".into(), shard: shard.into(), passed: Some("7".into()), finished, saved_at }
    }

    #[test]
    fn shards_continue_where_they_were_left_and_new_ones_wait_for_their_parents() {
        let known = [checkpoint("a", true), checkpoint("b", false)];
        let (shards, gap) = resumed("s", &known, &listed(&[("b", Some("a")), ("c", Some("b")), ("d", None)]), None);
        assert_eq!(gap, None);
        let shown: Vec<_> =
            shards.iter().map(|(id, shard)| (id.as_str(), shard.state, shard.passed.as_deref())).collect();
        let waits = State::Waiting;
        assert_eq!(shown, [("b", State::Begun, Some("7")), ("c", waits, None), ("d", waits, None)]);
    }

    #[test]
    fn what_was_lost_between_two_lives_of_a_consumer_is_noticed() {
        let unread = "a shard that was not read to its end is gone";
        let since = Some(Timestamp::from_second(1).unwrap());
        let unbegun = Checkpoint { passed: None, ..checkpoint("a", false) };
        let between = "a shard that came and went meanwhile was never read";
        for (known, now, lost) in [
            (vec![unbegun.clone()], listed(&[("a", None)]), Some("it is too old")),
            (vec![Checkpoint { saved_at: Timestamp::MAX, ..unbegun }], listed(&[("a", None)]), None),
            (vec![], listed(&[("b", Some("a"))]), None),
            (vec![checkpoint("a", true)], listed(&[("b", Some("a"))]), None),
            (vec![checkpoint("a", false)], listed(&[("a", None), ("b", Some("a"))]), None),
            (vec![checkpoint("a", false)], listed(&[("b", Some("a"))]), Some(unread)),
            (vec![checkpoint("a", true)], listed(&[("c", Some("b"))]), Some(between)),
            (vec![Checkpoint { stream: "t".into(), ..checkpoint("a", true) }], listed(&[]), Some("another stream")),
        ] {
            let (_, gap) = resumed("s", &known, &now, since);
            assert_eq!(gap.is_some(), lost.is_some(), "{lost:?} {gap:?}");
        }
    }
}
