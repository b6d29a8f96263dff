//! What a server counts and measures of its requests.
//!
//! The cache line of a counter that several threads write moves from processor to processor. So each thread keeps its own
//! counts, and passes them to the recorder of the process when that is read, or when there are many.

use std::{
    cell::Cell,
    collections::BTreeMap,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicI64, AtomicUsize, Ordering},
    },
    time::Duration,
};

use axum::http::Method;
use metrics::{Counter, Histogram, counter, gauge, histogram};

/// The label of a request that matches no route.
const NONE: &str = "none";
/// OpenTelemetry's name for a method that HTTP does not define: a caller can invent any number of them.
const OTHER: &str = "_OTHER";

/// Returns the name of an operation, such as `PUT /v1/heads/{address}`, or `none` if no route was found.
///
/// `route` is the path as the router has it: a parameter that takes the rest of the path is written like any other.
pub(crate) fn operation(method: &Method, route: Option<&str>) -> String {
    let Some(route) = route else { return NONE.to_owned() };
    format!("{} {}", known(method), route.replace("{*", "{"))
}

fn known(method: &Method) -> &'static str {
    match *method {
        Method::GET => "GET",
        Method::PUT => "PUT",
        Method::POST => "POST",
        Method::DELETE => "DELETE",
        Method::HEAD => "HEAD",
        Method::OPTIONS => "OPTIONS",
        Method::PATCH => "PATCH",
        Method::CONNECT => "CONNECT",
        Method::TRACE => "TRACE",
        _ => OTHER,
    }
}

/// How many threads have a share of their own. Further threads use the same shares.
const SHARES: usize = 64;
/// How many durations of an operation a share keeps.
const KEPT: usize = 256;

static ALL: [Share; SHARES] = [const { Share::new() }; SHARES];

/// The counts of one thread. Aligned to what processors exchange, so that no two shares are in the same cache line.
#[repr(align(128))]
struct Share {
    /// Requests that began here, minus those that ended here. If a request moves to another thread in between, the beginning
    /// counts in one share and the end in the other.
    in_flight: AtomicI64,
    operations: Mutex<Operations>,
}

