//! Tests power failures. At every commit and checkpoint of a random workload the files are kept; between two of them,
//! any part of what was written but not synced may be on the disk, in any order, and a sector that was being written
//! may be destroyed.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
};

use nameservice_model::{ChangeFeed, Limit, Run};

use super::commands::{Commands, Watermarks, born, follow, watermarks};
use crate::{
    Embedded, Options,
    directory::{DURABLE_FILE, LOG_FILE},
    log::Hook,
};

/// The block that a failing write of the write-ahead file may destroy as a whole.
const TORN: usize = 4096;
/// The smallest unit that a disk writes atomically.
const SECTOR: usize = 512;

/// The header of a write-ahead file.
const HEADER: usize = 32;

/// The files after a step.
#[derive(Clone, Debug, Default, PartialEq)]
struct Image {
    database: Vec<u8>,
    write_ahead: Vec<u8>,
    /// The file that names the last durable change.
    durable: Vec<u8>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Step {
    Opened,
    Committed,
    Checkpointed,
}

/// Keeps the files after every step.
struct Camera {
    directory: PathBuf,
    images: Mutex<Vec<(Step, Image)>>,
}

fn write_ahead(directory: &Path) -> PathBuf {
    directory.join(format!("{LOG_FILE}-wal"))
}

impl Camera {
    fn take(&self, step: Step) {
        let database = fs::read(self.directory.join(LOG_FILE)).unwrap();
        let write_ahead = fs::read(write_ahead(&self.directory)).unwrap_or_default();
        let durable = fs::read(self.directory.join(DURABLE_FILE)).unwrap_or_default();
        self.images.lock().unwrap().push((step, Image { database, write_ahead, durable }));
    }

    fn commits(&self) -> usize {
        self.images.lock().unwrap().iter().filter(|(step, _)| *step == Step::Committed).count()
    }
}

impl Hook for Camera {
    fn after_commit(&self) {
        self.take(Step::Committed);
    }

    fn after_checkpoint(&self) {
        let is_first = self.images.lock().unwrap().is_empty();
        self.take(if is_first { Step::Opened } else { Step::Checkpointed });
    }
}

/// Returns a file between two states: each sector is the old one, the new one or, if `may_be_garbage`, anything.
fn torn(before: &[u8], after: &[u8], sector_bytes: usize, may_be_garbage: bool, random: &mut Commands) -> Vec<u8> {
    let longest = before.len().max(after.len());
    let shortest = before.len().min(after.len());
    let mut torn = Vec::with_capacity(longest);
    for at in (0..longest).step_by(sector_bytes) {
        let sector = |file: &[u8]| {
            let mut sector = file.get(at..).unwrap_or_default().to_vec();
            sector.truncate(sector_bytes);
            sector.resize(sector_bytes.min(longest - at), 0);
            sector
        };
        let (old, new) = (sector(before), sector(after));
        torn.extend(match random.below(5) {
            _ if old == new => old,
            0 if may_be_garbage => random.bytes(new.len()),
            0..=2 => old,
            _ => new,
        });
    }
    if before.len() != after.len() && random.below(2) == 0 {
        torn.truncate(shortest + random.below((longest - shortest + 1) as u64) as usize);
    }
    torn
}

/// Returns the write-ahead file with the new header over its old content, if a commit begins it again.
fn begun_again(before: &[u8], after: &[u8]) -> Option<Vec<u8>> {
    let header = after.get(..HEADER)?;
    let mut begun = before.to_vec();
    begun.get_mut(..HEADER).filter(|old| *old != header)?.copy_from_slice(header);
    Some(begun)
}

/// Returns files that may be found after a power failure between two steps.
fn crashes(before: &Image, step: Step, after: &Image, random: &mut Commands) -> Vec<Image> {
    match step {
        // A commit writes the write-ahead file alone, and syncs it. Where it begins that file again, it writes and syncs
        // the header before anything else.
        Step::Opened | Step::Committed => {
            assert_eq!(before.database, after.database);
            let begun = begun_again(&before.write_ahead, &after.write_ahead);
            let mut torn_files = Vec::new();
            let mut last = before.write_ahead.clone();
            for next in begun.into_iter().chain([after.write_ahead.clone()]) {
                torn_files.extend((0..3).map(|_| torn(&last, &next, TORN, true, random)));
                last = next;
            }
            let torn_files = torn_files.into_iter();
            torn_files.chain([last]).map(|write_ahead| Image { write_ahead, ..before.clone() }).collect()
        }
        // A checkpoint writes the database while the write-ahead file is whole, and syncs it.
        Step::Checkpointed => {
            let torn = torn(&before.database, &after.database, SECTOR, false, random);
            vec![
                Image { database: torn, ..before.clone() },
                Image { database: after.database.clone(), ..before.clone() },
                after.clone(),
            ]
        }
    }
}

/// Opens what a power failure left, and checks that the log explains the state. Returns the state.
async fn recover(image: &Image) -> String {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join(LOG_FILE), &image.database).unwrap();
    fs::write(write_ahead(directory.path()), &image.write_ahead).unwrap();
    fs::write(directory.path().join(DURABLE_FILE), &image.durable).unwrap();
    let names = Embedded::open_existing(directory.path(), Options::default()).unwrap();
    let view = names.view();
    let mut seen = Watermarks::new();
    let Run::Changes(changes) = names.changes(0, Limit::MAX).await.unwrap() else { panic!("gone") };
    for (expected, change) in (1..).zip(&changes) {
        assert_eq!(change.position, expected);
        follow(&mut seen, change);
    }
    assert_eq!(changes.len() as u64, view.position());
    assert_eq!(born(seen), watermarks(view.state()));
    assert!(view.state().orders_follow());
    view.state().dump()
}

