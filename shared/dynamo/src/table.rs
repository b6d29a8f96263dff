//! Creates a table from its description, and reports what an existing one lacks.

use std::{collections::BTreeMap, fmt, time::Duration};

use aws_sdk_dynamodb::{
    error::{BuildError, ProvideErrorMetadata, SdkError},
    types::{
        AttributeDefinition, BillingMode, GlobalSecondaryIndex, GlobalSecondaryIndexDescription, KeySchemaElement,
        KeyType as KeyRole, PointInTimeRecoverySpecification, PointInTimeRecoveryStatus, Projection as SdkProjection,
        ProjectionType, ScalarAttributeType, StreamSpecification, StreamViewType, TableDescription, TableStatus,
        TimeToLiveSpecification, TimeToLiveStatus,
    },
};
use tokio::time::{Instant, sleep};

use crate::{Error, Result, Sender};

const ENSURE: &str = "create or check the table";
const POLL: Duration = Duration::from_millis(200);
/// How long a table may take to become usable. DynamoDB takes seconds.
const ACTIVE_WITHIN: Duration = Duration::from_secs(120);

/// The description of a table, from which it is created, checked and used. The table's own keys are strings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Description {
    /// The attribute that groups rows.
    pub partition_key: &'static str,
    /// The attribute that orders and distinguishes the rows of a partition. Without one, each partition is a single
    /// row.
    pub sort_key: Option<&'static str>,
    /// The secondary indexes.
    pub indexes: &'static [Index],
    /// The attribute that holds the time at which a row expires, in epoch seconds.
    pub ttl: Option<&'static str>,
    /// Whether the table has a stream, of new and old images.
    pub stream: bool,
}

/// A global secondary index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Index {
    /// Its name.
    pub name: &'static str,
    /// The attribute by which rows are found.
    pub partition_key: Key,
    /// The attribute by which the rows found are ordered.
    pub sort_key: Option<Key>,
    /// What it carries besides the keys.
    pub projection: Projection,
}

/// A key attribute of an index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Key {
    /// The attribute.
    pub name: &'static str,
    /// Its type.
    pub key_type: KeyType,
}

impl Key {
    /// A string.
    pub const fn string(name: &'static str) -> Self {
        Self { name, key_type: KeyType::S }
    }

    /// A number.
    pub const fn number(name: &'static str) -> Self {
        Self { name, key_type: KeyType::N }
    }

    /// Bytes.
    pub const fn bytes(name: &'static str) -> Self {
        Self { name, key_type: KeyType::B }
    }
}

/// The types that a key can have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyType {
    /// A string, ordered by its UTF-8 bytes.
    S,
    /// A number.
    N,
    /// Bytes, ordered as unsigned.
    B,
}

impl KeyType {
    fn scalar(self) -> ScalarAttributeType {
        match self {
            Self::S => ScalarAttributeType::S,
            Self::N => ScalarAttributeType::N,
            Self::B => ScalarAttributeType::B,
        }
    }
}

/// What an index carries of a row, besides the keys of the index and the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Projection {
    /// Everything: rows need not be read again, but are stored twice.
    All,
    /// Nothing.
    KeysOnly,
    /// These attributes.
    Include(&'static [&'static str]),
}

/// What was found by [`Sender::ensure_table`] or [`Sender::check_table`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// Whether this call created the table.
    pub created: bool,
    /// What the table lacks of its description.
    pub lacks: Vec<Lack>,
}

/// One thing that a table lacks of its description. Displays as a sentence for an operator.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Lack {
    /// Its keys are different.
    Keys {
        /// The keys that it should have.
        expected: String,
    },
    /// There is no such index.
    Index {
        /// The index.
        index: &'static str,
    },
    /// The keys of an index are different.
    IndexKeys {
        /// The index.
        index: &'static str,
        /// The keys that it should have.
        expected: String,
    },
    /// An index does not carry what it should.
    Projection {
        /// The index.
        index: &'static str,
        /// What is missing.
        missing: String,
    },
    /// There is no stream with new and old images.
    Stream,
    /// Rows do not expire.
    Ttl {
        /// The attribute that should hold the time at which a row expires.
        attribute: &'static str,
    },
    /// Point-in-time recovery is off.
    Recovery,
}

