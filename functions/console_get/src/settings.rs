//! What the console of a service shows besides the API: where its users sign in, and whether there is a GraphiQL.

use std::sync::Arc;

use axum::http::Uri;
use serde::{Deserialize, Serialize};

const DEFAULT_SCOPE: &str = "openid nameservice:read nameservice:write";

/// The settings of a console. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Settings(Arc<Shown>);

/// What the page reads from `console/settings.json`.
#[derive(Debug, Default, Serialize)]
struct Shown {
    /// Whether the service has a GraphiQL at `/graphiql`.
    graphiql: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    sign_in: Option<SignIn>,
    /// The origins that the page sends requests to, separated by spaces.
    #[serde(skip)]
    origins: Option<String>,
}

/// The client of an OpenID provider for the authorization code flow with PKCE, without a secret.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SignIn {
    issuer: String,
    client_id: String,
    #[serde(default = "default_scope")]
    scope: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    resource: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    token_origin: Option<String>,
}

/// The reason why nobody could sign in.
#[derive(Debug, thiserror::Error)]
pub enum InvalidSignIn {
    /// It is not a URL that a browser can be sent to.
    #[error("`{0}` is not the URL of an OpenID provider, such as https://login.example.com")]
    Url(String),
    /// It is not the origin of one.
    #[error("`{0}` is not an origin, such as https://login.example.com")]
    Origin(String),
    /// It is not the JSON of a sign-in.
    #[error("the sign-in of the console is not the JSON that describes one")]
    Json(#[from] serde_json::Error),
}

impl Settings {
    /// Returns the settings of a service whose callers sign in there.
    pub fn new(sign_in: Option<SignIn>, graphiql: bool) -> Self {
        let origins = sign_in.as_ref().map(SignIn::origins);
        Self(Arc::new(Shown { graphiql, sign_in, origins }))
    }

    /// Returns the origins besides its own that the page sends requests to.
    pub(crate) fn origins(&self) -> Option<&str> {
        self.0.origins.as_deref()
    }

    /// Returns the settings as the page reads them.
    pub(crate) fn document(&self) -> String {
        serde_json::to_string(&*self.0).unwrap_or_else(|_| "{}".into())
    }
}

impl SignIn {
    /// Returns the sign-in of this client at an issuer, whose discovery document names its endpoints.
    ///
    /// # Errors
    ///
    /// The issuer is not an HTTP URL.
    pub fn new(issuer: &str, client_id: &str) -> Result<Self, InvalidSignIn> {
        let (issuer, client_id) = (issuer.to_owned(), client_id.to_owned());
        Self { issuer, client_id, scope: default_scope(), resource: None, token_origin: None }.checked()
    }

    /// Returns the sign-in that this JSON describes.
    ///
    /// # Errors
    ///
    /// It describes something else.
    pub fn from_json(text: &str) -> Result<Self, InvalidSignIn> {
        serde_json::from_str::<Self>(text)?.checked()
    }

    /// Sets the scopes that are asked for, separated by spaces.
    #[must_use]
    pub fn with_scope(mut self, scope: &str) -> Self {
        scope.clone_into(&mut self.scope);
        self
    }

    /// Sets the resource that the token is for (RFC 8707), for providers that issue tokens for several.
    #[must_use]
    pub fn with_resource(mut self, resource: &str) -> Self {
        self.resource = Some(resource.to_owned());
        self
    }

    /// Sets the origin of the token endpoint, if it is not that of the issuer.
    ///
    /// # Errors
    ///
    /// It is not an origin.
    pub fn with_token_origin(mut self, origin: &str) -> Result<Self, InvalidSignIn> {
        self.token_origin = Some(origin.to_owned());
        self.checked()
    }

    fn checked(self) -> Result<Self, InvalidSignIn> {
        origin(&self.issuer).ok_or_else(|| InvalidSignIn::Url(self.issuer.clone()))?;
        match &self.token_origin {
            Some(other) if origin(other).as_ref() != Some(other) => Err(InvalidSignIn::Origin(other.clone())),
            _ => Ok(self),
        }
    }

    /// Returns the origins of the provider for the policy of the page.
    fn origins(&self) -> String {
        [origin(&self.issuer), self.token_origin.clone()].into_iter().flatten().collect::<Vec<_>>().join(" ")
    }
}

fn default_scope() -> String {
    DEFAULT_SCOPE.to_owned()
}

/// Returns the origin of an HTTP URL. Its characters have no meaning in a policy.
fn origin(url: &str) -> Option<String> {
    let uri: Uri = url.parse().ok()?;
    let scheme = uri.scheme_str().filter(|scheme| matches!(*scheme, "http" | "https"))?;
    let authority = uri.authority()?.as_str();
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | ':' | '[' | ']');
    authority.chars().all(is_plain).then(|| format!("{scheme}://{authority}"))
}
