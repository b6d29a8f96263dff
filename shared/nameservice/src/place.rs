use std::{fmt, path::PathBuf, str::FromStr, time::Duration};

use percent_encoding::{AsciiSet, CONTROLS, percent_decode_str, utf8_percent_encode};

/// A backend, named by one URL.
///
/// ```
/// use nameservice::Place;
///
/// let place: Place = "dynamodb://fluree-nameservice?region=eu-central-1".parse()?;
/// assert!(matches!(place, Place::DynamoDb { ref table, .. } if table == "fluree-nameservice"));
/// assert_eq!("embedded:./data".parse::<Place>()?, Place::Embedded("./data".into()));
/// assert!("ftp://example.com".parse::<Place>().is_err());
/// # Ok::<(), nameservice::InvalidPlace>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Place {
    /// `https://HOST[/BASE]`, `http://…`: a service.
    Service(String),
    /// `dynamodb://TABLE?region=…&endpoint=…&timeout_ms=…`: a table of DynamoDB.
    DynamoDb {
        /// The name of the table.
        table: String,
        /// The region; by default, that of the environment or the profile.
        region: Option<String>,
        /// The URL of a DynamoDB outside AWS.
        endpoint: Option<String>,
        /// How long after the first attempt of an operation another may begin: 5 seconds by default.
        timeout: Duration,
    },
    /// `file:///DIR?timeout_ms=…`: the files of Fluree's nameservice in a local directory.
    Directory {
        /// The directory that holds `ns@v2`.
        path: PathBuf,
        /// How long an operation may take: 5 seconds by default.
        timeout: Duration,
    },
    /// `s3://BUCKET/PREFIX?region=…&endpoint=…&timeout_ms=…`, `gs://…`, `az://…`: the same files in a bucket.
    Bucket {
        /// The provider of the bucket.
        cloud: Cloud,
        /// Its name.
        bucket: String,
        /// The prefix of all keys; may be empty.
        prefix: String,
        /// The region of S3; by default, that of the environment.
        region: Option<String>,
        /// The URL of a store outside the cloud.
        endpoint: Option<String>,
        /// How long an operation may take: 5 seconds by default.
        timeout: Duration,
    },
    /// `embedded:DIR`: the embedded backend in a directory.
    Embedded(PathBuf),
    /// `memory:`: the embedded backend in this process's memory.
    Memory,
    /// `v1:TABLE?region=…&endpoint=…`, `item:TABLE?…`: a table of one of the older layouts, to copy from.
    Legacy {
        /// `v1` or `item`. The layout of each row is detected from the row itself.
        layout: &'static str,
        /// The name of the table.
        table: String,
        /// The region; by default, that of the environment or the profile.
        region: Option<String>,
        /// The URL of a DynamoDB outside AWS.
        endpoint: Option<String>,
    },
    /// `dump:FILE`: records as JSON Lines, to copy from and to; `dump:-` is standard input or output.
    Dump(PathBuf),
}

/// A kind of object store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Cloud {
    /// S3, or a compatible store: `s3://`.
    S3,
    /// Google Cloud Storage: `gs://`.
    Gcs,
    /// Azure Blob Storage: `az://`.
    Azure,
}

impl Cloud {
    const fn scheme(self) -> &'static str {
        match self {
            Self::S3 => "s3",
            Self::Gcs => "gs",
            Self::Azure => "az",
        }
    }
}

/// The error for a text that names no backend.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{url}` does not name a nameservice: {reason}")]
pub struct InvalidPlace {
    url: String,
    reason: String,
}

const TIMEOUT: Duration = Duration::from_secs(5);
const SCHEMES: &str = "https://HOST, http://HOST, unix:PATH, dynamodb://TABLE, file:///DIR, s3://BUCKET/PREFIX, gs://…, az://…, \
                       embedded:DIR, memory:, dump:FILE, v1:TABLE, item:TABLE";

impl FromStr for Place {
    type Err = InvalidPlace;

    fn from_str(url: &str) -> Result<Self, InvalidPlace> {
        let invalid = |reason: String| InvalidPlace { url: url.to_owned(), reason };
        let Some((scheme, rest)) = url.split_once(':') else {
            return Err(invalid(format!("it must be one of {SCHEMES}")));
        };
        match scheme {
            "http" | "https" if rest.strip_prefix("//").is_some_and(|host| !host.is_empty()) => {
                Ok(Self::Service(url.to_owned()))
            }
            "http" | "https" => Err(invalid("it names no host".into())),
            "unix" if rest.is_empty() => Err(invalid("it names no file: unix:PATH".into())),
            "unix" => Ok(Self::Service(url.to_owned())),
            "dynamodb" => dynamodb(rest).map_err(invalid),
            "file" => directory(rest).map_err(invalid),
            "s3" => bucket(Cloud::S3, rest).map_err(invalid),
            "gs" => bucket(Cloud::Gcs, rest).map_err(invalid),
            "az" => bucket(Cloud::Azure, rest).map_err(invalid),
            "v1" => legacy("v1", rest).map_err(invalid),
            "item" => legacy("item", rest).map_err(invalid),
            "embedded" if rest.is_empty() => Err(invalid("it names no directory: embedded:DIR".into())),
            "embedded" => Ok(Self::Embedded(rest.into())),
            "dump" if rest.is_empty() => Err(invalid("it names no file: dump:FILE, or dump:- for a stream".into())),
            "dump" => Ok(Self::Dump(rest.into())),
            "memory" if rest.is_empty() => Ok(Self::Memory),
            "memory" => Err(invalid("nothing follows `memory:`".into())),
            _ => Err(invalid(format!("it must be one of {SCHEMES}"))),
        }
    }
}

