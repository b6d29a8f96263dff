//! What the doctor finds among files, and what it repairs.

use std::fs;

use super::*;
use crate::{CODES, Finding, Fix, names};

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
    assert_eq!(
        codes(&found(&files, false).await),
        ["commits-above-head", "id-foreign", "id-foreign", "index-ahead", "name-unlistable"]
    );
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
    put("a%2Fb/main.json", &ledger("a%2Fb:main", ""));
    put("odd/main.json", &ledger("odd:main", r#", "f:commitCid": "nonsense""#));
    put(
        "foreign/main.json",
        &ledger("foreign:main", r#", "f:commitCid": "bafkreihdwdcefgh4dqkjv67uzcmw7ojee6xedzdetojuzjevtenxquvyku""#),
    );
    let line = |t: i64, n: usize| format!(r#"{{"t":{t},"cid":"{}"}}"#, IDS[n]);
    put("mydb/main.commits.jsonl", &[line(1, 0), line(1, 1), line(5, 1), line(9, 1)].join("\n"));
    put("foreign/main.commits.jsonl", "{");
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
    let all = ["commit-not-head", "commits-above-head", "commits-superseded", "count-wrong", "stage-left"];
    assert_eq!(mendable(&Fix::Possible), all);
    let before = everything(&later).await.len();
    let mended = found(&later, true).await;
    assert_eq!(mended.iter().filter(|finding| finding.fix == Fix::Done).count(), all.len(), "{mended:#?}");
    let left = codes(&found(&later, false).await);
    assert!(all.iter().all(|mended| !left.contains(mended)), "{left:?}");
    assert_eq!((left.len(), everything(&later).await.len()), (expected.len() - all.len(), before));
    assert_eq!(later.lookup(&db).await.unwrap().unwrap().branches, 1);
}

/// The count was right: the branch that it counts cannot be read.
#[tokio::test]
async fn a_count_is_not_corrected_beside_a_branch_that_cannot_be_read() {
    for text in ["", "{"] {
        let (files, directory) = directory();
        let db = born(&files, "mydb", 5).await;
        let dev = at("mydb:dev");
        let created = files.create_branch(&Call::fresh(), &dev, &db, None).await.unwrap();
        assert!(matches!(created, BranchCreated::Created(_)));
        fs::write(directory.path().join(names::main_key(&dev)), text).unwrap();
        let findings = found(&files, true).await;
        let wrong = findings.iter().find(|finding| finding.code == "count-wrong").unwrap();
        assert!(wrong.fix == Fix::ByHand && wrong.mend.contains("dev.json"), "{wrong:?}");
        assert_eq!(files.lookup(&db).await.unwrap().unwrap().branches, 1);
    }
}

#[tokio::test]
async fn a_repeated_branch_does_not_correct_a_count_beside_a_branch_that_cannot_be_read() {
    let (files, directory) = directory();
    let db = born(&files, "mydb", 5).await;
    let (call, dev) = (Call::fresh(), at("mydb:dev"));
    for (call, branch) in [(Call::fresh(), &dev), (call.clone(), &at("mydb:other"))] {
        let created = files.create_branch(&call, branch, &db, None).await.unwrap();
        assert!(matches!(created, BranchCreated::Created(_)));
    }
    fs::write(directory.path().join(names::main_key(&dev)), "{").unwrap();
    let again = files.create_branch(&call, &at("mydb:other"), &db, None).await.unwrap();
    assert!(matches!(again, BranchCreated::Created(_)));
    assert_eq!(files.lookup(&db).await.unwrap().unwrap().branches, 2);
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

#[tokio::test]
async fn ids_that_flurees_engine_cannot_read_are_rejected_unless_forced_and_found() {
    const RAW: &str = "bafkreihdwdcefgh4dqkjv67uzcmw7ojee6xedzdetojuzjevtenxquvyku";
    let raw = || ContentId::parse(RAW).unwrap();
    let (all, _directory) = both();
    for files in all {
        let db = born(&files, "mydb", 1).await;
        let before = files.lookup(&db).await.unwrap();
        let call = Call::fresh();
        let head = HeadPush::monotonic(NewHead::new(raw(), 2).unwrap());
        let index = IndexPush::monotonic(NewIndex::new(raw(), 1).unwrap());
        let as_index = HeadPush::monotonic(NewHead::new(root(0), 2).unwrap());
        let to = ResetTo::new(None, Some(NewIndex::new(id(0), 1).unwrap())).unwrap();
        let rejected = [
            files.push_head(&call, &db, &head).await.map(drop),
            files.push_head(&call, &db, &as_index).await.map(drop),
            files.push_index(&call, &db, &index).await.map(drop),
            files.reset_head(&call, &db, &to).await.map(drop),
            files.create_ledger(&call, &at("new"), Some(&NewHead::new(raw(), 1).unwrap()), None).await.map(drop),
            files.create_branch(&call, &at("mydb:dev"), &db, Some(&NewHead::new(raw(), 1).unwrap())).await.map(drop),
        ];
        for rejected in rejected {
            assert!(matches!(rejected, Err(Error::NotFluree { .. })), "{rejected:?}");
        }
        assert_eq!(files.lookup(&db).await.unwrap(), before);
        assert_eq!(codes(&found(&files, false).await), Vec::<&str>::new());
        // A graph source has an index of its own kind.
        let publication = GraphSourcePublication::new(at("search"), "f:Bm25Index", Object::new()).unwrap();
        let _ = files.publish_graph_source(&call, &publication).await.unwrap();
        assert!(files.push_index(&call, &at("search"), &index).await.unwrap().is_updated());
        let forced = Call::fresh().allowing_foreign(true);
        assert!(files.push_head(&forced, &db, &head).await.unwrap().is_updated());
        assert!(files.push_index(&forced, &db, &index).await.unwrap().is_updated());
        let findings = found(&files, true).await;
        assert_eq!(codes(&findings), ["id-foreign", "id-foreign"]);
        assert!(
            findings.iter().all(|finding| finding.fix == Fix::ByHand && finding.what.contains(RAW)),
            "{findings:?}"
        );
        // An administrator has allowed them: nothing is left to do.
        assert!(findings.iter().all(|finding| !finding.is_open()), "{findings:?}");
    }
}
