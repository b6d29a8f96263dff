//! What runs in a round: services, replicas, what is between them, and where their data is.

use std::{path::Path, time::Duration};

use nameservice_tests::{link::Link, prelude::*, proxy::Remote};

use super::controls::Controls;
use crate::history::process::{Process, Setup};

const REPLICAS: usize = 2;
/// How many services share a table.
const SERVICES: usize = 2;
/// For how many hours changes can be read where positions expire.
pub(super) const RETENTION_HOURS: u64 = 1;

/// The backend of a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Embedded,
    /// With the stream consumer in each service.
    DynamoDb,
}

impl Kind {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Embedded => "embedded",
            Self::DynamoDb => "dynamodb",
        }
    }
}

/// The processes of a round.
pub(super) struct Ground {
    /// One service; two over a table.
    pub(super) services: Vec<Process>,
    pub(super) replicas: Vec<Process>,
    /// From each replica to its service.
    pub(super) links: Vec<Link>,
    /// From clients to the first service.
    pub(super) front: Remote,
    /// The table, with a proxy before its engine.
    pub(super) table: Option<Proxied<Remote>>,
    /// Disk and clock of the services. They share a clock: what one of them has written must not expire for the other alone.
    pub(super) of_services: Controls,
    of_replicas: Controls,
}

impl Ground {
    /// Starts a round's processes, with their data and logs in this directory, and the proxies before them, which end with what is
    /// returned beside.
    pub(super) async fn start(
        kind: Kind,
        expires: bool,
        library: Option<&Path>,
        directory: &Path,
    ) -> (Self, Vec<Proxy>) {
        let of_services = Controls::new(library, directory, "faults-of-services");
        let of_replicas = Controls::new(library, directory, "faults-of-replicas");
        let path = |name: &str| directory.join(name).to_str().unwrap().to_owned();
        let setup = |name: &str, place: &[&str], options: &[&str], controls: &Controls| {
            let mut variables = controls.variables();
            variables.push(("RUST_LOG".into(), "warn".into()));
            let log = Some(directory.join(format!("{name}.log")));
            Setup { variables, log, ..Setup::new(place, options) }
        };
        let retention = RETENTION_HOURS.to_string();
        let mut options = if expires { vec!["--feed-retention", retention.as_str()] } else { Vec::new() };
        let (mut services, mut table, mut proxies) = (Vec::new(), None, Vec::new());
        match kind {
            Kind::Embedded => {
                let data = path("service");
                let place = ["--data", data.as_str()];
                services.push(Process::start_as(setup("service", &place, &options, &of_services)).await);
            }
            Kind::DynamoDb => {
                let proxied = Proxied::with_stream().await;
                let place = ["--endpoint-url", proxied.proxy.url(), "--table", &proxied.name];
                for n in 0..SERVICES {
                    let name = format!("service{n}");
                    services.push(Process::start_as(setup(&name, &place, &options, &of_services)).await);
                    if expires && n == 0 {
                        // One of two consumers could read the clock before a step and the other after it, and append in the opposite order.
                        options.push("--no-consumer");
                    }
                }
                let (behind, proxy) = proxied.apart();
                table = Some(behind);
                proxies.push(proxy);
            }
        }
        let (mut links, mut replicas) = (Vec::new(), Vec::new());
        for n in 0..REPLICAS {
            let link = Link::to(&services[n % services.len()].url()).await;
            let name = format!("replica{n}");
            let (data, upstream) = (path(&name), link.url().to_owned());
            let setup = setup(&name, &["--data", &data], &["--upstream", &upstream], &of_replicas);
            replicas.push(Process::start_as(setup).await);
            links.push(link);
        }
        let proxy = Proxy::start(&services[0].url()).await;
        let front = proxy.remote();
        proxies.push(proxy);
        (Self { services, replicas, links, front, table, of_services, of_replicas }, proxies)
    }

    pub(super) fn service_urls(&self) -> Vec<String> {
        self.services.iter().map(Process::url).collect()
    }

    pub(super) fn replica_urls(&self) -> Vec<String> {
        self.replicas.iter().map(Process::url).collect()
    }

    /// Where clients write: at a service through the proxy, at each service, and at each replica, in this order.
    pub(super) fn urls(&self) -> Vec<String> {
        let front = std::iter::once(self.front.url().to_owned());
        front.chain(self.service_urls()).chain(self.replica_urls()).collect()
    }

    /// The proxies: before the service, and before the engine.
    pub(super) fn proxies(&self) -> impl Iterator<Item = &Remote> {
        std::iter::once(&self.front).chain(self.table.iter().map(|table| &table.proxy))
    }

    /// Makes every sync of every process take this much longer from now on.
    pub(super) fn slow_disks(&self, by: Duration) {
        self.of_services.slow_syncs(by);
        self.of_replicas.slow_syncs(by);
    }

    /// The memory of the first service, in MiB.
    pub(super) fn memory(&self) -> f64 {
        self.services[0].memory()
    }
}
