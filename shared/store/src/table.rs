//! Creating the table exactly as [`crate::schema`] has it, and checking one that exists.

use std::time::Duration;

use aws_sdk_dynamodb::{
    error::ProvideErrorMetadata,
    types::{
        AttributeDefinition, BillingMode, GlobalSecondaryIndex, GlobalSecondaryIndexDescription, KeySchemaElement,
        KeyType, PointInTimeRecoverySpecification, PointInTimeRecoveryStatus, Projection, ProjectionType,
        ScalarAttributeType, StreamSpecification, StreamViewType, TableDescription, TableStatus,
        TimeToLiveSpecification, TimeToLiveStatus,
    },
};
use nameservice_model::{BoxError, Error, Result};
use tokio::time::sleep;

use crate::{Store, schema::*};

const ENSURE: &str = "create or check the table";
const POLL: Duration = Duration::from_millis(200);

/// What [`Store::ensure_table`] or [`Store::check_table`] found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableReport {
    /// Whether this call created the table.
    pub created: bool,
    /// What the table lacks, in sentences for an operator. It can serve all the same: see contract §2.2.
    pub lacks: Vec<String>,
}

impl Store {
    /// Creates the table (on demand, stream, TTL, point-in-time recovery) and waits until it is active. One that exists
    /// is left as it is; the report says what it lacks.
    ///
    /// Needs `dynamodb:CreateTable`, `DescribeTable`, `UpdateTimeToLive`, `DescribeTimeToLive`,
    /// `UpdateContinuousBackups` and `DescribeContinuousBackups` on the table.
    pub async fn ensure_table(&self) -> Result<TableReport> {
        let created = match self.describe().await? {
            Some(_) => false,
            None => self.create_table().await?,
        };
        self.wait_until_active().await?;
        if created {
            self.enable_ttl().await?;
            self.enable_recovery().await?;
        }
        Ok(TableReport { created, ..self.check_table().await? })
    }

    /// Says what the table lacks; an error where there is none.
    pub async fn check_table(&self) -> Result<TableReport> {
        let Some(table) = self.describe().await? else {
            return Err(Error::Store {
                operation: ENSURE,
                source: format!("there is no table `{}`", self.table()).into(),
            });
        };
        let mut lacks = lacks_of(&table);
        if !self.has_ttl().await? {
            lacks.push(format!("TTL on `{ATTR_TTL}` is off: Fluree's commit log is never trimmed"));
        }
        if self.has_recovery().await? == Some(false) {
            lacks.push("point-in-time recovery is off".to_owned());
        }
        Ok(TableReport { created: false, lacks })
    }

