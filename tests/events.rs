//! The payloads under `events/`: each reaches its function the way a gateway's event does.

use std::{fs, path::PathBuf, sync::Arc};

use http::StatusCode;
use http_body_util::BodyExt;
use lambda_http::tower::{Service as _, ServiceExt};
use nameservice_cli::routes;
use nameservice_http::{App, Auth};
use nameservice_lambda::behind_gateway;
use nameservice_tests::table::Table;

/// Functions without routes of their own.
const ANSWERS_404_OR_405: &str = "not_found";
/// These take stream records, messages and schedules, not requests: `stream::consumer`, `projector` and `archive` test them.
const NOT_OVER_HTTP: [&str; 5] =
    ["feed_archive", "search_sink", "stream_consumer", "topic_publisher", "view_projector"];

fn folder(of: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("..").join(of)
}

fn names(of: &str) -> Vec<String> {
    let mut names: Vec<_> =
        fs::read_dir(folder(of)).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn every_function_has_an_event_and_every_event_a_function() {
    assert_eq!(names("events"), names("functions"));
}

#[tokio::test]
async fn every_event_reaches_its_function_and_is_understood() {
    let table = Table::fresh().await;
    for function in names("events").into_iter().filter(|function| !NOT_OVER_HTTP.contains(&function.as_str())) {
        for case in names(&format!("events/{function}")) {
            let event = fs::read_to_string(folder("events").join(&function).join(&case)).unwrap();
            let request = lambda_http::request::from_str(&event).unwrap();
            let mut service = behind_gateway(
                routes::router(),
                App::new(Arc::new(table.store.clone()), Arc::new(table.feed.clone()), Auth::Gateway),
            );
            let response = service.ready().await.unwrap().call(request).await.unwrap();
            let status = response.status();
            let content_type = response.headers().get("content-type").map(|value| value.to_str().unwrap().to_owned());
            let mut body = response.into_body();
            let body = match content_type.as_deref() {
                // A stream does not end: its first block shows that it has started.
                Some("text/event-stream") => body.frame().await.unwrap().unwrap().into_data().unwrap(),
                _ => body.collect().await.unwrap().to_bytes(),
            };
            let body = String::from_utf8_lossy(&body);
            let is_problem = content_type.as_deref() == Some("application/problem+json");
            let routed = !body.contains("/problems/not-found") && status != StatusCode::METHOD_NOT_ALLOWED;
            // The table holds only what earlier events wrote, so an unknown record is a valid answer, too. It cannot be searched: 501.
            let understood = !is_problem || matches!(status.as_u16(), 404 | 409 | 410 | 422 | 501);
            match function.as_str() {
                ANSWERS_404_OR_405 => assert!(!routed, "{function}/{case}: {status} {body}"),
                _ => assert!(routed && understood, "{function}/{case}: {status} {body}"),
            }
        }
    }
}