fn legacy(layout: &'static str, rest: &str) -> Result<Place, String> {
    // Like any other table, but with the time limit of a copy.
    let named = rest.trim_start_matches('/');
    match dynamodb(&format!("//{named}"))? {
        Place::DynamoDb { table, region, endpoint, .. } => Ok(Place::Legacy { layout, table, region, endpoint }),
        _ => Err(format!("it has the form {layout}:TABLE")),
    }
}

fn dynamodb(rest: &str) -> Result<Place, String> {
    let rest = rest.strip_prefix("//").ok_or("it has the form dynamodb://TABLE")?;
    let (table, query) = rest.split_once('?').unwrap_or((rest, ""));
    let table = table.trim_end_matches('/');
    let named = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    if table.len() < 3 || table.len() > 255 || !table.chars().all(named) {
        return Err("the name of a table has 3 to 255 letters, digits, `-`, `_` and `.`".into());
    }
    let Options { region, endpoint, timeout } = options(query, &["region", "endpoint", "timeout_ms"])?;
    Ok(Place::DynamoDb { table: table.to_owned(), region, endpoint, timeout })
}

fn directory(rest: &str) -> Result<Place, String> {
    let rest = rest.strip_prefix("//").filter(|path| path.starts_with('/'));
    let rest = rest.ok_or("it has the form file:///DIR, with the absolute path of a directory")?;
    let (path, query) = rest.split_once('?').unwrap_or((rest, ""));
    let path = percent_decode_str(path).decode_utf8().map_err(|_| "its path is not text in UTF-8")?;
    let Options { timeout, .. } = options(query, &["timeout_ms"])?;
    Ok(Place::Directory { path: path.into_owned().into(), timeout })
}

fn bucket(cloud: Cloud, rest: &str) -> Result<Place, String> {
    let scheme = cloud.scheme();
    let rest = rest.strip_prefix("//").ok_or_else(|| format!("it has the form {scheme}://BUCKET/PREFIX"))?;
    let (path, query) = rest.split_once('?').unwrap_or((rest, ""));
    let (bucket, prefix) = path.split_once('/').unwrap_or((path, ""));
    let named = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    if bucket.len() < 3 || !bucket.chars().all(named) {
        return Err("the name of a bucket has 3 letters, digits, `-`, `_` and `.` or more".into());
    }
    let known: &[&str] = match cloud {
        Cloud::S3 => &["region", "endpoint", "timeout_ms"],
        Cloud::Gcs | Cloud::Azure => &["endpoint", "timeout_ms"],
    };
    let Options { region, endpoint, timeout } = options(query, known)?;
    let prefix =
        percent_decode_str(prefix.trim_matches('/')).decode_utf8().map_err(|_| "its prefix is not text in UTF-8")?;
    Ok(Place::Bucket { cloud, bucket: bucket.to_owned(), prefix: prefix.into_owned(), region, endpoint, timeout })
}

/// The options after the `?` of a URL.
struct Options {
    region: Option<String>,
    endpoint: Option<String>,
    timeout: Duration,
}

fn options(query: &str, known: &[&str]) -> Result<Options, String> {
    let mut options = Options { region: None, endpoint: None, timeout: TIMEOUT };
    for (name, value) in form_urlencoded::parse(query.as_bytes()) {
        match name.as_ref() {
            other if !known.contains(&other) => {
                let (last, others) = known.split_last().map_or(("", &[][..]), |(last, others)| (*last, others));
                let there = match others {
                    [] => format!("is {last}"),
                    others => format!("are {} and {last}", others.join(", ")),
                };
                return Err(format!("there is no option `{other}`; there {there}"));
            }
            "region" => options.region = Some(value.into_owned()),
            "endpoint" if value.starts_with("http://") || value.starts_with("https://") => {
                options.endpoint = Some(value.into_owned());
            }
            "endpoint" => return Err("`endpoint` must begin with http:// or https://".into()),
            _ => match value.parse() {
                Ok(ms) if ms > 0 => options.timeout = Duration::from_millis(ms),
                _ => return Err("`timeout_ms` must be a number of milliseconds, 1 or greater".into()),
            },
        }
    }
    Ok(options)
}