    async fn describe(&self) -> Result<Option<TableDescription>> {
        let request = self.sender.client().describe_table().table_name(self.table());
        match self.sender.read(ENSURE, || request.clone().send()).await {
            Ok(output) => Ok(output.table),
            Err(error) if code_of(&error) == Some("ResourceNotFoundException") => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// False where somebody else was faster.
    async fn create_table(&self) -> Result<bool> {
        let build =
            |error: aws_sdk_dynamodb::error::BuildError| Error::Store { operation: ENSURE, source: error.into() };
        let mut request = self
            .sender
            .client()
            .create_table()
            .table_name(self.table())
            .billing_mode(BillingMode::PayPerRequest)
            .key_schema(key(ATTR_PK, KeyType::Hash).map_err(build)?)
            .key_schema(key(ATTR_SK, KeyType::Range).map_err(build)?)
            .stream_specification(
                StreamSpecification::builder()
                    .stream_enabled(true)
                    .stream_view_type(StreamViewType::NewAndOldImages)
                    .build()
                    .map_err(build)?,
            );
        let keys = [ATTR_PK, ATTR_SK].into_iter().chain(INDEXES.iter().map(|index| index.hash));
        for attribute in keys {
            let definition = AttributeDefinition::builder()
                .attribute_name(attribute)
                .attribute_type(ScalarAttributeType::S)
                .build()
                .map_err(build)?;
            request = request.attribute_definitions(definition);
        }
        for index in &INDEXES {
            request = request.global_secondary_indexes(secondary(index).map_err(build)?);
        }
        match self.sender.read(ENSURE, || request.clone().send()).await {
            Ok(_) => Ok(true),
            Err(error) if code_of(&error) == Some("ResourceInUseException") => Ok(false),
            Err(error) => Err(error),
        }
    }

    async fn wait_until_active(&self) -> Result<()> {
        loop {
            match self.describe().await?.and_then(|table| table.table_status) {
                Some(TableStatus::Active | TableStatus::Updating) => return Ok(()),
                _ => sleep(POLL).await,
            }
        }
    }

    async fn enable_ttl(&self) -> Result<()> {
        let specification = TimeToLiveSpecification::builder()
            .attribute_name(ATTR_TTL)
            .enabled(true)
            .build()
            .map_err(|error| Error::Store { operation: ENSURE, source: error.into() })?;
        let request = self
            .sender
            .client()
            .update_time_to_live()
            .table_name(self.table())
            .time_to_live_specification(specification);
        self.sender.read(ENSURE, || request.clone().send()).await?;
        Ok(())
    }

    async fn has_ttl(&self) -> Result<bool> {
        let request = self.sender.client().describe_time_to_live().table_name(self.table());
        let ttl = self.sender.read(ENSURE, || request.clone().send()).await?.time_to_live_description;
        Ok(ttl.is_some_and(|ttl| {
            ttl.attribute_name.as_deref() == Some(ATTR_TTL)
                && matches!(ttl.time_to_live_status, Some(TimeToLiveStatus::Enabled | TimeToLiveStatus::Enabling))
        }))
    }

    /// Engines for one machine do not know the call: there is nothing to recover from there.
    async fn enable_recovery(&self) -> Result<()> {
        let specification = PointInTimeRecoverySpecification::builder()
            .point_in_time_recovery_enabled(true)
            .build()
            .map_err(|error| Error::Store { operation: ENSURE, source: error.into() })?;
        let request = self
            .sender
            .client()
            .update_continuous_backups()
            .table_name(self.table())
            .point_in_time_recovery_specification(specification);
        let mut backoff = self.sender.backoff();
        loop {
            match self.sender.read(ENSURE, || request.clone().send()).await {
                Ok(_) => return Ok(()),
                Err(error) if is_unsupported(&error) => return Ok(()),
                // A table that was only just made is not ready for it.
                Err(error) if code_of(&error) == Some("ContinuousBackupsUnavailableException") => {
                    if !backoff.pause().await {
                        return Err(error);
                    }
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// `None` where the engine does not know the call.
    async fn has_recovery(&self) -> Result<Option<bool>> {
        let request = self.sender.client().describe_continuous_backups().table_name(self.table());
        match self.sender.read(ENSURE, || request.clone().send()).await {
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

fn key(attribute: &str, key_type: KeyType) -> Result<KeySchemaElement, aws_sdk_dynamodb::error::BuildError> {
    KeySchemaElement::builder().attribute_name(attribute).key_type(key_type).build()
}

fn secondary(index: &SecondaryIndex) -> Result<GlobalSecondaryIndex, aws_sdk_dynamodb::error::BuildError> {
    let projection = match index.include {
        [] => Projection::builder().projection_type(ProjectionType::KeysOnly),
        include => Projection::builder()
            .projection_type(ProjectionType::Include)
            .set_non_key_attributes(Some(include.iter().map(ToString::to_string).collect())),
    };
    GlobalSecondaryIndex::builder()
        .index_name(index.name)
        .key_schema(key(index.hash, KeyType::Hash)?)
        .key_schema(key(ATTR_PK, KeyType::Range)?)
        .projection(projection.build())
        .build()
}

fn lacks_of(table: &TableDescription) -> Vec<String> {
    let mut lacks = Vec::new();
    if !same_keys(table.key_schema(), ATTR_PK, ATTR_SK) {
        lacks.push(format!("its keys are not `{ATTR_PK}` and `{ATTR_SK}`: it cannot serve"));
    }
    for index in &INDEXES {
        match table.global_secondary_indexes().iter().find(|found| found.index_name() == Some(index.name)) {
            None => lacks.push(format!("there is no index `{}`", index.name)),
            Some(found) if !same_keys(found.key_schema(), index.hash, ATTR_PK) => {
                lacks.push(format!("the keys of index `{}` are not `{}` and `{ATTR_PK}`", index.name, index.hash));
            }
            Some(found) => lacks.extend(lacks_of_projection(index, found)),
        }
    }
    let stream = table.stream_specification().filter(|stream| stream.stream_enabled);
    if stream.and_then(|stream| stream.stream_view_type()) != Some(&StreamViewType::NewAndOldImages) {
        lacks.push("there is no stream with new and old images: no change feed".to_owned());
    }
    lacks
}

fn lacks_of_projection(index: &SecondaryIndex, found: &GlobalSecondaryIndexDescription) -> Option<String> {
    let projection = found.projection();
    if projection.and_then(|projection| projection.projection_type()) == Some(&ProjectionType::All) {
        return None;
    }
    let carried = projection.map(|projection| projection.non_key_attributes()).unwrap_or_default();
    let missing: Vec<&str> = index
        .include
        .iter()
        .copied()
        .filter(|attribute| *attribute != index.hash && !carried.iter().any(|carried| carried == attribute))
        .collect();
    (!missing.is_empty()).then(|| format!("index `{}` does not carry {}", index.name, missing.join(", ")))
}

fn same_keys(found: &[KeySchemaElement], hash: &str, range: &str) -> bool {
    let key = |key_type| found.iter().find(|key| *key.key_type() == key_type).map(KeySchemaElement::attribute_name);
    found.len() == 2 && key(KeyType::Hash) == Some(hash) && key(KeyType::Range) == Some(range)
}

/// The code of the error that DynamoDB answered with.
fn code_of(error: &Error) -> Option<&str> {
    let Error::Store { source, .. } = error else { return None };
    fn code<E: ProvideErrorMetadata + std::error::Error + 'static>(source: &BoxError) -> Option<&str> {
        source.downcast_ref::<aws_sdk_dynamodb::error::SdkError<E>>()?.code()
    }
    use aws_sdk_dynamodb::operation::{
        create_table::CreateTableError, describe_continuous_backups::DescribeContinuousBackupsError,
        describe_table::DescribeTableError, update_continuous_backups::UpdateContinuousBackupsError,
    };
    code::<DescribeTableError>(source)
        .or_else(|| code::<CreateTableError>(source))
        .or_else(|| code::<UpdateContinuousBackupsError>(source))
        .or_else(|| code::<DescribeContinuousBackupsError>(source))
}

fn is_unsupported(error: &Error) -> bool {
    matches!(code_of(error), Some("UnknownOperationException" | "UnknownOperation" | "UnrecognizedClientException"))
}
