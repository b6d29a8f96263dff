//! The environment variables that configure a function. The Terraform module documents each.

use std::{str::FromStr, time::Duration};

use nameservice_dynamo::variable;
use nameservice_feed::{DEFAULT_RETENTION, Feed};
use nameservice_model::BoxError;
use nameservice_store::{Store, lambda_client};
use tracing::Level;

/// Names the table.
const TABLE: &str = "NAMESERVICE_TABLE";
/// Names the table of its change feed.
const FEED_TABLE: &str = "NAMESERVICE_FEED_TABLE";
/// How long changes can be read, in seconds.
const FEED_RETENTION: &str = "NAMESERVICE_FEED_RETENTION_SECONDS";
/// Whether the table is shared with Fluree's servers.
#[cfg(feature = "http")]
const FLUREE: &str = "NAMESERVICE_FLUREE";
/// Set by Lambda from the function's logging configuration.
const LOG_LEVEL: &str = "AWS_LAMBDA_LOG_LEVEL";

/// A variable of the environment that cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("the environment variable {name} {reason}")]
pub struct InvalidVariable {
    name: &'static str,
    reason: String,
    #[source]
    source: Option<BoxError>,
}

impl InvalidVariable {
    /// The error for a variable that is not set.
    #[cfg(feature = "http")]
    pub(crate) fn missing(name: &'static str, why: &str) -> Self {
        Self { name, reason: format!("is not set, and is {why}"), source: None }
    }
}

/// Connects to the store and its feed, over one client that is configured by the environment alone.
pub(crate) fn connections() -> Result<(Store, Feed), InvalidVariable> {
    let retention = retention(variable(FEED_RETENTION))?;
    let client = lambda_client();
    let table = variable(TABLE).unwrap_or_else(|| Store::DEFAULT_TABLE.to_owned());
    let feed = Feed::new(client.clone(), variable(FEED_TABLE).unwrap_or_else(|| Feed::table_of(&table)));
    Ok((Store::new(client, table), feed.with_retention(retention)))
}

/// Returns whether the table is shared with Fluree's servers: then ids that their engine cannot read are rejected.
#[cfg(feature = "http")]
pub(crate) fn is_beside_fluree() -> Result<bool, InvalidVariable> {
    let Some(value) = variable(FLUREE) else { return Ok(false) };
    value.parse().map_err(|_| InvalidVariable {
        name: FLUREE,
        reason: format!("is `{value}`, which is neither true nor false"),
        source: None,
    })
}

/// Returns the level at which to log. Lambda sets and checks the variable. A level that tracing does not have (`FATAL`)
/// becomes the next one below.
pub(crate) fn log_level() -> Level {
    match variable(LOG_LEVEL).as_deref() {
        Some("FATAL") => Level::ERROR,
        level => level.and_then(|level| level.parse().ok()).unwrap_or(Level::INFO),
    }
}

fn retention(value: Option<String>) -> Result<Duration, InvalidVariable> {
    let Some(value) = value else { return Ok(DEFAULT_RETENTION) };
    let invalid = |source: Option<BoxError>| InvalidVariable {
        name: FEED_RETENTION,
        reason: format!("is `{value}`, which is not a whole number of seconds above 0"),
        source,
    };
    match u64::from_str(&value) {
        Ok(0) => Err(invalid(None)),
        Ok(seconds) => Ok(Duration::from_secs(seconds)),
        Err(error) => Err(invalid(Some(error.into()))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_retention_that_is_no_number_of_seconds_is_an_error_that_names_the_variable() {
        assert_eq!(retention(None).unwrap(), DEFAULT_RETENTION);
        assert_eq!(retention(Some("3600".into())).unwrap(), Duration::from_secs(3600));
        for value in ["7d", "0", "-1", "1.5", " 5", "99999999999999999999"] {
            let error = retention(Some(value.into())).unwrap_err().to_string();
            assert!(error.contains(FEED_RETENTION) && error.contains(value), "{error}");
        }
    }
}