impl Options {
    fn of(region: Option<&String>, endpoint: Option<&String>, timeout: Duration) -> Self {
        Self { region: region.cloned(), endpoint: endpoint.cloned(), timeout }
    }
}

impl fmt::Display for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut query = form_urlencoded::Serializer::new(String::new());
        if let Some(region) = &self.region {
            query.append_pair("region", region);
        }
        if let Some(endpoint) = &self.endpoint {
            query.append_pair("endpoint", endpoint);
        }
        if self.timeout != TIMEOUT {
            query.append_pair("timeout_ms", &self.timeout.as_millis().to_string());
        }
        let query = query.finish();
        let separator = if query.is_empty() { "" } else { "?" };
        write!(f, "{separator}{query}")
    }
}

/// Characters that would end the path of a URL, or cannot be in one.
const NOT_IN_PATHS: &AsciiSet = &CONTROLS.add(b'%').add(b'?').add(b'#').add(b' ');

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Service(url) => f.write_str(url),
            Self::DynamoDb { table, region, endpoint, timeout } => {
                let options = Options::of(region.as_ref(), endpoint.as_ref(), *timeout);
                write!(f, "dynamodb://{table}{options}")
            }
            Self::Directory { path, timeout } => {
                let path = path.to_string_lossy();
                let path = utf8_percent_encode(&path, NOT_IN_PATHS);
                write!(f, "file://{path}{}", Options::of(None, None, *timeout))
            }
            Self::Bucket { cloud, bucket, prefix, region, endpoint, timeout } => {
                let separator = if prefix.is_empty() { "" } else { "/" };
                let prefix = utf8_percent_encode(prefix, NOT_IN_PATHS);
                let options = Options::of(region.as_ref(), endpoint.as_ref(), *timeout);
                write!(f, "{}://{bucket}{separator}{prefix}{options}", cloud.scheme())
            }
            Self::Embedded(directory) => write!(f, "embedded:{}", directory.display()),
            Self::Memory => f.write_str("memory:"),
            Self::Legacy { layout, table, region, endpoint } => {
                let (region, endpoint) = (region.clone(), endpoint.clone());
                let place = Self::DynamoDb { table: table.clone(), region, endpoint, timeout: TIMEOUT }.to_string();
                write!(f, "{layout}:{}", place.trim_start_matches("dynamodb://"))
            }
            Self::Dump(file) => write!(f, "dump:{}", file.display()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_reads_as_it_is_written() {
        for url in [
            "https://example.com/base",
            "http://127.0.0.1:8080",
            "dynamodb://fluree-nameservice",
            "dynamodb://My.table_1?region=eu-central-1&endpoint=http%3A%2F%2Flocalhost%3A8000&timeout_ms=250",
            "file:///var/lib/fluree%20data?timeout_ms=100",
            "s3://my-bucket/a/b?region=eu-central-1&endpoint=http%3A%2F%2Flocalhost%3A9000",
            "s3://my-bucket",
            "gs://my_bucket/fluree",
            "az://container",
            "embedded:/var/lib/nameservice",
            "memory:",
            "dump:all.jsonl",
            "dump:-",
            "v1:fluree-nameservice?region=eu-central-1",
            "item:old?endpoint=http%3A%2F%2Flocalhost%3A8000",
        ] {
            assert_eq!(url.parse::<Place>().unwrap().to_string(), url);
        }
    }

    #[test]
    fn a_place_that_is_none_says_what_is_wrong() {
        for (url, reason) in [
            ("", "must be one of"),
            ("mydb", "must be one of"),
            ("ftp://x", "must be one of"),
            ("v1:x", "3 to 255"),
            ("file:data", "file:///DIR"),
            ("file://data/x", "file:///DIR"),
            ("file:///x?region=a", "there is timeout_ms"),
            ("s3:bucket", "s3://BUCKET/PREFIX"),
            ("s3://b!/x", "name of a bucket"),
            ("gs://bucket?region=a", "there are endpoint and timeout_ms"),
            ("https://", "no host"),
            ("dynamodb:table", "dynamodb://TABLE"),
            ("dynamodb://x", "3 to 255"),
            ("dynamodb://table?zone=1", "no option `zone`"),
            ("dynamodb://table?timeout_ms=0", "timeout_ms"),
            ("dynamodb://table?endpoint=localhost", "endpoint"),
            ("embedded:", "no directory"),
            ("dump:", "no file"),
            ("memory:x", "nothing follows"),
        ] {
            let error = url.parse::<Place>().unwrap_err().to_string();
            assert!(error.contains(reason), "{url}: {error}");
        }
    }
}