/// Runs a workload, crashes it everywhere, and returns how many images were opened.
async fn crash_everywhere(seed: u64, commits: usize) -> usize {
    let directory = tempfile::tempdir().unwrap();
    let camera = Arc::new(Camera { directory: directory.path().to_owned(), images: Mutex::default() });
    let options = Options::default().with_hook(camera.clone()).with_checkpoint_bytes(64 * 1024);
    let names = Embedded::open(directory.path(), options).unwrap();
    let mut commands = Commands::new(seed);
    // The state after each commit that was acknowledged.
    let mut states = vec![names.view().state().dump()];
    while camera.commits() < commits {
        let (command, _) = commands.next();
        let _ = names.inner.writer.write("test", command).await;
        if camera.commits() == states.len() {
            states.push(names.view().state().dump());
        }
        assert_eq!(camera.commits() + 1, states.len());
    }
    drop(names);
    let images = std::mem::take(&mut *camera.images.lock().unwrap());
    assert!(images.iter().any(|(step, _)| *step == Step::Checkpointed), "no checkpoint");
    let (mut acknowledged, mut opened) = (0, 0);
    for pair in images.windows(2) {
        let [(_, before), (step, after)] = pair else { unreachable!() };
        let is_commit = *step == Step::Committed;
        for image in crashes(before, *step, after, &mut commands) {
            let found = recover(&image).await;
            let is_after = is_commit && found == states[acknowledged + 1];
            let position = |state: &str| state.lines().next().unwrap_or_default().to_owned();
            assert!(
                is_after || found == states[acknowledged],
                "{step:?} after {acknowledged} commits, at {}: {}, whole: {}",
                position(&states[acknowledged]),
                position(&found),
                image == *after,
            );
            if is_commit && (&image.database, &image.write_ahead) == (&after.database, &after.write_ahead) {
                assert!(is_after, "what was synced is there");
            }
            opened += 1;
        }
        acknowledged += usize::from(is_commit);
    }
    assert_eq!(acknowledged + 1, states.len());
    opened
}

#[tokio::test]
async fn every_acknowledged_write_survives_a_power_failure_and_the_log_explains_the_state() {
    for seed in [1, 2] {
        let opened = crash_everywhere(seed, 25).await;
        assert!(opened > 100, "{opened}");
    }
}

/// Runs the crashes for longer: `cargo test -p nameservice-embedded crashes -- --ignored`.
#[tokio::test]
#[ignore = "takes minutes"]
async fn thousands_of_power_failures_lose_nothing() {
    let mut opened = 0;
    for seed in 100..120 {
        opened += crash_everywhere(seed, 120).await;
    }
    assert!(opened > 9_000, "{opened}");
}
