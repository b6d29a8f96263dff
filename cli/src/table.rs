//! A DynamoDB table: how it is opened, checked and described.

use std::{sync::Arc, time::Duration};

use nameservice_dynamo::{RetryPolicy, endpoint_config};
use nameservice_feed::Feed;
use nameservice_http::{App, Auth};
use nameservice_model::{Error as StoreError, NameService as _, ShownUrl};
use nameservice_store::{Store, TableReport, endpoint_client, sdk_client};

use crate::{consumer::Source, failure::Failure, output};

/// How long a table may take to answer before a notice is printed.
const NOTICE_AFTER: Duration = Duration::from_millis(900);

/// A table that can be served.
#[derive(Debug)]
pub struct Table {
    /// The nameservice over it.
    pub store: Store,
    /// Its change feed.
    pub feed: Feed,
    /// Where the records of its stream come from.
    pub source: Source,
    name: String,
    /// The URL of a DynamoDB outside AWS.
    endpoint: Option<String>,
}

impl Table {
    /// Connects to a table, which need not exist. Changes can be read for `retention`, if that is given.
    pub(crate) async fn open(
        name: String,
        region: Option<String>,
        endpoint: Option<String>,
        timeout: Duration,
        retention: Option<Duration>,
    ) -> Result<Self, Failure> {
        let config = match &endpoint {
            Some(url) => {
                let parsed = reqwest::Url::parse(url).ok().filter(|url| matches!(url.scheme(), "http" | "https"));
                if parsed.is_none() {
                    return Err(Failure::Usage(format!(
                        "`{}` is not a URL: it begins with http:// or https://",
                        ShownUrl(url)
                    )));
                }
                endpoint_config(url)
            }
            None => aws_config(region.as_deref()).await?,
        };
        let client = match &endpoint {
            Some(url) => endpoint_client(url),
            None => sdk_client(&config),
        };
        let streams = aws_sdk_dynamodbstreams::Client::new(&config);
        let source = Source { tables: client.clone(), streams, table: name.clone() };
        let mut feed = Feed::new(client.clone(), Feed::table_of(&name));
        if let Some(retention) = retention {
            feed = feed.with_retention(retention);
        }
        let policy = RetryPolicy { deadline: timeout, ..RetryPolicy::default() };
        let store = Store::new(client, name.as_str()).with_retry_policy(policy);
        Ok(Self { store, feed, source, name, endpoint })
    }

    /// The service over it, for these callers.
    pub(crate) fn app(&self, auth: Auth) -> App {
        App::new(Arc::new(self.store.clone()), Arc::new(self.feed.clone()), auth)
    }

    /// The nameservice and its change feed, as one backend.
    #[cfg(feature = "migration")]
    pub(crate) fn backend(&self) -> Arc<dyn nameservice_model::Backend> {
        Arc::new(nameservice::DynamoDb::new(self.store.clone(), self.feed.clone()))
    }

    /// Returns the URL of its DynamoDB; `None` if it is in AWS.
    pub fn endpoint(&self) -> Option<&str> {
        self.endpoint.as_deref()
    }

    /// Its name, and where it is.
    pub fn describe(&self) -> String {
        match &self.endpoint {
            Some(url) => format!("table {} at {}", self.name, ShownUrl(url)),
            None => format!("table {} in AWS", self.name),
        }
    }

    /// Creates the table and that of its feed if they are missing; reports what existing ones lack.
    pub async fn ensure(&self) -> Result<TableReport, Failure> {
        let ensured = self.noticed(self.store.ensure_table()).await;
        let mut report = ensured.map_err(|source| self.unusable(source, ""))?;
        let feed = self.feed.ensure_table().await.map_err(|source| self.feed_unusable(source))?;
        report.lacks.extend(feed.lacks.iter().map(of_feed));
        Ok(report)
    }

    /// Reports what the tables lack, and creates none: in AWS a table costs money, and is only created explicitly.
    pub async fn check(&self) -> Result<TableReport, Failure> {
        self.ping().await?;
        let mut report = self.store.check_table().await.map_err(|source| self.unusable(source, ""))?;
        match self.feed.check_table().await {
            Ok(feed) => report.lacks.extend(feed.lacks.iter().map(of_feed)),
            Err(error @ StoreError::Unavailable { .. }) => return Err(self.feed_unusable(error)),
            Err(error) => {
                tracing::debug!(%error, "the feed's table was not found");
                report.lacks.push(format!("there is no usable table `{}`: no change feed", self.feed.table()));
            }
        }
        Ok(report)
    }

    pub(crate) async fn ping(&self) -> Result<(), Failure> {
        let hint = |error: &StoreError| match error {
            // Without an answer, nothing is known about the table.
            StoreError::Unavailable { .. } => "",
            _ => "; if it does not exist, `nameservice init` with the same options creates it",
        };
        self.noticed(self.store.ping()).await.map_err(|source| {
            let hint = hint(&source);
            self.unusable(source, hint)
        })
    }

    /// Prints a notice if the table does not answer soon: attempts are repeated for several seconds.
    async fn noticed<T>(&self, request: impl Future<Output = T>) -> T {
        notice_after(NOTICE_AFTER, request, || {
            output::note(&format!("{} does not answer yet; still trying", self.describe()));
        })
        .await
    }

    fn unusable(&self, source: StoreError, hint: &'static str) -> Failure {
        Failure::Table { table: self.name.clone(), hint, source }
    }

    fn feed_unusable(&self, source: StoreError) -> Failure {
        Failure::Table { table: self.feed.table().to_owned(), hint: "", source }
    }
}

/// Describes what the feed's table lacks.
fn of_feed(lack: &impl std::fmt::Display) -> String {
    format!("in the feed's table: {lack}")
}

/// Awaits a future, and calls `notice` once if it takes longer than this.
async fn notice_after<T>(after: Duration, future: impl Future<Output = T>, notice: impl FnOnce()) -> T {
    let mut future = std::pin::pin!(future);
    match tokio::time::timeout(after, &mut future).await {
        Ok(done) => done,
        Err(_) => {
            notice();
            future.await
        }
    }
}

/// Returns the configuration of AWS clients, found as the AWS CLI finds it.
pub(crate) async fn aws_config(region: Option<&str>) -> Result<aws_config::SdkConfig, Failure> {
    nameservice::aws_config(region).await.map_err(|error| Failure::Usage(error.to_string()))
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn only_a_table_that_is_slow_to_answer_is_noticed() {
        for (takes, noticed) in [(100, false), (5_000, true)] {
            let was_noticed = Cell::new(false);
            let request = tokio::time::sleep(Duration::from_millis(takes));
            notice_after(NOTICE_AFTER, request, || was_noticed.set(true)).await;
            assert_eq!(was_noticed.get(), noticed, "{takes} ms");
        }
    }
}
