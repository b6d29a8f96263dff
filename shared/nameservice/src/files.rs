use nameservice_files::{Bucket, BucketOptions, Files, FlureePlace, Options, fluree_place};

use crate::{Cloud, Place, Result, error::cannot_open};

/// Opens the files at a place: in a bucket, or in a directory, which is created if `create` is set.
pub async fn files(place: &Place, create: bool, options: Options) -> Result<Files> {
    match place {
        Place::Directory { path, timeout } => {
            let (path, options) = (path.clone(), options.with_timeout(*timeout));
            // Blocking: opening accesses the file system.
            let open = move || Files::directory(path, create, options);
            let opened = tokio::task::spawn_blocking(open).await.map_err(cannot_open(place))?;
            opened.map_err(cannot_open(place))
        }
        Place::Bucket { cloud, bucket, prefix, region, endpoint, timeout } => {
            let at = BucketOptions::default().region(region.clone()).endpoint(endpoint.clone()).timeout(*timeout);
            let opened = match cloud {
                Cloud::S3 => Bucket::s3(bucket, prefix, &crate::s3::with_chain(at).await.map_err(cannot_open(place))?),
                Cloud::Gcs => Bucket::gcs(bucket, prefix, &at),
                Cloud::Azure => Bucket::azure(bucket, prefix, &at),
            };
            Ok(Files::bucket(opened.map_err(cannot_open(place))?, options.with_timeout(*timeout)))
        }
        other => Err(cannot_open(other)("it has no files")),
    }
}

impl Place {
    /// Returns the place that a Fluree server with this connection file (JSON-LD) uses. `variable` looks up the values that
    /// the file takes from the environment.
    ///
    /// ```
    /// let config = r#"{"@graph": [
    ///     {"@type": "Connection", "indexStorage": {"@id": "disk"}},
    ///     {"@id": "disk", "filePath": {"envVar": "FLUREE_DATA", "defaultVal": "/var/lib/fluree"}}
    /// ]}"#;
    /// let place = nameservice::Place::of_fluree(config, |_| None)?;
    /// assert_eq!(place.to_string(), "file:///var/lib/fluree");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn of_fluree(
        json: &str,
        variable: impl Fn(&str) -> Option<String>,
    ) -> std::result::Result<Self, nameservice_files::InvalidFlureeConfig> {
        let timeout = nameservice_files::DEFAULT_TIMEOUT;
        Ok(match fluree_place(json, variable)? {
            FlureePlace::Directory(path) => Self::Directory { path, timeout },
            FlureePlace::S3 { bucket, prefix, endpoint } => {
                Self::Bucket { cloud: Cloud::S3, bucket, prefix, region: None, endpoint, timeout }
            }
            FlureePlace::DynamoDb { table, region, endpoint, timeout: own } => {
                Self::DynamoDb { table, region, endpoint, timeout: own.unwrap_or(timeout) }
            }
            other => return Err(nameservice_files::InvalidFlureeConfig::new(format!("{other:?} is not known here"))),
        })
    }
}
