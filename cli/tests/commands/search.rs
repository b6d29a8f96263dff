//! `search`, on backends with and without one.

use super::{engine::Engine, run, spawn_serve};

#[test]
fn a_search_prints_the_best_hits_first_and_where_the_words_were_found() {
    let directory = tempfile::tempdir().unwrap();
    let service = spawn_serve(directory.path());
    let target = ["--url", &service.url];
    for line in ["create old-books", "create books", "create text --source-type f:Bm25Index --depends-on books"] {
        assert_eq!(run(&target, line).0, 0, "{line}");
    }
    let (code, stdout, _) = run(&target, "search BOOKS main");
    let (first, second) = (stdout.find("books:main").unwrap(), stdout.find("old-books:main").unwrap());
    assert!(code == 0 && first < second, "{stdout}");
    let (code, stdout, _) = run(&target, "search bm25 ready --kind graph-source --state ready");
    assert!(
        code == 0 && stdout.contains("graph source f:Bm25Index") && stdout.contains("source type, state"),
        "{stdout}"
    );
    let (code, stdout, _) = run(&target, "search books --limit 1");
    let cursor = stdout.split_whitespace().last().unwrap();
    assert!(code == 0 && stdout.contains("--cursor"), "{stdout}");
    let (code, stdout, _) = run(&target, &format!("search books --limit 1 --cursor {cursor}"));
    assert!(code == 0 && stdout.contains("old-books:main") && !stdout.contains("--cursor"), "{stdout}");
    assert!(run(&target, "search nowhere").1.contains("nothing found"));
    assert_eq!(run(&target, "search").0, 2);
    assert_eq!(run(&target, "search a --limit 0").0, 2);
}

#[test]
fn a_table_has_no_search_and_the_command_says_what_has_one() {
    let engine = Engine::start();
    let target = ["--endpoint-url", engine.url()];
    assert_eq!(run(&target, "init").0, 0);
    let (code, _, stderr) = run(&target, "search books");
    assert!(code == 1 && stderr.contains("no search index") && stderr.contains("replica"), "{code} {stderr}");
}
