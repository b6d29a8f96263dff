//! What a server counts and measures of its requests.

use std::{
    borrow::Cow,
    collections::HashMap,
    sync::{Arc, OnceLock, PoisonError, RwLock},
    time::Duration,
};

use axum::http::Method;
use metrics::{Counter, Gauge, Histogram, counter, gauge, histogram};

/// The label of a request that no route has.
const NONE: &str = "none";
/// OpenTelemetry's word for a method that HTTP does not define. It is the caller's text, of which there is no end.
const OTHER: &str = "_OTHER";

/// Returns the name of an operation, such as `PUT /v1/heads/{address}`, or `none` where no route was found.
///
/// `route` is the path as the router has it: a parameter that takes the rest of the path is written as any other.
pub(crate) fn operation(method: &Method, route: Option<&str>) -> String {
    let Some(route) = route else { return NONE.to_owned() };
    format!("{} {}", known(method), route.replace("{*", "{"))
}

fn known(method: &Method) -> &str {
    const DEFINED: [Method; 9] = [
        Method::GET,
        Method::PUT,
        Method::POST,
        Method::DELETE,
        Method::HEAD,
        Method::OPTIONS,
        Method::PATCH,
        Method::CONNECT,
        Method::TRACE,
    ];
    if DEFINED.contains(method) { method.as_str() } else { OTHER }
}

/// The meters of one service. Each is looked up by its labels at its first use and kept, since a look-up costs as much as
/// a read out of memory.
#[derive(Clone, Default)]
pub(crate) struct Meters(Arc<Kept>);

/// A route has few methods.
type ByMethod = Vec<(String, Arc<OperationMeters>)>;

#[derive(Default)]
struct Kept {
    in_flight: OnceLock<Gauge>,
    /// By route.
    operations: RwLock<HashMap<String, ByMethod>>,
}

impl Meters {
    /// Counts a request as being answered until the result is dropped: also where its caller goes away.
    pub(crate) fn begin(&self) -> InFlight {
        let gauge = self.0.in_flight.get_or_init(|| gauge!("nameservice_requests_in_flight")).clone();
        gauge.increment(1);
        InFlight(gauge)
    }

    /// Returns the meters of the requests of one method and route.
    pub(crate) fn operation(&self, method: &Method, route: Option<&str>) -> Arc<OperationMeters> {
        let (path, method_name) = (route.unwrap_or(NONE), known(method));
        let kept = self.0.operations.read().unwrap_or_else(PoisonError::into_inner);
        let found = kept.get(path).and_then(|methods| methods.iter().find(|(name, _)| name == method_name));
        if let Some((_, meters)) = found {
            return meters.clone();
        }
        drop(kept);
        let meters = Arc::new(OperationMeters::new(operation(method, route)));
        let mut kept = self.0.operations.write().unwrap_or_else(PoisonError::into_inner);
        kept.entry(path.to_owned()).or_default().push((method_name.to_owned(), meters.clone()));
        meters
    }
}

/// See [`Meters::begin`].
pub(crate) struct InFlight(Gauge);

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.decrement(1);
    }
}

/// What is counted and measured of an operation.
pub(crate) struct OperationMeters {
    operation: String,
    duration: Histogram,
    outcomes: RwLock<Vec<(String, OutcomeCounters)>>,
}

/// What counts one outcome of an operation.
struct OutcomeCounters {
    requests: Counter,
    /// Where it is one of a lease.
    lease: Option<Counter>,
}

impl OutcomeCounters {
    fn increment(&self) {
        self.requests.increment(1);
        if let Some(lease) = &self.lease {
            lease.increment(1);
        }
    }
}

/// Returns what counts the outcome of a request about a lease. A lease is lost to a push, too.
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

impl OperationMeters {
    fn new(operation: String) -> Self {
        let duration = histogram!("nameservice_request_duration_seconds", "operation" => operation.clone());
        Self { operation, duration, outcomes: RwLock::default() }
    }

    /// Counts one request that was answered.
    pub(crate) fn answered(&self, outcome: Cow<'static, str>, duration: Duration) {
        self.duration.record(duration);
        let kept = self.outcomes.read().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, counters)) = kept.iter().find(|(name, _)| *name == outcome) {
            return counters.increment();
        }
        drop(kept);
        let (name, lease) = (outcome.to_string(), lease_counter(&self.operation, &outcome));
        let requests =
            counter!("nameservice_requests_total", "operation" => self.operation.clone(), "outcome" => outcome);
        let counters = OutcomeCounters { requests, lease };
        counters.increment();
        self.outcomes.write().unwrap_or_else(PoisonError::into_inner).push((name, counters));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_operation_is_named_by_what_the_service_knows_and_by_nothing_of_the_callers() {
        assert_eq!(operation(&Method::PUT, Some("/v1/heads/{*address}")), "PUT /v1/heads/{address}");
        let odd = Method::from_bytes(b"SPAM").unwrap();
        assert_eq!(operation(&odd, Some("/v1/records")), "_OTHER /v1/records");
        assert_eq!(operation(&odd, None), "none");
    }

    #[test]
    fn the_meters_of_an_operation_are_made_once() {
        let meters = Meters::default();
        let (get, odd) = (Method::GET, Method::from_bytes(b"SPAM").unwrap());
        let first = meters.operation(&get, Some("/v1/records"));
        assert!(Arc::ptr_eq(&first, &meters.operation(&get, Some("/v1/records"))));
        assert!(!Arc::ptr_eq(&first, &meters.operation(&Method::PUT, Some("/v1/records"))));
        let other = meters.operation(&odd, Some("/v1/records"));
        assert!(Arc::ptr_eq(&other, &meters.operation(&Method::from_bytes(b"HAM").unwrap(), Some("/v1/records"))));
    }
}
