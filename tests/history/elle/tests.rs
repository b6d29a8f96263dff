//! Handwritten histories, and the anomalies that they contain.

use super::{Checked, End, Seen, Transaction, Version, check};

fn version(record: &str, t: i64) -> Version {
    Version { t, id: (t > 0).then(|| format!("{record}{t}")) }
}

/// A transaction that was committed within this time.
fn committed(client: u32, invoked: u64, returned: u64) -> Transaction {
    Transaction::reading(client, invoked, returned, Vec::new())
}

/// A transaction whose client does not know how it ended.
fn unknown(client: u32, invoked: u64) -> Transaction {
    Transaction { returned: None, end: End::Unknown, ..committed(client, invoked, 0) }
}

impl Transaction {
    fn reads(mut self, record: &str, t: i64) -> Self {
        self.reads.push((record.to_owned(), Seen::Last(version(record, t))));
        self
    }

    fn reads_all(mut self, record: &str, ts: &[i64]) -> Self {
        let list = ts.iter().map(|t| version(record, *t)).collect();
        self.reads.push((record.to_owned(), Seen::All(list)));
        self
    }

    fn appends(mut self, record: &str, t: i64) -> Self {
        self.appends.push((record.to_owned(), version(record, t)));
        self
    }

    /// Appends with another id than others at this `t`.
    fn appends_another(mut self, record: &str, t: i64) -> Self {
        self.appends.push((record.to_owned(), Version { t, id: Some(format!("{record}{t} again")) }));
        self
    }

    fn rejected(self) -> Self {
        Self { end: End::Rejected, ..self }
    }

    fn at_replica(self, replica: usize) -> Self {
        Self { replica: Some(replica), ..self }
    }
}

#[test]
fn each_anomaly_is_found_under_its_name() {
    let planted: [(&str, &str, Vec<Transaction>); 20] = [
        (
            "G0",
            "two transactions append to two records in opposite orders",
            vec![
                committed(0, 0, 9).appends("x", 1).appends("y", 2),
                committed(1, 1, 8).appends("x", 2).appends("y", 1),
            ],
        ),
        (
            "G1a",
            "a read of what was rejected",
            vec![committed(0, 0, 1).appends("x", 1).rejected(), committed(1, 2, 3).reads("x", 1)],
        ),
        (
            "G1c",
            "two transactions read what the other appended",
            vec![committed(0, 0, 9).appends("x", 1).reads("y", 1), committed(1, 1, 8).appends("y", 1).reads("x", 1)],
        ),
        (
            "G-single",
            "half of a transaction is read",
            vec![committed(0, 0, 9).appends("x", 1).appends("y", 1), committed(1, 1, 8).reads("x", 1).reads("y", 0)],
        ),
        (
            "G-single",
            "half of a transaction that was never answered is read",
            vec![unknown(0, 0).appends("x", 1).appends("y", 1), committed(1, 1, 8).reads("x", 1).reads("y", 0)],
        ),
        (
            "G-single",
            "an update is lost",
            vec![
                committed(0, 0, 9).reads("x", 0).appends("x", 1),
                committed(1, 1, 8).reads("x", 0).appends_another("x", 1),
            ],
        ),
        (
            "G-single",
            "an update is lost under a later one",
            vec![committed(0, 0, 9).reads("x", 0).appends("x", 1), committed(1, 1, 8).reads("x", 0).appends("x", 2)],
        ),
        (
            "G-single",
            "a list lacks an element",
            vec![
                committed(0, 0, 9).appends("x", 1),
                committed(1, 1, 8).appends("x", 2),
                committed(2, 2, 7).reads_all("x", &[2]),
            ],
        ),
        (
            "G2",
            "write skew",
            vec![committed(0, 0, 9).reads("x", 0).appends("y", 1), committed(1, 1, 8).reads("y", 0).appends("x", 1)],
        ),
        (
            "G2",
            "two readers see two appends in opposite orders",
            vec![
                committed(0, 0, 9).appends("x", 1),
                committed(1, 1, 8).appends("y", 1),
                committed(2, 2, 7).reads("x", 1).reads("y", 0),
                committed(3, 3, 6).reads("x", 0).reads("y", 1),
            ],
        ),
        (
            "G0-realtime",
            "an append below one that was acknowledged before it began",
            vec![committed(0, 0, 1).appends("x", 2), committed(1, 2, 3).appends("x", 1)],
        ),
        (
            "G1c-realtime",
            "a read of what was appended after it",
            vec![committed(0, 0, 1).reads("x", 1), committed(1, 2, 3).appends("x", 1)],
        ),
        (
            "G-single-realtime",
            "an acknowledged append is not read",
            vec![committed(0, 0, 1).appends("x", 1), committed(1, 2, 3).reads("x", 0)],
        ),
        (
            "G-single-realtime",
            "a read goes back",
            vec![
                committed(0, 0, 9).appends("x", 1),
                committed(1, 1, 2).reads("x", 1),
                committed(2, 3, 4).reads("x", 0),
            ],
        ),
        (
            "G-single-realtime",
            "half of a transaction is applied",
            vec![
                unknown(0, 0).appends("x", 1).appends("y", 1),
                committed(1, 1, 2).reads_all("x", &[1]),
                committed(1, 3, 4).reads_all("y", &[]),
            ],
        ),
        (
            "G-single-session",
            "the reads of a client at a replica go back",
            vec![
                committed(0, 0, 9).appends("x", 1),
                committed(1, 1, 2).reads("x", 1).at_replica(0),
                committed(1, 3, 4).reads("x", 0).at_replica(0),
            ],
        ),
        (
            "G-single",
            "half of a transaction is read at a replica",
            vec![
                committed(0, 0, 1).appends("x", 1).appends("y", 1),
                committed(1, 2, 3).reads("x", 1).reads("y", 0).at_replica(0),
            ],
        ),
        ("garbage read", "an element from nowhere", vec![committed(0, 0, 1).reads("x", 7)]),
        (
            "incompatible order",
            "two elements in one place",
            vec![committed(0, 0, 9).appends("x", 1), committed(1, 1, 8).appends_another("x", 1)],
        ),
        (
            "incompatible order",
            "a list in another order",
            vec![
                committed(0, 0, 9).appends("x", 1),
                committed(1, 1, 8).appends("x", 2),
                committed(2, 10, 11).reads_all("x", &[2, 1]),
            ],
        ),
    ];
    for (name, what, history) in planted {
        let found = check(&history).expect_err(what);
        assert_eq!(found.name, name, "{what}: {found}");
    }
}

