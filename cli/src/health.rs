//! What `GET /v1/health` adds for a service that answers and needs attention.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use axum::{
    body::Body,
    http::header,
    response::{IntoResponse as _, Response},
};
use http_body_util::BodyExt as _;
use nameservice_http::{Problem, Verifier};
use serde_json::Value;

use crate::upstream::Upstream;

/// The path of the health of a service.
pub(crate) const PATH: &str = "/v1/health";
/// Health requires no token, and so names no issuer.
const NO_KEYS: &str = "the keys that tokens are checked with could not be fetched yet, and requests with tokens are answered 503: the log of \
                       the service names the cause";
/// Health requires no token, and so names no record.
const DAMAGED: &str = "its data is damaged: the log of the service names what is, and what to do";

/// What has examined the data.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Examination {
    Scrub,
    Backup,
}

/// Whether the data of a service was damaged when it was last examined.
#[derive(Clone, Debug, Default)]
pub(crate) struct Damage(Arc<[AtomicBool; 2]>);

impl Damage {
    /// Notes what an examination has found.
    pub(crate) fn set(&self, by: Examination, is_damaged: bool) {
        self.of(by).store(is_damaged, Ordering::Relaxed);
    }

    fn of(&self, by: Examination) -> &AtomicBool {
        let [scrub, backup] = &*self.0;
        match by {
            Examination::Scrub => scrub,
            Examination::Backup => backup,
        }
    }

    /// Returns whether an examination has found it damaged.
    pub(crate) fn was_found(&self, by: Examination) -> bool {
        self.of(by).load(Ordering::Relaxed)
    }

    /// Returns why the service needs attention, if it was damaged.
    pub(crate) fn reason(&self) -> Option<&'static str> {
        (self.was_found(Examination::Scrub) || self.was_found(Examination::Backup)).then_some(DAMAGED)
    }
}

/// Why a service that answers may need attention.
#[derive(Clone, Debug, Default)]
pub(crate) struct Attention {
    /// What it is a replica of.
    pub(crate) upstream: Option<Upstream>,
    pub(crate) damage: Damage,
    /// What checks the tokens of its callers.
    pub(crate) verifier: Option<Verifier>,
}

impl Attention {
    /// Adds the state of the service to what the route has answered, shallow or deep.
    pub(crate) async fn add_to(&self, answered: Response) -> Response {
        let replica = self.upstream.as_ref().map(Upstream::health);
        let lacks_keys = self.verifier.as_ref().is_some_and(Verifier::lacks_keys);
        let own = [lacks_keys.then_some(NO_KEYS), self.damage.reason()];
        let mut reasons: Vec<String> = own.into_iter().flatten().map(str::to_owned).collect();
        if !answered.status().is_success() || (replica.is_none() && reasons.is_empty()) {
            // A problem says everything.
            return answered;
        }
        let (mut head, body) = answered.into_parts();
        let body = match body.collect().await {
            Ok(body) => body.to_bytes(),
            Err(error) => return Problem::internal(error).into_response(),
        };
        let Ok(Value::Object(mut health)) = serde_json::from_slice(&body) else {
            return Response::from_parts(head, Body::from(body));
        };
        if let Some((replica, reason)) = replica {
            health.insert("replica".to_owned(), replica);
            reasons.extend(reason);
        }
        if !reasons.is_empty() {
            health.insert("status".to_owned(), "degraded".into());
            health.insert("reason".to_owned(), reasons.join("; ").into());
        }
        head.headers.remove(header::CONTENT_LENGTH);
        Response::from_parts(head, Body::from(Value::Object(health).to_string()))
    }
}
