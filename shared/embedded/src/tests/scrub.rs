//! A scrub finds what is not, or no longer, in the file as it is in memory, and nothing else.

use std::{
    collections::BTreeMap,
    fs::File,
    io::{Read as _, Seek as _, SeekFrom, Write as _},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use nameservice_model::{AdminPublisher, Call, ChangeFeed, Limit, Run};
use rand::{RngExt as _, SeedableRng as _, rngs::StdRng};
use rusqlite::{Connection, params};
use tokio::task::spawn_blocking;

use super::{
    at,
    backups::{content, damage, filled},
    commands::Commands,
    open, pushed,
};
use crate::{CODES, Embedded, Options, Replicated, Scrubbed, directory::LOG_FILE, log::rows};

/// Returns what a scrub finds that reads everything.
fn scrubbed(names: &Embedded) -> Scrubbed {
    let scrubbed = names.scrub(&mut |_, _| true).unwrap();
    assert!(scrubbed.is_whole);
    assert_eq!(scrubbed.findings.len() as u64, scrubbed.found.min(20));
    for finding in &scrubbed.findings {
        assert!(CODES.iter().any(|(code, _)| *code == finding.code) && !finding.mend.is_empty(), "{finding:?}");
    }
    scrubbed
}

/// Returns the code, the address and the words of each finding.
fn found(names: &Embedded) -> Vec<(&'static str, String, String)> {
    let findings = scrubbed(names).findings.into_iter();
    findings.map(|finding| (finding.code, finding.address.unwrap_or_default(), finding.what)).collect()
}

async fn purged(names: &Embedded, address: &str) {
    let _ = names.purge(&Call::fresh(), &at(address)).await.unwrap();
}

/// What another process does to the file: it inverts these bits of a number of bytes.
const DAMAGE: &str = "NAMESERVICE_TEST_DAMAGE";

/// Inverts bits in the file of a log that this process uses. A process that opens the file itself would lose its locks.
fn invert(directory: &Path, offset: usize, count: usize, bits: u8) {
    const NAME: &str = "tests::scrub::flipped_bits_of_the_file_are_found_if_they_change_a_row";
    let log = directory.join(LOG_FILE);
    let mut other = Command::new(std::env::current_exe().unwrap());
    other.args(["--exact", NAME]).stdout(Stdio::null());
    let status = other.env(DAMAGE, format!("{offset} {count} {bits} {}", log.display())).status().unwrap();
    assert!(status.success());
}

fn invert_as_another(wanted: &str) {
    let mut words = wanted.splitn(4, ' ');
    let mut number = || words.next().unwrap().parse::<usize>().unwrap();
    let (offset, count, bits) = (number() as u64, number(), number() as u8);
    let mut file = File::options().read(true).write(true).open(PathBuf::from(words.next().unwrap())).unwrap();
    let mut bytes = vec![0; count];
    file.seek(SeekFrom::Start(offset)).unwrap();
    file.read_exact(&mut bytes).unwrap();
    bytes.iter_mut().for_each(|byte| *byte ^= bits);
    file.seek(SeekFrom::Start(offset)).unwrap();
    file.write_all(&bytes).unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sound_log_has_no_findings_however_it_is_written_meanwhile() {
    const SCRUBS: usize = 50;
    let directory = tempfile::tempdir().unwrap();
    let options = Options::default().with_retention(Duration::from_millis(20)).with_checkpoint_bytes(64 * 1024);
    let names = Embedded::open(directory.path(), options).unwrap();
    for n in 0..60 {
        pushed(&names, &format!("kept/{n}"), 1).await;
    }
    let done = Arc::new(AtomicBool::new(false));
    let writers: Vec<_> = (0..3)
        .map(|seed| {
            let (names, done, mut commands) = (names.clone(), done.clone(), Commands::new(seed));
            tokio::spawn(async move {
                let mut n = 0;
                while !done.load(Ordering::Relaxed) {
                    let _ = names.inner.writer.write("test", commands.next().0).await;
                    let address = format!("purged/{seed}/{}", n % 30);
                    pushed(&names, &address, 1).await;
                    purged(&names, &address).await;
                    n += 1;
                }
                n
            })
        })
        .collect();
    let scrubbing = names.clone();
    let scrubs = spawn_blocking(move || (0..SCRUBS).map(|_| scrubbed(&scrubbing)).collect::<Vec<_>>()).await.unwrap();
    done.store(true, Ordering::Relaxed);
    for writer in writers {
        assert!(writer.await.unwrap() > 0, "nothing was written meanwhile");
    }
    let findings: Vec<_> = scrubs.iter().flat_map(|scrub| &scrub.findings).collect();
    assert!(findings.is_empty(), "{findings:?}");
    assert!(scrubs.iter().all(|scrub| scrub.records >= 60));
    assert!(scrubs.iter().any(|scrub| scrub.changes > 0));
    assert!(matches!(names.changes(0, Limit::MAX).await.unwrap(), Run::Gone { .. }), "nothing was removed meanwhile");
    assert_eq!(found(&names), []);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sound_replica_has_no_findings_however_often_it_begins_again() {
    let (upstream, directory) = (Embedded::memory(Options::default()).unwrap(), tempfile::tempdir().unwrap());
    let options = Options::default().with_retention(Duration::from_millis(20));
    let replica = Embedded::open_replica(directory.path(), "http://upstream", options).unwrap();
    let mut commands = Commands::new(11);
    let done = Arc::new(AtomicBool::new(false));
    let (scrubbing, is_done) = (replica.clone(), done.clone());
    let scrubs = spawn_blocking(move || {
        let mut findings = Vec::new();
        while !is_done.load(Ordering::Relaxed) {
            findings.extend(scrubbing.scrub(&mut |_, _| !is_done.load(Ordering::Relaxed)).unwrap().findings);
        }
        findings.extend(scrubbed(&scrubbing).findings);
        findings
    });
    for n in 0..100 {
        for _ in 0..10 {
            let _ = upstream.inner.writer.write("test", commands.next().0).await;
        }
        let position = replica.view().position();
        if n % 4 == 0 {
            let records = upstream.view().state().records().map(|record| record.to_model()).collect();
            replica.adopt(records, upstream.view().position()).await.unwrap();
        } else if let Run::Changes(changes) = upstream.changes(position, Limit::MAX).await.unwrap() {
            replica.replicate(changes.into_iter().map(Replicated::from).collect()).await.unwrap();
        }
    }
    done.store(true, Ordering::Relaxed);
    let findings = scrubs.await.unwrap();
    assert!(findings.is_empty(), "{findings:?}");
    // What is damaged there is found, too.
    assert!(scrubbed(&replica).records > 0);
    damage(directory.path(), "DELETE FROM records WHERE id = (SELECT min(id) FROM records)");
    let scrub = scrubbed(&replica);
    assert!(scrub.found == 1 && scrub.findings[0].mend.contains("snapshot"), "{scrub:?}");
}

#[tokio::test]
async fn flipped_bits_of_the_file_are_found_if_they_change_a_row() {
    const FLIPS: u32 = 120;
    if let Ok(wanted) = std::env::var(DAMAGE) {
        return invert_as_another(&wanted);
    }
    let directory = filled().await;
    let names = open(directory.path());
    let rows_of = || {
        let mut content = content(directory.path()).ok()?;
        // The identity of the log is compared with that in the file beside it.
        content.pop();
        Some(content)
    };
    let (expected, bytes) = (rows_of().unwrap(), directory.path().join(LOG_FILE).metadata().unwrap().len());
    assert_eq!(found(&names), []);
    let mut random = StdRng::seed_from_u64(48);
    let (mut codes, mut harmless) = (BTreeMap::<&str, u32>::new(), 0);
    for _ in 0..FLIPS {
        // The header has what no row depends on.
        let (at, bit) = (random.random_range(100..bytes as usize), random.random_range(0..8));
        invert(directory.path(), at, 1, 1 << bit);
        let scrub = scrubbed(&names);
        match scrub.findings.first() {
            Some(finding) => *codes.entry(finding.code).or_default() += 1,
            None => {
                assert!(
                    rows_of().as_ref() == Some(&expected),
                    "byte {at}, bit {bit}: a row that is not what was written"
                );
                harmless += 1;
            }
        }
        invert(directory.path(), at, 1, 1 << bit);
    }
    println!("{FLIPS} flipped bits of {bytes} bytes: {harmless} change no row, found by {codes:?}");
    for code in ["record-unreadable", "change-unreadable"] {
        assert!(codes.contains_key(code), "{codes:?}");
    }
    assert_eq!(found(&names), [], "the file is as it was");
}

#[tokio::test]
async fn each_row_with_a_flipped_bit_is_named() {
    let directory = filled().await;
    let names = open(directory.path());
    for n in 0..3 {
        pushed(&names, &format!("gone/{n}"), 1).await;
        purged(&names, &format!("gone/{n}")).await;
    }
    let log = Connection::open(directory.path().join(LOG_FILE)).unwrap();
    let mut random = StdRng::seed_from_u64(49);
    let mut seen = BTreeMap::<&str, u32>::new();
    for (table, key) in [("records", "id"), ("log", "position"), ("tail", "position"), ("memories", "address")] {
        let mut select = log.prepare(&format!("SELECT CAST({key} AS TEXT), body FROM {table}")).unwrap();
        let rows = select.query_map([], |row| Ok((row.get(0)?, row.get(1)?))).unwrap();
        let rows: Vec<(String, Vec<u8>)> = rows.map(Result::unwrap).collect();
        for (id, body) in rows {
            let set = |body: &[u8]| {
                let update = format!("UPDATE {table} SET body = ?2 WHERE CAST({key} AS TEXT) = ?1");
                assert_eq!(log.execute(&update, params![id, body]).unwrap(), 1);
            };
            let mut flipped = body.clone();
            flipped[random.random_range(0..body.len())] ^= 1 << random.random_range(0..8);
            set(&flipped);
            let found = found(&names);
            let named = found.iter().any(|(code, address, what)| match table {
                "records" => {
                    let (record, _) = rows::checked_record(id.parse().unwrap(), &body).unwrap();
                    *code == "record-unreadable"
                        && what.contains(&format!("record {id} "))
                        && **address == *record.address
                }
                "memories" => *code == "memory-unreadable" && *address == id,
                _ => *code == "change-unreadable" && what.contains(&format!("change {id} ")),
            });
            assert!(named, "{table} {id}: {found:?}");
            *seen.entry(table).or_default() += 1;
            set(&body);
        }
    }
    println!("{seen:?}");
    assert_eq!(seen.len(), 4);
    assert_eq!(found(&names), []);
}

#[tokio::test]
async fn rows_that_are_valid_and_not_what_is_served_are_found_until_the_record_is_written() {
    let directory = tempfile::tempdir().unwrap();
    let names = open(directory.path());
    for n in 0..40 {
        pushed(&names, &format!("a{n}"), 1).await;
    }
    let log = Connection::open(directory.path().join(LOG_FILE)).unwrap();
    let id = names.view().state().get(&at("a7")).unwrap().id;
    let older: Vec<u8> = log.query_row("SELECT body FROM records WHERE id = ?1", [id], |row| row.get(0)).unwrap();
    pushed(&names, "a7", 2).await;
    assert_eq!(found(&names), []);
    // A page that was not written shows what was there before.
    log.execute("UPDATE records SET body = ?2 WHERE id = ?1", params![id, older]).unwrap();
    let named = |found: Vec<(&str, String, String)>, words: &str| {
        assert_eq!(found.len(), 1, "{found:?}");
        let (code, address, what) = &found[0];
        assert!(*code == "state-differs" && address == "a7:main" && what.contains(words), "{found:?}");
    };
    named(found(&names), "an older value");
    pushed(&names, "a7", 3).await;
    assert_eq!(found(&names), [], "a write stores what memory has");

    log.execute("DELETE FROM records WHERE id = ?1", [id]).unwrap();
    named(found(&names), &format!("record {id} has no row"));
    pushed(&names, "a7", 4).await;
    assert_eq!(found(&names), []);

    purged(&names, "a7").await;
    assert_eq!(found(&names), []);
    log.execute("INSERT INTO records VALUES (?1, ?2)", params![id, older]).unwrap();
    named(found(&names), "is of nothing");
    let mend = scrubbed(&names).findings.remove(0).mend;
    assert!(mend.contains("export"), "no write mends it: {mend}");
    log.execute("DELETE FROM records WHERE id = ?1", [id]).unwrap();

    let memory: Vec<u8> = log.query_row("SELECT body FROM memories", [], |row| row.get(0)).unwrap();
    log.execute("DELETE FROM memories", []).unwrap();
    named(found(&names), "has no row");
    let later = std::time::SystemTime::now() + Duration::from_secs(49 * 3600);
    let names = names.with_clock(move || later);
    assert_eq!(found(&names), [], "it no longer counts");
    let names = names.with_clock(std::time::SystemTime::now);
    log.execute("INSERT INTO memories VALUES ('a7:main', ?1)", [&memory]).unwrap();
    pushed(&names, "a7", 1).await;
    purged(&names, "a7").await;
    log.execute("UPDATE memories SET body = ?1", [memory]).unwrap();
    named(found(&names), "an older value");
}

#[tokio::test]
async fn changes_that_are_gone_are_found() {
    for (statement, code, words) in [
        ("position = 20", "log-gap", "no changes between 19 and 21"),
        ("position = (SELECT max(position) FROM changes)", "answered-lost", "were answered"),
    ] {
        let directory = tempfile::tempdir().unwrap();
        let names = open(directory.path());
        for n in 0..40 {
            pushed(&names, &format!("a{n}"), 1).await;
        }
        assert_eq!(found(&names), []);
        for table in ["log", "tail"] {
            damage(directory.path(), &format!("DELETE FROM {table} WHERE {statement}"));
        }
        let found = found(&names);
        assert!(found.iter().any(|(found, _, what)| *found == code && what.contains(words)), "{found:?}");
    }
}

#[tokio::test]
async fn the_records_of_a_page_that_is_broken_are_named_and_the_others_are_read() {
    const PAGE: usize = 4096;
    let directory = tempfile::tempdir().unwrap();
    let names = open(directory.path());
    for n in 0..400 {
        pushed(&names, &format!("a/{n}"), 1).await;
    }
    drop(names);
    let bytes = std::fs::read(directory.path().join(LOG_FILE)).unwrap();
    let names = open(directory.path());
    let whole = scrubbed(&names);
    let pages =
        bytes.chunks(PAGE).enumerate().skip(1).filter(|(_, page)| page.windows(9).any(|text| text == b"a/200:mai"));
    let pages: Vec<usize> = pages.map(|(page, _)| page).collect();
    assert!(!pages.is_empty());
    for page in &pages {
        invert(directory.path(), page * PAGE, PAGE, 0xff);
    }
    let scrub = scrubbed(&names);
    let has = |code: &str| scrub.findings.iter().find(|finding| finding.code == code);
    assert!(has("file-damaged").is_some(), "{scrub:?}");
    let named = has("record-unreadable").unwrap_or_else(|| panic!("{scrub:?}"));
    assert!(named.address.as_ref().is_some_and(|address| address.starts_with("a/")), "{named:?}");
    assert!(scrub.found > 20 && scrub.found < whole.changes, "{} findings", scrub.found);
    // What is served is in memory.
    assert!(names.view().record(&at("a/200")).is_some());
    for page in pages {
        invert(directory.path(), page * PAGE, PAGE, 0xff);
    }
    assert_eq!(found(&names), []);
}

#[tokio::test]
async fn a_scrub_ends_when_it_is_told_and_keeps_no_checkpoint_waiting() {
    let directory = filled().await;
    let names = open(directory.path());
    let log = Connection::open(directory.path().join(LOG_FILE)).unwrap();
    let mut steps = 0;
    let whole = names.scrub(&mut |_, _| {
        steps += 1;
        let checkpoint = "PRAGMA wal_checkpoint(TRUNCATE)";
        assert_eq!(log.query_row(checkpoint, [], |row| row.get::<_, i64>(0)).unwrap(), 0, "a reader is in the way");
        true
    });
    assert!(whole.unwrap().is_whole && steps > 10, "{steps}");
    for last in 1..=steps {
        let mut step = 0;
        let scrub = names.scrub(&mut |_, _| {
            step += 1;
            step < last
        });
        let scrub = scrub.unwrap();
        assert!(!scrub.is_whole && scrub.found == 0 && step == last, "{last}: {scrub:?}");
    }
    let memory = Embedded::memory(Options::default()).unwrap();
    assert!(memory.scrub(&mut |_, _| panic!("there is nothing to read")).unwrap().is_whole);
}

#[tokio::test]
async fn what_is_found_is_known_before_a_scrub_ends() {
    let directory = filled().await;
    let names = open(directory.path());
    damage(directory.path(), "UPDATE records SET body = x'00' WHERE id = (SELECT min(id) FROM records)");
    let mut known = Vec::new();
    let scrub = names.scrub(&mut |_, so_far| {
        known.extend(so_far.findings.clone());
        known.is_empty()
    });
    let scrub = scrub.unwrap();
    assert!(!scrub.is_whole && scrub.found == 1 && known == scrub.findings, "{scrub:?}");
}

#[tokio::test]
async fn large_rows_are_read_a_few_at_a_time() {
    let directory = tempfile::tempdir().unwrap();
    let names = open(directory.path());
    for n in 0..8 {
        pushed(&names, &format!("a/{n}"), 1).await;
    }
    let count = || {
        let mut steps = 0;
        let scrub = names.scrub(&mut |_, _| {
            steps += 1;
            true
        });
        (scrub.unwrap().records, steps)
    };
    let (records, steps) = count();
    damage(directory.path(), "UPDATE records SET body = zeroblob(3000000)");
    assert_eq!((records, count().0), (8, 8));
    assert!(count().1 >= steps + 3, "{steps}");
}

/// What another process does: it removes the file of a log, or cuts it to nothing.
const END: &str = "NAMESERVICE_TEST_END";

#[tokio::test]
async fn a_log_that_is_gone_or_cut_to_nothing_is_found_and_keeps_its_write_ahead_file() {
    const NAME: &str = "tests::scrub::a_log_that_is_gone_or_cut_to_nothing_is_found_and_keeps_its_write_ahead_file";
    if let Ok(wanted) = std::env::var(END) {
        let (end, log) = wanted.split_once(' ').unwrap();
        return match end {
            "cut" => drop(File::create(log).unwrap()),
            _ => std::fs::remove_file(log).unwrap(),
        };
    }
    for (end, words) in [("cut", "shorter than a header"), ("removed", "is gone")] {
        let directory = tempfile::tempdir().unwrap();
        let names = open(directory.path());
        pushed(&names, "a", 1).await;
        let log = directory.path().join(LOG_FILE);
        let mut other = Command::new(std::env::current_exe().unwrap());
        other.args(["--exact", NAME]).stdout(Stdio::null()).env(END, format!("{end} {}", log.display()));
        assert!(other.status().unwrap().success());
        let found = found(&names);
        assert!(found.len() == 1 && found[0].0 == "file-damaged" && found[0].2.contains(words), "{found:?}");
        let backup = names.backup(directory.path().join("backup")).await.unwrap_err();
        assert!(backup.is_damage(), "{backup:?}");
        assert!(names.timeline().is_err());
        let _ = names.history(&at("a"), &nameservice_model::HistoryQuery::default()).await;
        assert!(directory.path().join(format!("{LOG_FILE}-wal")).metadata().unwrap().len() > 0);
    }
}