#[test]
fn an_anomaly_shows_its_cycle_and_nothing_else() {
    let history = [
        committed(3, 0, 1).appends("z", 1),
        committed(0, 2, 9).appends("x", 1).appends("y", 1),
        committed(1, 3, 8).reads("x", 1).reads("y", 0),
    ];
    let shown = check(&history).unwrap_err().to_string();
    for part in ["G-single:", "wr (x: t1 …x1)", "rw (y: t1 …y1)", "T1 [client 0, 2..9]", "T2 [client 1, 3..8]"] {
        assert!(shown.contains(part), "{part} is not in {shown}");
    }
    assert!(!shown.contains("T0"), "{shown}");
}

#[test]
fn a_cycle_is_found_among_many_transactions() {
    // Two lists that grow together, and a reader of both at different times.
    let mut history: Vec<Transaction> = (1..300)
        .map(|t| {
            let at = 10 * t as u64;
            committed(0, at, at + 1).reads("x", t - 1).reads("y", t - 1).appends("x", t).appends("y", t)
        })
        .collect();
    check(&history).unwrap();
    history.push(committed(1, 5, 9_000).reads("x", 102).reads("y", 100));
    let found = check(&history).unwrap_err();
    assert_eq!(found.name, "G-single", "{found}");
    assert!(found.to_string().lines().count() < 12, "{found}");
}

#[test]
fn histories_that_a_serial_order_explains_have_no_anomaly() {
    let fine: [(&str, usize, Vec<Transaction>); 6] = [
        (
            "a chain of updates",
            3,
            vec![
                committed(0, 0, 1).reads("x", 0).appends("x", 1),
                committed(1, 2, 3).reads("x", 1).appends("x", 2).appends("y", 1),
                committed(2, 4, 5).reads_all("x", &[1, 2]).reads_all("y", &[1]),
            ],
        ),
        (
            "a transaction that was never answered and is read whole",
            2,
            vec![unknown(0, 0).appends("x", 1).appends("y", 1), committed(1, 1, 2).reads("x", 1).reads("y", 1)],
        ),
        (
            "one that was never answered and is not read",
            1,
            vec![unknown(0, 0).appends("x", 1).appends("y", 1), committed(1, 1, 2).reads("x", 0).reads("y", 0)],
        ),
        (
            "one that was rejected and is not read",
            1,
            vec![committed(0, 0, 1).appends("x", 1).rejected(), committed(1, 2, 3).reads("x", 0)],
        ),
        (
            "reads of either state beside a transaction",
            3,
            vec![
                committed(0, 0, 9).appends("x", 1).appends("y", 1),
                committed(1, 1, 2).reads("x", 0).reads("y", 0),
                committed(1, 3, 4).reads("x", 1).reads("y", 1),
            ],
        ),
        (
            "a replica that lags behind",
            3,
            vec![
                committed(0, 0, 1).appends("x", 1).appends("y", 1),
                committed(1, 2, 3).reads("x", 0).reads("y", 0).at_replica(0),
                committed(1, 4, 5).reads("x", 1).reads("y", 1).at_replica(1),
            ],
        ),
    ];
    for (name, transactions, history) in fine {
        let Checked { transactions: applied, .. } = check(&history).unwrap_or_else(|why| panic!("{name}: {why}"));
        assert_eq!(applied, transactions, "{name}");
    }
}
