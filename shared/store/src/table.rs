//! Creating the table exactly as [`crate::schema`] has it, and checking one that exists.

use nameservice_dynamo::{Description, Index, Key, Lack, Projection, Report};
use nameservice_model::Result;

use crate::{Store, client::of_table, schema::*};

/// The description of the table of [`crate::schema`].
pub const DESCRIPTION: Description = Description {
    partition_key: ATTR_PK,
    sort_key: Some(ATTR_SK),
    indexes: &[described(INDEXES[0]), described(INDEXES[1]), described(INDEXES[2])],
    ttl: Some(ATTR_TTL),
    stream: true,
};

const fn described(index: SecondaryIndex) -> Index {
    let projection = match index.include {
        [] => Projection::KeysOnly,
        include => Projection::Include(include),
    };
    Index { name: index.name, partition_key: Key::string(index.hash), sort_key: Some(Key::string(ATTR_PK)), projection }
}

/// What [`Store::ensure_table`] or [`Store::check_table`] found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableReport {
    /// Whether this call created the table.
    pub created: bool,
    /// What the table lacks, in sentences for an operator. The table can be used nevertheless: see
    /// docs/specification.md, Table.
    pub lacks: Vec<String>,
}

impl From<Report> for TableReport {
    fn from(report: Report) -> Self {
        let sentence = |lack: &Lack| match lack {
            Lack::Stream => format!("{lack}: no change feed"),
            Lack::Ttl { .. } => format!("{lack}: Fluree's commit log is never trimmed"),
            _ => lack.to_string(),
        };
        Self { created: report.created, lacks: report.lacks.iter().map(sentence).collect() }
    }
}

impl Store {
    /// Creates the table (on demand, stream, TTL, point-in-time recovery) and waits until it is active. An existing
    /// table is not changed; the report says what it lacks.
    ///
    /// Needs `dynamodb:CreateTable`, `DescribeTable`, `UpdateTimeToLive`, `DescribeTimeToLive`,
    /// `UpdateContinuousBackups` and `DescribeContinuousBackups` on the table.
    pub async fn ensure_table(&self) -> Result<TableReport> {
        Ok(self.sender.ensure_table(&DESCRIPTION).await.map_err(of_table)?.into())
    }

    /// Returns what the table lacks; an error if there is no table.
    pub async fn check_table(&self) -> Result<TableReport> {
        Ok(self.sender.check_table(&DESCRIPTION).await.map_err(of_table)?.into())
    }

    /// Returns how many records there were when DynamoDB last counted them, which it does about every six hours: the index by kind
    /// has one item for each. Needs `dynamodb:DescribeTable`.
    pub(crate) async fn count_of_records(&self) -> Result<Option<u64>> {
        self.sender.index_items(GSI_KIND).await.map_err(of_table)
    }
}
