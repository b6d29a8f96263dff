//! Read models that follow the feed through the faults: of a service over HTTP, and in a table.

use std::{collections::BTreeMap, sync::Arc};

use nameservice_client::Client;
use nameservice_projector::{
    MemoryRows, Projection as _, Projector, TableRows,
    records::{RECORDS, RecordRow, Records, table_of},
};
use nameservice_tests::prelude::*;
use nameservice_views::View;
use tokio::task::JoinHandle;

use super::ground::Ground;

/// How many records of a scan are read together.
const PAGE: usize = 500;

/// The projectors of a round.
pub(super) struct Projections {
    of_service: Projector<Records>,
    rows: Arc<MemoryRows<RecordRow>>,
    /// Over a table: the projector, and the rows past the proxy.
    of_table: Option<(Projector<Records>, TableRows<RecordRow>)>,
    running: Vec<JoinHandle<()>>,
}

type Rows = BTreeMap<Address, RecordRow>;

impl Projections {
    /// Starts the projectors, behind the proxies of the ground.
    pub(super) async fn start(ground: &Ground) -> Self {
        let client = Arc::new(Client::new(ground.front.url()).unwrap());
        let rows = Arc::new(MemoryRows::<RecordRow>::new());
        let of_service = Projector::new(Records, client.clone(), client, rows.clone());
        let mut of_table = None;
        if let Some(table) = &ground.table {
            let name = table_of(&table.name);
            let direct = View::new(table.client.clone(), &name, &RECORDS);
            direct.ensure_table().await.unwrap();
            let view = View::new(nameservice_tests::engine::client(table.proxy.url()), &name, &RECORDS)
                .with_retry_policy(nameservice_tests::engine::RETRIES);
            let projector = view_projector::projector(table.store.clone(), table.feed.clone(), view);
            of_table = Some((projector, TableRows::new(direct)));
        }
        let projectors = std::iter::once(&of_service).chain(of_table.iter().map(|(projector, _)| projector));
        let running = projectors.map(|projector| tokio::spawn(projector.clone().run())).collect();
        Self { of_service, rows, of_table, running }
    }

    /// Applies the rest of the feed, and compares the rows with a scan of the service. Returns how many rows were compared.
    pub(super) async fn judge(self, service: &str) -> usize {
        self.running.iter().for_each(JoinHandle::abort);
        let expected = scanned(service).await;
        assert!(self.of_service.catch_up(None).await.unwrap().is_complete);
        let rows: Rows = self.rows.all().into_iter().map(|(address, _, row)| (address, (*row).clone())).collect();
        compare("in memory", &rows, &expected);
        let mut compared = expected.len();
        if let Some((projector, rows)) = self.of_table {
            assert!(projector.catch_up(None).await.unwrap().is_complete);
            let rows: Rows = rows.all().await.unwrap().into_iter().map(|(address, _, row)| (address, row)).collect();
            compare("in the table", &rows, &expected);
            compared += expected.len();
        }
        compared
    }
}

fn compare(place: &str, rows: &Rows, expected: &Rows) {
    for (address, row) in expected {
        assert_eq!(rows.get(address), Some(row), "{address} {place}");
    }
    let other: Vec<_> = rows.keys().filter(|address| !expected.contains_key(address)).collect();
    assert!(other.is_empty(), "{place} there are rows without a record: {other:?}");
}

async fn scanned(service: &str) -> Rows {
    let client = Client::new(service).unwrap();
    let (mut rows, mut cursor) = (Rows::new(), None);
    loop {
        let page = client.snapshot(at_most(PAGE), cursor.as_ref(), &anything).await.unwrap();
        for record in page.items {
            if let Some(row) = Records.row(&record) {
                rows.insert(record.address, row);
            }
        }
        cursor = page.cursor;
        if cursor.is_none() {
            return rows;
        }
    }
}