/// By route, then by method; a route has few methods.
type Operations = BTreeMap<String, Vec<(&'static str, OperationMeters)>>;

impl Share {
    const fn new() -> Self {
        Self { in_flight: AtomicI64::new(0), operations: Mutex::new(BTreeMap::new()) }
    }

    /// Returns the share of this thread.
    fn own() -> &'static Self {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        thread_local!(static INDEX: Cell<Option<usize>> = const { Cell::new(None) });
        let index = INDEX.get().unwrap_or_else(|| {
            let index = NEXT.fetch_add(1, Ordering::Relaxed) % SHARES;
            INDEX.set(Some(index));
            index
        });
        ALL.get(index).unwrap_or(&ALL[0])
    }

    /// Counts one request that was answered.
    fn answered(&self, method: &Method, route: Option<&str>, outcome: &str, duration: Duration) {
        let (path, method_name) = (route.unwrap_or(NONE), known(method));
        let mut operations = self.operations();
        if let Some(methods) = operations.get_mut(path)
            && let Some((_, meters)) = methods.iter_mut().find(|(name, _)| *name == method_name)
        {
            return meters.answered(outcome, duration);
        }
        let mut meters = OperationMeters::new(operation(method, route));
        meters.answered(outcome, duration);
        operations.entry(path.to_owned()).or_default().push((method_name, meters));
    }

    fn report(&self) {
        for (_, meters) in self.operations().values_mut().flatten() {
            meters.report();
        }
    }

    fn operations(&self) -> MutexGuard<'_, Operations> {
        self.operations.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Counts one request that was answered.
pub(crate) fn answered(method: &Method, route: Option<&str>, outcome: &str, duration: Duration) {
    Share::own().answered(method, route, outcome, duration);
}

/// Passes what was counted until now to the recorder of this process.
pub(crate) fn sample() {
    ALL.iter().for_each(Share::report);
    let in_flight: i64 = ALL.iter().map(|share| share.in_flight.load(Ordering::Relaxed)).sum();
    gauge!("nameservice_requests_in_flight").set(in_flight as f64);
}

/// Counts a request as in flight until it is dropped, even if its caller disconnects.
pub(crate) struct InFlight(());

impl InFlight {
    pub(crate) fn begin() -> Self {
        Share::own().in_flight.fetch_add(1, Ordering::Relaxed);
        Self(())
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        Share::own().in_flight.fetch_sub(1, Ordering::Relaxed);
    }
}

/// What is counted and measured of an operation.
struct OperationMeters {
    operation: String,
    duration: Histogram,
    durations: Vec<Duration>,
    /// By name. There are few, and the most frequent are usually first.
    outcomes: Vec<(String, Outcomes)>,
}

/// How many times an outcome was seen, and its counters.
struct Outcomes {
    seen: u64,
    requests: Counter,
    /// The counter of the lease outcome, if it is one.
    lease: Option<Counter>,
}

impl OperationMeters {
    fn new(operation: String) -> Self {
        let duration = histogram!("nameservice_request_duration_seconds", "operation" => operation.clone());
        Self { operation, duration, durations: Vec::new(), outcomes: Vec::new() }
    }

    fn answered(&mut self, outcome: &str, duration: Duration) {
        self.durations.push(duration);
        match self.outcomes.iter_mut().find(|(name, _)| name == outcome) {
            Some((_, outcomes)) => outcomes.seen += 1,
            None => {
                let labels = [("operation", self.operation.clone()), ("outcome", outcome.to_owned())];
                let requests = counter!("nameservice_requests_total", &labels);
                let lease = lease_counter(&self.operation, outcome);
                self.outcomes.push((outcome.to_owned(), Outcomes { seen: 1, requests, lease }));
            }
        }
        if self.durations.len() >= KEPT {
            self.report();
        }
    }

    fn report(&mut self) {
        self.durations.drain(..).for_each(|duration| self.duration.record(duration));
        for (_, Outcomes { seen, requests, lease }) in &mut self.outcomes {
            let seen = std::mem::take(seen);
            if seen == 0 {
                continue;
            }
            requests.increment(seen);
            if let Some(lease) = lease {
                lease.increment(seen);
            }
        }
    }
}

/// Returns the counter for the outcome of a request about a lease. A push can also report a lost lease.
pub(crate) fn lease_counter(operation: &str, outcome: &str) -> Option<Counter> {
    const LEASES: &str = "/v1/leases/{address}";
    let outcome = match (operation.split_once(' '), outcome) {
        (_, "lease_lost") => "lost",
        (Some(("PUT", LEASES)), "ok") => "held",
        (Some(("PUT", LEASES)), "lease_held") => "busy",
        (Some(("DELETE", LEASES)), "ok") => "released",
        _ => return None,
    };
    Some(counter!("nameservice_leases_total", "outcome" => outcome))
}

#[cfg(test)]
mod tests {
    use metrics_util::debugging::{DebugValue, DebuggingRecorder};

    use super::*;

    #[test]
    fn an_operation_is_named_by_what_the_service_knows_and_by_nothing_of_the_callers() {
        assert_eq!(operation(&Method::PUT, Some("/v1/heads/{*address}")), "PUT /v1/heads/{address}");
        let odd = Method::from_bytes(b"SPAM").unwrap();
        assert_eq!(operation(&odd, Some("/v1/records")), "_OTHER /v1/records");
        assert_eq!(operation(&odd, None), "none");
    }

    #[test]
    fn every_request_is_reported_once_in_bounded_parts() {
        let (recorder, share) = (DebuggingRecorder::new(), Share::new());
        let reported = || {
            let mut counts = BTreeMap::new();
            for (key, _, _, value) in recorder.snapshotter().snapshot().into_vec() {
                let labels: Vec<_> = key.key().labels().map(|label| label.value().to_owned()).collect();
                let count = match value {
                    DebugValue::Counter(count) => count,
                    DebugValue::Histogram(durations) => durations.len() as u64,
                    DebugValue::Gauge(_) => continue,
                };
                counts.insert((key.key().name().to_owned(), labels.join(" ")), count);
            }
            counts
        };
        let (get, odd) = (Method::GET, Method::from_bytes(b"SPAM").unwrap());
        metrics::with_local_recorder(&recorder, || {
            for n in 0..KEPT + 10 {
                let outcome = if n % 2 == 0 { "ok" } else { "unknown_record" };
                share.answered(&get, Some("/v1/records/{*address}"), outcome, Duration::from_millis(1));
            }
            share.answered(&Method::PUT, Some("/v1/leases/{*address}"), "ok", Duration::ZERO);
            share.answered(&odd, Some("/v1/records"), "error", Duration::ZERO);
            share.answered(&Method::from_bytes(b"HAM").unwrap(), Some("/v1/records"), "error", Duration::ZERO);
        });
        let durations = ("nameservice_request_duration_seconds".to_owned(), "GET /v1/records/{address}".to_owned());
        assert_eq!(reported().get(&durations), Some(&(KEPT as u64)), "what would grow is reported immediately");
        share.report();
        let rest = reported();
        let requests = |labels: &str| rest.get(&("nameservice_requests_total".to_owned(), labels.to_owned())).copied();
        assert_eq!(rest.get(&durations), Some(&10));
        let ok = requests("GET /v1/records/{address} ok");
        let unknown = requests("GET /v1/records/{address} unknown_record");
        assert_eq!((ok, unknown), (Some(5), Some(5)), "of the rest");
        assert_eq!(requests("_OTHER /v1/records error"), Some(2));
        assert_eq!(requests("PUT /v1/leases/{address} ok"), Some(1));
        assert_eq!(rest.get(&("nameservice_leases_total".to_owned(), "held".to_owned())), Some(&1));
        share.report();
        assert!(reported().values().all(|count| *count == 0), "nothing is reported twice");
    }

    #[test]
    fn a_request_is_in_flight_until_it_ends_on_whatever_thread() {
        // Other tests of this process have requests in between, but none that lasts.
        let begun: Vec<_> = (0..1_000).map(|_| InFlight::begin()).collect();
        let in_flight = || ALL.iter().map(|share| share.in_flight.load(Ordering::Relaxed)).sum::<i64>();
        assert!(in_flight() >= 1_000);
        std::thread::spawn(move || drop(begun)).join().unwrap();
        assert!(in_flight() < 1_000);
    }
}