impl fmt::Display for Lack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Keys { expected } => write!(f, "its keys are not {expected}: it cannot serve"),
            Self::Index { index } => write!(f, "there is no index `{index}`"),
            Self::IndexKeys { index, expected } => write!(f, "the keys of index `{index}` are not {expected}"),
            Self::Projection { index, missing } => write!(f, "index `{index}` does not carry {missing}"),
            Self::Stream => write!(f, "there is no stream with new and old images"),
            Self::Ttl { attribute } => write!(f, "TTL on `{attribute}` is off"),
            Self::Recovery => write!(f, "point-in-time recovery is off"),
        }
    }
}

impl Description {
    /// Returns the attributes of the table's own key.
    pub fn keys(&self) -> impl Iterator<Item = &'static str> + Clone {
        std::iter::once(self.partition_key).chain(self.sort_key)
    }

    /// Returns the index with this name.
    pub fn index(&self, name: &str) -> Option<&'static Index> {
        self.indexes.iter().find(|index| index.name == name)
    }

    fn own_keys(&self) -> (Key, Option<Key>) {
        (Key::string(self.partition_key), self.sort_key.map(Key::string))
    }

    /// Returns every attribute that is part of a key.
    fn key_types(&self) -> BTreeMap<&'static str, KeyType> {
        let (partition, sort) = self.own_keys();
        let of_indexes =
            self.indexes.iter().flat_map(|index| std::iter::once(index.partition_key).chain(index.sort_key));
        std::iter::once(partition).chain(sort).chain(of_indexes).map(|key| (key.name, key.key_type)).collect()
    }

    fn lacks_of(&self, table: &TableDescription) -> Vec<Lack> {
        let mut lacks = Vec::new();
        let (partition, sort) = self.own_keys();
        if !same_keys(table, table.key_schema(), partition, sort) {
            lacks.push(Lack::Keys { expected: named(partition, sort) });
        }
        for index in self.indexes {
            let found = table.global_secondary_indexes().iter().find(|found| found.index_name() == Some(index.name));
            let (name, partition, sort) = (index.name, index.partition_key, index.sort_key);
            match found {
                None => lacks.push(Lack::Index { index: name }),
                Some(found) if !same_keys(table, found.key_schema(), partition, sort) => {
                    lacks.push(Lack::IndexKeys { index: name, expected: named(partition, sort) });
                }
                Some(found) => lacks.extend(self.lacks_of_projection(index, found)),
            }
        }
        let stream = table.stream_specification().filter(|stream| stream.stream_enabled);
        let images = stream.and_then(|stream| stream.stream_view_type());
        if self.stream && images != Some(&StreamViewType::NewAndOldImages) {
            lacks.push(Lack::Stream);
        }
        lacks
    }

    fn lacks_of_projection(&self, index: &Index, found: &GlobalSecondaryIndexDescription) -> Option<Lack> {
        let projection = found.projection();
        if projection.and_then(|projection| projection.projection_type()) == Some(&ProjectionType::All) {
            return None;
        }
        let wanted = match index.projection {
            Projection::All => {
                return Some(Lack::Projection { index: index.name, missing: "all attributes".to_owned() });
            }
            Projection::KeysOnly => return None,
            Projection::Include(attributes) => attributes,
        };
        let carried = projection.map(|projection| projection.non_key_attributes()).unwrap_or_default();
        let keys: Vec<&str> =
            self.keys().chain([index.partition_key.name]).chain(index.sort_key.map(|key| key.name)).collect();
        let missing: Vec<&str> = wanted
            .iter()
            .copied()
            .filter(|attribute| !keys.contains(attribute) && !carried.iter().any(|carried| carried == attribute))
            .collect();
        (!missing.is_empty()).then(|| Lack::Projection { index: index.name, missing: missing.join(", ") })
    }
}

fn named(partition: Key, sort: Option<Key>) -> String {
    let described = |key: Key| match key.key_type {
        KeyType::S => format!("`{}`", key.name),
        KeyType::N => format!("`{}` (a number)", key.name),
        KeyType::B => format!("`{}` (bytes)", key.name),
    };
    match sort {
        Some(sort) => format!("{} and {}", described(partition), described(sort)),
        None => format!("{} alone", described(partition)),
    }
}

