use nameservice_tests::prelude::*;

use super::{Fixture, born, every_backend, found, retracted, source};

fn to(head: i64, index: i64) -> ResetTo {
    let (head, index) = ((head > 0).then(|| new_head(head)), (index > 0).then(|| index_of(index, index)));
    ResetTo::new(head, index).unwrap()
}

#[every_backend]
async fn head_and_index_go_backwards_together(ns: &Fixture) {
    let db = born(ns, "mydb", 9).await;
    ns.push_index(&Call::fresh(), &db, &older(index(8))).await.unwrap().applied();
    let wanted = to(4, 3);
    let outcome = ns.reset_head(&Call::fresh(), &db, &wanted).await.unwrap();
    assert_eq!(outcome, Reset::Reset { head: head(4), index: index_at(3, 0) });
    let record = found(ns, &db).await;
    assert_eq!((record.head, record.index), (Some(head(4)), index_at(3, 0)));
    assert_eq!(ns.push_head(&Call::fresh(), &db, &older(head(5))).await.unwrap(), updated(head(5)));
}

#[every_backend]
async fn a_reset_can_make_both_unborn(ns: &Fixture) {
    let db = born(ns, "mydb", 9).await;
    ns.push_index(&Call::fresh(), &db, &older(index(8))).await.unwrap().applied();
    let wanted = to(0, 0);
    let outcome = ns.reset_head(&Call::fresh(), &db, &wanted).await.unwrap();
    assert_eq!(outcome, Reset::Reset { head: Head::unborn(), index: Index::unborn() });
    assert_eq!(found(ns, &db).await.head, Some(Head::unborn()));
}

#[every_backend]
async fn unknown_retracted_and_foreign_records_are_not_reset(ns: &Fixture) {
    let reset = async |address: &Address| ns.reset_head(&Call::fresh(), address, &to(2, 0)).await.unwrap();
    assert_eq!(reset(&at("nobody")).await, Reset::Unknown);
    assert_eq!(ns.lookup(&at("nobody:main")).await.unwrap(), None);
    let db = born(ns, "mydb", 3).await;
    retracted(ns, &db).await;
    assert_eq!(reset(&db).await, Reset::Retracted);
    assert_eq!(ns.head(&db).await.unwrap(), Some(head(3)));
    let search = source(ns, "search", &[]).await;
    assert_eq!(reset(&search).await, Reset::WrongKind(RecordKind::GraphSource));
    assert_eq!(found(ns, &search).await.head, None);
}
