//! Names that Fluree allows, and those that it does not.

use std::fs;

use super::*;
use crate::names::{self, main_key};

/// Writes the file of a ledger as Fluree 4.2.4 does, whatever its name.
fn put(directory: &TempDir, address: &Address) {
    let path = directory.path().join(main_key(address));
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    let (name, branch) = (address.name().replace('\\', "\\\\"), address.branch());
    let text = format!(
        r#"{{"@context": {{"f": "https://ns.flur.ee/db#"}}, "@id": "{name}:{branch}", "@type": ["f:LedgerSource"],
            "f:ledger": {{"@id": "{name}"}}, "f:branch": "{branch}", "f:t": 0, "f:status": "ready"}}"#
    );
    fs::write(path, text).unwrap();
    fs::write(directory.path().join(names::lock_key(&main_key(address))), "").unwrap();
}

async fn listed(files: &Files, query: ListQuery) -> Vec<Address> {
    let page = files.list(&query, &|_| true).await.unwrap();
    page.items.into_iter().map(|listed| listed.address().clone()).collect()
}

#[tokio::test]
async fn a_ledger_is_listed_shown_and_changed_whatever_its_name_ends_in_and_however_long_it_is() {
    let (files, directory) = directory();
    let long = ["n".repeat(201), "n".repeat(250), format!("a/{}/b", "n".repeat(250))];
    let names =
        ["x.lock", "t/x.lock", "x.tmp", "x.jsonl", "x.json", "x.index"].map(str::to_owned).into_iter().chain(long);
    let mut all: Vec<Address> = names.map(|name| at(&name)).chain([at("y:main.lock"), at("y:b.json")]).collect();
    all.sort();
    for address in &all {
        put(&directory, address);
    }
    assert_eq!(listed(&files, ListQuery::default()).await, all);
    for address in &all {
        assert!(files.lookup(address).await.unwrap().is_some(), "{address}");
        let named = ListQuery { name: Some(address.name().to_owned()), ..ListQuery::default() };
        assert!(listed(&files, named).await.contains(address), "{address}");
        assert!(push(&files, address, 0, 1).await.is_updated(), "{address}");
    }
    files.compare().await.unwrap();
    let Run::Changes(changes) = files.changes(0, Limit::MAX).await.unwrap() else { panic!() };
    let mut changed: Vec<Address> = changes.into_iter().map(|change| change.address).collect();
    changed.sort();
    changed.dedup();
    assert_eq!(changed, all);
    let mut findings = Vec::new();
    files.examine(false, &mut |finding| findings.push(finding)).await.unwrap();
    assert_eq!(findings, []);
    // There is no file of such a name, and so no record.
    let longer = at(&"n".repeat(900));
    assert_eq!(files.lookup(&longer).await.unwrap(), None);
    let named = ListQuery { name: Some(longer.name().to_owned()), ..ListQuery::default() };
    assert!(listed(&files, named).await.is_empty());
    assert_eq!(files.purge(&Call::fresh(), &longer).await.unwrap(), Purged::Unknown);
}

#[cfg(unix)]
#[tokio::test]
async fn names_that_are_no_addresses_are_read_and_named_by_the_doctor() {
    let (files, directory) = directory();
    let odd = ["a%2Fb", "a?b", "a\\b", "my@db"].map(at);
    for address in &odd {
        put(&directory, address);
    }
    put(&directory, &at("mydb"));
    assert_eq!(listed(&files, ListQuery::default()).await, [at("mydb")]);
    let mut findings = Vec::new();
    files.examine(false, &mut |finding| findings.push(finding)).await.unwrap();
    for address in &odd {
        assert!(files.lookup(address).await.unwrap().is_some(), "{address}");
        let of = |finding: &&crate::Finding| finding.address.as_deref() == Some(address.as_str());
        assert_eq!(findings.iter().filter(of).map(|finding| finding.code).collect::<Vec<_>>(), ["address-unusable"]);
    }
    assert_eq!(findings.len(), odd.len(), "{findings:#?}");
}

#[tokio::test]
async fn ledgers_that_fluree_would_not_create_are_created_for_administrators_alone() {
    let (all, _directory) = both();
    for files in all {
        let db = born(&files, "mydb", 1).await;
        let create = HeadPush::create(head(0, 1));
        for name in ["commit", "a/index", "txn/a", "config:dev", "mydb:blob", "graph-sources", "graph-sources/a"] {
            let address = at(name);
            let make = async |call: &Call| files.create_ledger(call, &address, None, None).await;
            for rejected in [
                make(&Call::fresh()).await.map(drop),
                files.push_head(&Call::fresh(), &address, &create).await.map(drop),
            ] {
                assert!(
                    matches!(&rejected, Err(Error::NotFlureeName { address: named, .. }) if *named == address),
                    "{rejected:?}"
                );
            }
            assert_eq!(files.lookup(&address).await.unwrap(), None, "nothing was written");
            let made = make(&Call::fresh().allowing_foreign(true)).await.unwrap();
            assert!(matches!(made, Created::Created(_)), "{made:?}");
        }
        let branch = at("mydb:txn");
        let made = files.create_branch(&Call::fresh(), &branch, &db, None).await;
        assert!(matches!(&made, Err(Error::NotFlureeName { field, .. }) if field == "branch"), "{made:?}");
        assert_eq!(files.lookup(&db).await.unwrap().unwrap().branches, 0);
        let made = files.create_branch(&Call::fresh().allowing_foreign(true), &branch, &db, None).await.unwrap();
        assert!(matches!(made, BranchCreated::Created(_)), "{made:?}");
    }
}
