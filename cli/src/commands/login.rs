//! `login`: a token from an OpenID provider, by the device code flow (RFC 8628).

use std::time::Duration;

use clap::Args;
use nameservice_client::http_client;
use nameservice_model::chain;
use reqwest::{Client, Response, StatusCode};
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::json;
use tokio::time::{Instant, sleep};

use crate::{
    failure::Failure,
    output::{self, Output},
};

/// How long an answer of the provider may take.
const TIMEOUT: Duration = Duration::from_secs(15);
/// How often to ask for the token, if the provider does not say it.
const INTERVAL_SECONDS: u64 = 5;
/// How long a code is valid, if the provider does not say it.
const EXPIRES_IN_SECONDS: u64 = 600;
/// How often to ask at most, whatever the provider says.
const SHORTEST_INTERVAL_SECONDS: u64 = 1;
/// By how much to ask less often if the provider demands it.
const SLOWER: Duration = Duration::from_secs(5);

/// `login`
#[derive(Debug, Args)]
pub struct LoginArgs {
    /// The URL of the OpenID provider
    #[arg(long, value_name = "URL")]
    pub issuer: String,
    /// The id that the provider knows this program by
    #[arg(long, value_name = "ID")]
    pub client_id: String,
    /// The service that the token is for, as the provider knows it
    #[arg(long, value_name = "AUDIENCE")]
    pub audience: Option<String>,
    /// The scopes to ask for, separated by spaces
    #[arg(long, value_name = "SCOPES", default_value = "openid nameservice:write")]
    pub scope: String,
}

/// What a provider says of itself (OpenID Connect Discovery).
#[derive(Deserialize)]
struct Discovered {
    device_authorization_endpoint: Option<String>,
    token_endpoint: String,
}

/// A code for the user to enter.
#[derive(Deserialize)]
struct Device {
    device_code: String,
    user_code: String,
    verification_uri: String,
    verification_uri_complete: Option<String>,
    expires_in: Option<u64>,
    interval: Option<u64>,
}

#[derive(Deserialize)]
struct Granted {
    access_token: String,
    /// Required by the standard, and left out by some.
    token_type: Option<String>,
    expires_in: Option<u64>,
}

#[derive(Default, Deserialize)]
struct Denied {
    #[serde(default)]
    error: String,
    #[serde(default)]
    error_description: String,
}

/// A provider.
struct Provider {
    url: String,
    client: Client,
}

impl Provider {
    fn failed(&self, reason: &str) -> Failure {
        Failure::Provider { url: self.url.clone(), reason: output::clean(reason), is_there: true }
    }

    async fn answer(&self, request: reqwest::RequestBuilder) -> Result<Response, Failure> {
        let sent = request.header("accept", "application/json").timeout(TIMEOUT).send().await;
        sent.map_err(|error| {
            let reason = chain(&error.without_url());
            Failure::Provider { url: self.url.clone(), reason, is_there: false }
        })
    }

    async fn read<T: DeserializeOwned>(&self, answer: Response) -> Result<T, Failure> {
        if !answer.status().is_success() {
            return Err(self.denied(answer.status(), &answer.json().await.unwrap_or_default()));
        }
        answer.json().await.map_err(|error| self.failed(&chain(&error.without_url())))
    }

    fn denied(&self, status: StatusCode, denied: &Denied) -> Failure {
        let words = [denied.error.as_str(), &denied.error_description];
        let words: Vec<&str> = words.into_iter().filter(|text| !text.is_empty()).collect();
        self.failed(&if words.is_empty() { format!("it answered {status}") } else { words.join(": ") })
    }
}

pub(crate) async fn run(args: LoginArgs, output: Output) -> Result<(), Failure> {
    let url = args.issuer.trim_end_matches('/').to_owned();
    let client = http_client(&url).map_err(|error| Failure::Usage(error.to_string()))?;
    let provider = Provider { url, client };
    let discovery = format!("{}/.well-known/openid-configuration", provider.url);
    let discovered: Discovered = provider.read(provider.answer(provider.client.get(discovery)).await?).await?;
    let Some(endpoint) = &discovered.device_authorization_endpoint else {
        return Err(provider.failed("it does not offer device codes"));
    };

    let mut form = vec![("client_id", args.client_id.as_str()), ("scope", &args.scope)];
    form.extend(args.audience.as_deref().map(|audience| ("audience", audience)));
    let device: Device = provider.read(provider.answer(provider.client.post(endpoint).form(&form)).await?).await?;
    let at = device.verification_uri_complete.as_deref().unwrap_or(&device.verification_uri);
    output::note(&output::clean(&format!("Open {at} and confirm the code {}", device.user_code)));

    let lifetime = Duration::from_secs(device.expires_in.unwrap_or(EXPIRES_IN_SECONDS));
    let interval = device.interval.unwrap_or(INTERVAL_SECONDS).max(SHORTEST_INTERVAL_SECONDS);
    let mut interval = Duration::from_secs(interval);
    let begun = Instant::now();
    let form = [
        ("grant_type", "urn:ietf:params:oauth:grant-type:device_code"),
        ("device_code", device.device_code.as_str()),
        ("client_id", args.client_id.as_str()),
    ];
    while begun.elapsed() < lifetime {
        sleep(interval).await;
        let answer = provider.answer(provider.client.post(&discovered.token_endpoint).form(&form)).await;
        // A network that is away for a moment does not make the user begin again.
        let Ok(answer) = answer else { continue };
        if answer.status().is_success() {
            let Granted { access_token, token_type, expires_in } = provider.read(answer).await?;
            if access_token.is_empty() || !access_token.chars().all(|c| c.is_ascii_graphic()) {
                return Err(provider
                    .failed("its answer has an `access_token` that is empty, or has other characters than a token"));
            }
            if let Some(other) = token_type.filter(|kind| !kind.eq_ignore_ascii_case("bearer")) {
                return Err(provider.failed(&format!("its token is of the type {other}: services take Bearer tokens")));
            }
            let answer = json!({"token": access_token, "expires_in": expires_in});
            return output.answer(&answer, || access_token.clone());
        }
        let (status, denied): (_, Denied) = (answer.status(), answer.json().await.unwrap_or_default());
        match denied.error.as_str() {
            "authorization_pending" => {}
            "slow_down" => interval = interval.saturating_add(SLOWER),
            _ if status.is_server_error() => {}
            _ => return Err(provider.denied(status, &denied)),
        }
    }
    Err(provider.failed("the code has expired before it was confirmed"))
}