fn same_keys(table: &TableDescription, found: &[KeySchemaElement], partition: Key, sort: Option<Key>) -> bool {
    let is = |role: KeyRole, expected: Option<Key>| {
        let key = found.iter().find(|key| *key.key_type() == role).map(KeySchemaElement::attribute_name);
        let key_type = table
            .attribute_definitions()
            .iter()
            .find(|definition| Some(definition.attribute_name()) == key)
            .map(AttributeDefinition::attribute_type);
        key == expected.map(|key| key.name) && key_type == expected.map(|key| key.key_type.scalar()).as_ref()
    };
    is(KeyRole::Hash, Some(partition)) && is(KeyRole::Range, sort)
}

fn schema_of(partition: Key, sort: Option<Key>) -> Result<Vec<KeySchemaElement>, BuildError> {
    let element = |key: Key, role| KeySchemaElement::builder().attribute_name(key.name).key_type(role).build();
    std::iter::once(element(partition, KeyRole::Hash)).chain(sort.map(|sort| element(sort, KeyRole::Range))).collect()
}

fn secondary(index: &Index) -> Result<GlobalSecondaryIndex, BuildError> {
    let projection = match index.projection {
        Projection::All => SdkProjection::builder().projection_type(ProjectionType::All),
        Projection::KeysOnly => SdkProjection::builder().projection_type(ProjectionType::KeysOnly),
        Projection::Include(attributes) => SdkProjection::builder()
            .projection_type(ProjectionType::Include)
            .set_non_key_attributes(Some(attributes.iter().map(ToString::to_string).collect())),
    };
    GlobalSecondaryIndex::builder()
        .index_name(index.name)
        .set_key_schema(Some(schema_of(index.partition_key, index.sort_key)?))
        .projection(projection.build())
        .build()
}

fn unbuilt(error: BuildError) -> Error {
    Error::Failed { operation: ENSURE, source: error.into() }
}

impl Sender {
    /// Creates the table (on demand, TTL, point-in-time recovery, the stream if it is described) and waits until it is
    /// active. An existing table is not changed; the report says what it lacks.
    ///
    /// Needs `dynamodb:CreateTable`, `DescribeTable`, `UpdateTimeToLive`, `DescribeTimeToLive`,
    /// `UpdateContinuousBackups` and `DescribeContinuousBackups` on the table.
    pub async fn ensure_table(&self, description: &Description) -> Result<Report> {
        let created = match self.describe().await? {
            Some(_) => false,
            None => self.create_table(description).await?,
        };
        self.wait_until_active().await?;
        if created {
            if let Some(attribute) = description.ttl {
                self.enable_ttl(attribute).await?;
            }
            self.enable_recovery().await?;
        }
        Ok(Report { created, ..self.check_table(description).await? })
    }

    /// Returns what the table lacks; an error if there is no table.
    pub async fn check_table(&self, description: &Description) -> Result<Report> {
        let Some(table) = self.describe().await? else {
            return Err(Error::Failed {
                operation: ENSURE,
                source: format!("there is no table `{}`", self.table()).into(),
            });
        };
        let mut lacks = description.lacks_of(&table);
        if let Some(attribute) = description.ttl
            && !self.has_ttl(attribute).await?
        {
            lacks.push(Lack::Ttl { attribute });
        }
        if self.has_recovery().await? == Some(false) {
            lacks.push(Lack::Recovery);
        }
        Ok(Report { created: false, lacks })
    }

    /// Returns how many items an index had when DynamoDB last counted them, which it does about every six hours; `None` if there is no
    /// such index, or they were not counted yet.
    ///
    /// Needs `dynamodb:DescribeTable` on the table.
    pub async fn index_items(&self, name: &str) -> Result<Option<u64>> {
        let table = self.describe().await?;
        let indexes = table.iter().flat_map(TableDescription::global_secondary_indexes);
        let index = indexes.into_iter().find(|index| index.index_name() == Some(name));
        Ok(index.and_then(GlobalSecondaryIndexDescription::item_count).and_then(|count| count.try_into().ok()))
    }

