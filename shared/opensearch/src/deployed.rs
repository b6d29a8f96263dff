//! The index of a deployment, as the environment of its functions names it.

use nameservice_dynamo::{lambda_config, variable};

use crate::{DEFAULT_INDEX, OpenSearch, RequestError, SERVICE, Signer};

/// The URL of the OpenSearch; without it there is no index.
pub const SEARCH_URL: &str = "NAMESERVICE_SEARCH_URL";
/// The name of the index there.
const SEARCH_INDEX: &str = "NAMESERVICE_SEARCH_INDEX";

/// Returns whether the environment names an index.
pub fn is_deployed() -> bool {
    variable(SEARCH_URL).is_some()
}

/// Returns the index that the environment names, whose requests are signed with the credentials of the function; `None` if
/// it names none.
pub fn deployed() -> Result<Option<OpenSearch>, RequestError> {
    let Some(url) = variable(SEARCH_URL) else { return Ok(None) };
    let signer = Signer::from_config(&lambda_config(), SERVICE);
    let name = variable(SEARCH_INDEX).unwrap_or_else(|| DEFAULT_INDEX.to_owned());
    OpenSearch::new(&url, &name, signer).map(Some)
}
