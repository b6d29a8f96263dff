//! The bugs that `cargo planted` plants at night fit the tree and the suite.

mod bugs;

use std::{env, path::Path, process::Command};

use bugs::{BUGS, misplaced};

#[test]
fn every_bug_has_its_one_place() {
    let misplaced = misplaced(Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap());
    assert!(misplaced.is_empty(), "{}", misplaced.join("\n"));
    for bug in BUGS {
        assert_ne!(bug.find, bug.put, "{} changes nothing", bug.name);
    }
}

#[test]
fn every_bug_names_tests_of_the_suite() {
    let listed = Command::new(env::current_exe().unwrap()).arg("--list").output().unwrap();
    assert!(listed.status.success(), "{listed:?}");
    let listed = String::from_utf8(listed.stdout).unwrap();
    let names: Vec<&str> = listed.lines().filter_map(|line| line.strip_suffix(": test")).collect();
    for bug in BUGS {
        assert!(!bug.tests.is_empty(), "{} names no test", bug.name);
        for filter in bug.tests {
            assert!(names.iter().any(|name| name.contains(filter)), "{}: no test has {filter} in its name", bug.name);
        }
    }
}