    async fn describe(&self) -> Result<Option<TableDescription>> {
        let request = self.client().describe_table().table_name(self.table());
        match self.read(ENSURE, || request.clone().send()).await {
            Ok(output) => Ok(output.table),
            Err(error) if is_missing_table(&error) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Creates the table, without expiry and recovery, and does not wait until it is active. Returns false if another process was faster.
    ///
    /// Needs `dynamodb:CreateTable` on the table.
    pub async fn create_table(&self, description: &Description) -> Result<bool> {
        let (partition, sort) = description.own_keys();
        let mut request = self
            .client()
            .create_table()
            .table_name(self.table())
            .billing_mode(BillingMode::PayPerRequest)
            .set_key_schema(Some(schema_of(partition, sort).map_err(unbuilt)?));
        if description.stream {
            let stream = StreamSpecification::builder()
                .stream_enabled(true)
                .stream_view_type(StreamViewType::NewAndOldImages)
                .build()
                .map_err(unbuilt)?;
            request = request.stream_specification(stream);
        }
        for (attribute, key_type) in description.key_types() {
            let definition = AttributeDefinition::builder()
                .attribute_name(attribute)
                .attribute_type(key_type.scalar())
                .build()
                .map_err(unbuilt)?;
            request = request.attribute_definitions(definition);
        }
        for index in description.indexes {
            request = request.global_secondary_indexes(secondary(index).map_err(unbuilt)?);
        }
        match self.read(ENSURE, || request.clone().send()).await {
            Ok(_) => Ok(true),
            Err(error) if code_of(&error) == Some("ResourceInUseException") => Ok(false),
            Err(error) => Err(error),
        }
    }

    async fn wait_until_active(&self) -> Result<()> {
        until_active(async || Ok(self.describe().await?.and_then(|table| table.table_status))).await
    }

    async fn enable_ttl(&self, attribute: &str) -> Result<()> {
        let specification =
            TimeToLiveSpecification::builder().attribute_name(attribute).enabled(true).build().map_err(unbuilt)?;
        let request =
            self.client().update_time_to_live().table_name(self.table()).time_to_live_specification(specification);
        self.read(ENSURE, || request.clone().send()).await?;
        Ok(())
    }

    async fn has_ttl(&self, attribute: &str) -> Result<bool> {
        let request = self.client().describe_time_to_live().table_name(self.table());
        let ttl = self.read(ENSURE, || request.clone().send()).await?.time_to_live_description;
        Ok(ttl.is_some_and(|ttl| {
            ttl.attribute_name.as_deref() == Some(attribute)
                && matches!(ttl.time_to_live_status, Some(TimeToLiveStatus::Enabled | TimeToLiveStatus::Enabling))
        }))
    }

    /// Enables point-in-time recovery. Local engines do not know the call: they have nothing to recover from.
    async fn enable_recovery(&self) -> Result<()> {
        let specification = PointInTimeRecoverySpecification::builder()
            .point_in_time_recovery_enabled(true)
            .build()
            .map_err(unbuilt)?;
        let request = self
            .client()
            .update_continuous_backups()
            .table_name(self.table())
            .point_in_time_recovery_specification(specification);
        let mut backoff = self.backoff();
        loop {
            match self.read(ENSURE, || request.clone().send()).await {
                Ok(_) => return Ok(()),
                Err(error) if is_unsupported(&error) => return Ok(()),
                // A table that was only just created is not ready for it.
                Err(error) if code_of(&error) == Some("ContinuousBackupsUnavailableException") => {
                    if !backoff.pause().await {
                        return Err(error);
                    }
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Returns whether point-in-time recovery is on; `None` if the engine does not know the call.
    async fn has_recovery(&self) -> Result<Option<bool>> {
        let request = self.client().describe_continuous_backups().table_name(self.table());
        match self.read(ENSURE, || request.clone().send()).await {
            Ok(output) => {
                let recovery = output
                    .continuous_backups_description
                    .and_then(|backups| backups.point_in_time_recovery_description)
                    .and_then(|recovery| recovery.point_in_time_recovery_status);
                Ok(Some(recovery == Some(PointInTimeRecoveryStatus::Enabled)))
            }
            Err(error) if is_unsupported(&error) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// Returns the code of the error that DynamoDB answered with, wherever it is among the sources.
pub(crate) fn code_of<'a>(error: &'a (dyn std::error::Error + 'static)) -> Option<&'a str> {
    use aws_sdk_dynamodb::operation::{
        batch_write_item::BatchWriteItemError, create_table::CreateTableError,
        describe_continuous_backups::DescribeContinuousBackupsError, describe_table::DescribeTableError,
        get_item::GetItemError, update_continuous_backups::UpdateContinuousBackupsError,
    };
    fn code<'a, E: ProvideErrorMetadata + std::error::Error + 'static>(
        error: &'a (dyn std::error::Error + 'static),
    ) -> Option<&'a str> {
        error.downcast_ref::<SdkError<E>>()?.code()
    }
    std::iter::successors(Some(error), |error| error.source()).find_map(|error| {
        code::<DescribeTableError>(error)
            .or_else(|| code::<CreateTableError>(error))
            .or_else(|| code::<UpdateContinuousBackupsError>(error))
            .or_else(|| code::<DescribeContinuousBackupsError>(error))
            .or_else(|| code::<BatchWriteItemError>(error))
            .or_else(|| code::<GetItemError>(error))
    })
}

/// Returns whether a read of one item, or a description of a table, failed because there is no such table.
pub fn is_missing_table(error: &(dyn std::error::Error + 'static)) -> bool {
    code_of(error) == Some("ResourceNotFoundException")
}

fn is_unsupported(error: &Error) -> bool {
    // Not `UnrecognizedClientException`: that is AWS's code for unknown credentials.
    matches!(code_of(error), Some("UnknownOperationException" | "UnknownOperation"))
}

/// Waits until a table can be used. Returns an error if that takes too long, or if the table is being deleted.
async fn until_active(status: impl AsyncFn() -> Result<Option<TableStatus>>) -> Result<()> {
    let begun = Instant::now();
    loop {
        let found = match status().await? {
            Some(TableStatus::Active | TableStatus::Updating) => return Ok(()),
            Some(TableStatus::Creating) => "being created".to_owned(),
            None => "missing".to_owned(),
            Some(other) => {
                let source = format!("the table is in state {}", other.as_str()).into();
                return Err(Error::Failed { operation: ENSURE, source });
            }
        };
        if begun.elapsed() >= ACTIVE_WITHIN {
            let source = format!("the table is still {found} after {} s", ACTIVE_WITHIN.as_secs()).into();
            return Err(Error::Unavailable { operation: ENSURE, source: Some(source) });
        }
        sleep(POLL).await;
    }
}

#[cfg(test)]
mod tests {
    use aws_sdk_dynamodb::{
        error::ErrorMetadata, operation::describe_continuous_backups::DescribeContinuousBackupsError,
    };
    use aws_smithy_runtime_api::{client::orchestrator::HttpResponse, http::StatusCode};
    use tokio::sync::Mutex;

    use super::*;

    fn failed_with(code: &str) -> Error {
        let error = DescribeContinuousBackupsError::generic(ErrorMetadata::builder().code(code).build());
        let response = HttpResponse::new(StatusCode::try_from(400).unwrap(), "".into());
        Error::Failed { operation: ENSURE, source: SdkError::service_error(error, response).into() }
    }

    #[test]
    fn credentials_that_aws_does_not_know_are_not_an_operation_that_an_engine_lacks() {
        assert!(is_unsupported(&failed_with("UnknownOperationException")));
        assert!(!is_unsupported(&failed_with("UnrecognizedClientException")));
    }

    #[tokio::test(start_paused = true)]
    async fn a_table_that_never_becomes_active_is_an_error() {
        let begun = Instant::now();
        let ended = until_active(async || Ok(Some(TableStatus::Creating))).await;
        assert!(matches!(ended, Err(Error::Unavailable { .. })), "{ended:?}");
        assert_eq!(begun.elapsed(), ACTIVE_WITHIN);
        let ended = until_active(async || Ok(Some(TableStatus::Deleting))).await;
        assert!(matches!(ended, Err(Error::Failed { .. })), "{ended:?}");
        assert_eq!(begun.elapsed(), ACTIVE_WITHIN, "nothing to wait for");
    }

    #[tokio::test(start_paused = true)]
    async fn a_table_is_used_once_it_is_active() {
        let seen = Mutex::new(vec![TableStatus::Active, TableStatus::Creating, TableStatus::Creating]);
        until_active(async || Ok(seen.lock().await.pop())).await.unwrap();
        assert!(seen.lock().await.is_empty());
    }
}
