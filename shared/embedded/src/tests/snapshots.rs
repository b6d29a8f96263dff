use nameservice_model::{Cursor, Limit, NameService, Record};

use super::{head, pushed};
use crate::{Embedded, Options};

async fn page(names: &Embedded, limit: usize, after: Option<&Cursor>) -> (Vec<Record>, Option<Cursor>) {
    let page = names.snapshot(Limit::new(limit).unwrap(), after, &|_| true).await.unwrap();
    (page.items, page.cursor)
}

#[tokio::test]
async fn all_pages_of_a_snapshot_are_at_one_position() {
    let names = Embedded::memory(Options::default()).unwrap();
    for n in 0..10 {
        pushed(&names, &format!("a{n}"), 1).await;
    }
    let position = names.view().position();
    let (mut records, mut cursor) = page(&names, 3, None).await;
    let mut t = 1;
    while let Some(after) = cursor {
        assert_eq!(after.position(), Some(position));
        // What is written between two pages, on records that are still to come, is in none of them.
        t += 1;
        for n in 0..10 {
            pushed(&names, &format!("a{n}"), t).await;
        }
        pushed(&names, &format!("z{t}"), 1).await;
        let next = page(&names, 3, Some(&after)).await;
        records.extend(next.0);
        cursor = next.1;
    }
    assert_eq!(records.len(), 10);
    assert!(records.iter().all(|record| record.head == Some(head(1).value())));
    let (now, _) = page(&names, 100, None).await;
    assert_eq!(now.len(), 13);
}

#[tokio::test]
async fn a_snapshot_whose_state_was_dropped_goes_on_with_a_later_one() {
    let names = Embedded::memory(Options::default()).unwrap();
    for n in 0..4 {
        pushed(&names, &format!("a{n}"), 1).await;
    }
    let (_, cursor) = page(&names, 2, None).await;
    for t in 2..30 {
        pushed(&names, "a3", t).await;
        let (records, _) = page(&names, 1, None).await;
        assert_eq!(records.len(), 1);
    }
    let (records, end) = page(&names, 10, cursor.as_ref()).await;
    let heads: Vec<i64> = records.iter().map(|record| record.head.clone().unwrap().v).collect();
    assert!(heads[0] == 1 && heads[1] > 1, "{heads:?}");
    assert_eq!(end, None);
}

#[tokio::test]
async fn a_view_stays_as_it_was_taken() {
    let names = Embedded::memory(Options::default()).unwrap();
    pushed(&names, "a", 1).await;
    let view = names.view();
    pushed(&names, "a", 2).await;
    pushed(&names, "b", 1).await;
    assert_eq!((view.position(), view.len()), (3, 1));
    assert_eq!(view.record(&super::at("a")).unwrap().head, Some(head(1).value()));
    assert_eq!(names.view().len(), 2);
}
