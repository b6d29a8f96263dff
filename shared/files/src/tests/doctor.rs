//! What the doctor finds among files, and what it repairs.

use std::fs;

use super::*;
use crate::{CODES, Finding, Fix};

async fn found(files: &Files, fix: bool) -> Vec<Finding> {
    let mut findings = Vec::new();
    files.examine(fix, &mut |finding| findings.push(finding)).await.unwrap();
    findings
}

fn codes(findings: &[Finding]) -> Vec<&'static str> {
    let mut codes: Vec<_> = findings.iter().map(|finding| finding.code).collect();
    codes.sort_unstable();
    codes
}

#[tokio::test]
async fn what_fluree_wrote_is_sound_but_for_its_known_traps() {
    let (files, _directory) = fluree();
    assert_eq!(codes(&found(&files, false).await), ["index-ahead", "name-unlistable"]);
}

#[tokio::test]
async fn everything_that_can_be_wrong_is_found_and_only_what_is_safe_is_mended() {
    let (files, directory) = directory();
    let db = born(&files, "mydb", 5).await;
    let put = |key: &str, text: &str| {
        let path = directory.path().join("ns@v2").join(key);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    };
    let ledger = |name: &str, more: &str| {
        format!(
            r#"{{"@context": {{}}, "@id": "{name}", "@type": ["f:LedgerSource"], "f:ledger": {{"@id": "{}"}},
                "f:branch": "{}", "f:t": 1, "f:status": "ready"{more}}}"#,
            at(name).name(),
            at(name).branch()
        )
    };
    put("cut/main.json", "{");
    put("moved/main.json", &ledger("elsewhere:main", ""));
    put("empty/main.json", "");
    put("old/main.json", &ledger("old:main", r#", "f:commit": {"@id": "x"}"#));
    put("MyDB/main.json", &ledger("MyDB:main", ""));
    put("slash/a/b.json", &ledger("slash:a/b", ""));
    put("odd/main.json", &ledger("odd:main", r#", "f:commitCid": "nonsense""#));
    put("orphan/main.index.json", r#"{"@context": {}, "f:ledgerIndex": {"f:t": 1}}"#);
    put("mydb/main.index.json", r#"{"@context": {}, "f:ledgerIndex": {"f:t": 9}}"#);
    put("mydb/main.json.12.3.tmp", "half");
    put("mydb/dev.json", &ledger("mydb:dev", r#", "f:sourceBranch": "main""#));
    put("mydb/lost.json", &ledger("mydb:lost", r#", "f:sourceBranch": "nowhere""#));
    let publication = GraphSourcePublication::new(at("search"), "f:Bm25Index", Object::new()).unwrap();
    let publication = publication.with_dependencies(vec![at("MyDB")]).unwrap();
    assert!(matches!(files.publish_graph_source(&Call::fresh(), &publication).await.unwrap(), Published::Created(_)));
    fs::remove_file(directory.path().join("ns@v2/MyDB/main.json")).unwrap();
    put("MYdb/main.json", &ledger("MYdb:main", ""));
    // By this clock, the staging file is more than an hour old.
    let later = files.clone().with_clock(|| std::time::SystemTime::now() + Duration::from_secs(3_700));
    let findings = found(&later, false).await;
    let mut expected: Vec<&str> = CODES.iter().map(|(code, _)| *code).collect();
    expected.sort_unstable();
    assert_eq!(codes(&findings), expected);
    let mendable = |fix: &Fix| {
        let mut codes: Vec<_> = findings.iter().filter(|finding| finding.fix == *fix).map(|f| f.code).collect();
        codes.sort_unstable();
        codes
    };
    assert_eq!(mendable(&Fix::Possible), ["count-wrong", "stage-left"]);
    let before = everything(&later).await.len();
    let mended = found(&later, true).await;
    assert_eq!(mended.iter().filter(|finding| finding.fix == Fix::Done).count(), 2, "{mended:#?}");
    let left = codes(&found(&later, false).await);
    assert!(!left.contains(&"count-wrong") && !left.contains(&"stage-left"), "{left:?}");
    assert_eq!((left.len(), everything(&later).await.len()), (expected.len() - 2, before));
    assert_eq!(later.lookup(&db).await.unwrap().unwrap().branches, 1);
}

#[tokio::test]
async fn a_stage_in_use_is_left_alone() {
    let (files, directory) = directory();
    born(&files, "mydb", 5).await;
    let stage = directory.path().join("ns@v2/mydb/main.json.1.2.tmp");
    fs::write(&stage, "half").unwrap();
    assert_eq!(codes(&found(&files, true).await), Vec::<&str>::new());
    assert!(stage.exists());
}
