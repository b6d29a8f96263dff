//! Beside live traffic: no false alarm, no harm.

use super::*;

/// Fixes what the doctor finds until it finds nothing; panics if that does not end.
async fn settle(table: &Table) {
    for _ in 0..5 {
        if examine(&table.store, true).await.is_empty() {
            return;
        }
    }
    panic!("{:?}", examine(&table.store, true).await);
}

/// Our own writers leave nothing to find at any time: any finding beside them is a false alarm, and its remedy would do
/// harm.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn beside_our_own_writers_there_is_no_false_alarm_and_no_harm() {
    /// The least number of looks beside the writers of a seed.
    const LOOKS: usize = 6;
    for seed in 0..4 {
        let table = Arc::new(Table::fresh().await);
        let working = Arc::new(AtomicBool::new(true));
        let looks = Arc::new(AtomicUsize::new(0));
        let doctor = {
            let (table, working, looks) = (table.clone(), working.clone(), looks.clone());
            tokio::spawn(async move {
                while working.load(Ordering::Relaxed) {
                    for finding in examine(&table.store, true).await {
                        assert_eq!(finding.code, "unsettled", "{finding:?}");
                    }
                    looks.fetch_add(1, Ordering::Relaxed);
                }
            })
        };
        let writers = (0..4).map(|writer| {
            let (table, looks) = (table.clone(), looks.clone());
            tokio::spawn(async move {
                let (mut dice, until) = (StdRng::seed_from_u64(seed * 100 + writer), Instant::now() + LONG);
                let mut writes = 0;
                while writes < 60 || looks.load(Ordering::Relaxed) < LOOKS {
                    assert!(Instant::now() < until, "the doctor had {looks:?} looks");
                    anything_at_all(&table.store, &mut dice).await;
                    writes += 1;
                }
            })
        });
        join_all(writers).await.into_iter().for_each(Result::unwrap);
        working.store(false, Ordering::Relaxed);
        doctor.await.unwrap();
        assert_references(&table.all_rows().await);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn beside_writers_who_do_anything_nothing_is_lost_and_every_count_is_right() {
    const HEADS: i64 = 120;
    let table = Arc::new(Table::fresh().await);
    let hot = at("hot");
    table.store.create_ledger(&Call::fresh(), &hot, None, None).await.unwrap().applied();
    let working = Arc::new(AtomicBool::new(true));
    let mended = Arc::new(AtomicUsize::new(0));
    let doctor = {
        let (table, working, mended) = (table.clone(), working.clone(), mended.clone());
        tokio::spawn(async move {
            while working.load(Ordering::Relaxed) {
                let findings = examine(&table.store, true).await;
                mended.fetch_add(findings.iter().filter(|f| f.fix == Fix::Done).count(), Ordering::Relaxed);
                let failed = findings.iter().find(|finding| matches!(finding.fix, Fix::Failed(_)));
                assert!(failed.is_none(), "{failed:?}");
            }
        })
    };
    // Pushes to one record, each expecting the one before: none may be lost.
    let pusher = {
        let (table, hot) = (table.clone(), hot.clone());
        tokio::spawn(async move {
            let mut before = Head::unborn();
            for t in 1..=HEADS {
                let new = Head::new(t, id_of(&format!("{t}")));
                let pushed = table.store.push_head(&Call::fresh(), &hot, &cas(before, new.clone())).await.unwrap();
                assert_eq!(pushed, updated(new.clone()));
                before = new;
            }
        })
    };
    let ours = (0..2).map(|writer| {
        let table = table.clone();
        tokio::spawn(async move {
            let mut dice = StdRng::seed_from_u64(writer);
            for _ in 0..80 {
                anything_at_all(&table.store, &mut dice).await;
            }
        })
    });
    // Programs that write past us: uncounted sources, retractions by the meta alone, ghosts and orphans.
    let theirs = {
        let (table, mended) = (table.clone(), mended.clone());
        tokio::spawn(async move {
            let (mut dice, until) = (StdRng::seed_from_u64(99), Instant::now() + LONG);
            for round in 0.. {
                if round >= 60 && mended.load(Ordering::Relaxed) > 10 {
                    break;
                }
                assert!(Instant::now() < until, "the doctor has mended {mended:?}");
                let name = format!("f{}:main", round % 5);
                match dice.random_range(0..4) {
                    0 => table.put(&rows::graph_source(&name, "f:Bm25Index", "{}", &["a:main", "hot:main"])).await,
                    1 => Fluree::on(&table).retract(&name).await,
                    2 => table.put(&rows::orphans(&format!("o{round}:main"), cid(1), 1)).await,
                    _ => table.put(&[rows::ghost_meta(&format!("g{round}:main"))]).await,
                }
            }
        })
    };
    pusher.await.unwrap();
    theirs.await.unwrap();
    join_all(ours).await.into_iter().for_each(Result::unwrap);
    working.store(false, Ordering::Relaxed);
    doctor.await.unwrap();
    assert_eq!(table.store.head(&hot).await.unwrap().unwrap().v, HEADS);
    examine(&table.store, true).await;
    for finding in examine(&table.store, true).await {
        assert!(["dependency-missing", "dependency-retracted"].contains(&finding.code), "{finding:?}");
    }
    assert_counts_follow_their_rows(&table).await;
}

/// Every count is that of the rows, even where the other record is missing.
async fn assert_counts_follow_their_rows(table: &Table) {
    let rows = table.all_rows().await;
    let number = |row: &Row, name: &str| row.get(name).map_or(0, |value| value["N"].as_str().unwrap().parse().unwrap());
    for meta in rows.iter().filter(|row| row["sk"] == rows::s("meta")) {
        let backrefs = rows
            .iter()
            .filter(|row| row["pk"] == meta["pk"] && row["sk"]["S"].as_str().unwrap().starts_with("backref#"))
            .count();
        assert_eq!(number(meta, "dependents"), backrefs as i64, "{meta:?}");
        let branches =
            rows.iter().filter(|row| row.get("name") == meta.get("name") && row.get("bp_source") == meta.get("branch"));
        assert_eq!(number(meta, "branches"), branches.count() as i64, "{meta:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_concurrent_doctors_count_once() {
    for _ in 0..5 {
        let table = Table::fresh().await;
        ledger(&table, "mydb").await;
        for i in 0..6 {
            table.put(&rows::graph_source(&format!("s{i}:main"), "f:Bm25Index", "{}", &["mydb:main"])).await;
        }
        table.set(DB, "meta", "branches", rows::n(3)).await;
        let (one, two) = tokio::join!(examine(&table.store, true), examine(&table.store, true));
        let done = one.iter().chain(&two).filter(|finding| finding.fix == Fix::Done).count();
        assert!(done >= 6, "{one:?} {two:?}");
        settle(&table).await;
        assert_references(&table.all_rows().await);
    }
}
