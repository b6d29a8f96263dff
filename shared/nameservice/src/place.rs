use std::{fmt, path::PathBuf, str::FromStr, time::Duration};

/// A backend, as one URL names it.
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
        /// The URL of a DynamoDB elsewhere than in AWS.
        endpoint: Option<String>,
        /// How long after the first attempt of an operation another may begin: 5 seconds by default.
        timeout: Duration,
    },
    /// `embedded:DIR`: the embedded backend in a directory.
    Embedded(PathBuf),
    /// `memory:`: the embedded backend in this process's memory.
    Memory,
}

/// The error of a text that names no backend.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{url}` does not name a nameservice: {reason}")]
pub struct InvalidPlace {
    url: String,
    reason: String,
}

const TIMEOUT: Duration = Duration::from_secs(5);
const SCHEMES: &str = "https://HOST, http://HOST, dynamodb://TABLE, embedded:DIR, memory:";
/// Schemes of places that other versions may have.
const UNSUPPORTED: [&str; 7] = ["file", "s3", "gs", "az", "v1", "item", "dump"];

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
            "dynamodb" => dynamodb(rest).map_err(invalid),
            "embedded" if rest.is_empty() => Err(invalid("it names no directory: embedded:DIR".into())),
            "embedded" => Ok(Self::Embedded(rest.into())),
            "memory" if rest.is_empty() => Ok(Self::Memory),
            "memory" => Err(invalid("nothing follows `memory:`".into())),
            scheme if UNSUPPORTED.contains(&scheme) => {
                Err(invalid(format!("this version has no backend for `{scheme}:`; it has {SCHEMES}")))
            }
            _ => Err(invalid(format!("it must be one of {SCHEMES}"))),
        }
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
    let (mut region, mut endpoint, mut timeout) = (None, None, TIMEOUT);
    for (name, value) in form_urlencoded::parse(query.as_bytes()) {
        match name.as_ref() {
            "region" => region = Some(value.into_owned()),
            "endpoint" if value.starts_with("http://") || value.starts_with("https://") => {
                endpoint = Some(value.into_owned());
            }
            "endpoint" => return Err("`endpoint` must begin with http:// or https://".into()),
            "timeout_ms" => match value.parse() {
                Ok(ms) if ms > 0 => timeout = Duration::from_millis(ms),
                _ => return Err("`timeout_ms` must be a number of milliseconds, 1 or greater".into()),
            },
            other => return Err(format!("there is no option `{other}`; there are region, endpoint and timeout_ms")),
        }
    }
    Ok(Place::DynamoDb { table: table.to_owned(), region, endpoint, timeout })
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Service(url) => f.write_str(url),
            Self::DynamoDb { table, region, endpoint, timeout } => {
                let mut query = form_urlencoded::Serializer::new(String::new());
                if let Some(region) = region {
                    query.append_pair("region", region);
                }
                if let Some(endpoint) = endpoint {
                    query.append_pair("endpoint", endpoint);
                }
                if *timeout != TIMEOUT {
                    query.append_pair("timeout_ms", &timeout.as_millis().to_string());
                }
                let query = query.finish();
                let separator = if query.is_empty() { "" } else { "?" };
                write!(f, "dynamodb://{table}{separator}{query}")
            }
            Self::Embedded(directory) => write!(f, "embedded:{}", directory.display()),
            Self::Memory => f.write_str("memory:"),
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
            "embedded:/var/lib/nameservice",
            "memory:",
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
            ("s3://bucket/prefix", "no backend for `s3:`"),
            ("https://", "no host"),
            ("dynamodb:table", "dynamodb://TABLE"),
            ("dynamodb://x", "3 to 255"),
            ("dynamodb://table?zone=1", "no option `zone`"),
            ("dynamodb://table?timeout_ms=0", "timeout_ms"),
            ("dynamodb://table?endpoint=localhost", "endpoint"),
            ("embedded:", "no directory"),
            ("memory:x", "nothing follows"),
        ] {
            let error = url.parse::<Place>().unwrap_err().to_string();
            assert!(error.contains(reason), "{url}: {error}");
        }
    }
}
