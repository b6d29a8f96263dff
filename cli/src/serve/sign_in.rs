//! The sign-in of the console.

use clap::Args;
use console_get::{InvalidSignIn, SignIn};

use crate::failure::Failure;

/// The client of an OpenID provider that the console is.
#[derive(Debug, Default, Args)]
pub struct SignInArgs {
    /// Let users of the console sign in at --issuer, by OpenID Connect, as this client
    ///
    /// The client is a public one (authorization code with PKCE, no secret), and its redirect URI is the URL of the console:
    /// https://names.example.com/console. The provider must allow requests of that origin (CORS) to its discovery document and its
    /// token endpoint, and its access tokens must be JSON Web Tokens.
    #[arg(long, value_name = "ID", requires = "issuer")]
    pub oidc_client: Option<String>,
    /// The scopes that the console asks for [default: openid nameservice:read nameservice:write]
    #[arg(long, value_name = "SCOPES", requires = "oidc_client")]
    pub oidc_scope: Option<String>,
    /// The resource that the console's tokens are for, if the provider issues tokens for several: sent as `resource` and as
    /// `audience`
    #[arg(long, value_name = "URI", requires = "oidc_client")]
    pub oidc_resource: Option<String>,
    /// The origin of the provider's token endpoint, if it is not that of --issuer
    #[arg(long, value_name = "ORIGIN", requires = "oidc_client")]
    pub oidc_token_origin: Option<String>,
}

impl SignInArgs {
    /// Returns the sign-in at this issuer, if there is one.
    pub(super) fn at(&self, issuer: Option<&str>) -> Result<Option<SignIn>, Failure> {
        let Some(client) = &self.oidc_client else { return Ok(None) };
        // clap requires no option that another one excludes.
        let Some(issuer) = issuer else {
            return Err(Failure::Usage(
                "--oidc-client needs --issuer: users sign in where the tokens come from".into(),
            ));
        };
        self.client(issuer, client).map(Some).map_err(|error| Failure::Usage(error.to_string()))
    }

    fn client(&self, issuer: &str, client: &str) -> Result<SignIn, InvalidSignIn> {
        let mut sign_in = SignIn::new(issuer, client)?;
        if let Some(scope) = &self.oidc_scope {
            sign_in = sign_in.with_scope(scope);
        }
        if let Some(resource) = &self.oidc_resource {
            sign_in = sign_in.with_resource(resource);
        }
        if let Some(origin) = &self.oidc_token_origin {
            sign_in = sign_in.with_token_origin(origin)?;
        }
        Ok(sign_in)
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use crate::args::{Cli, Command};

    fn sign_in(line: &str) -> Result<bool, String> {
        let keys = ["nameservice", "serve", "--jwks", "keys.json", "--audience", "names"];
        let cli = Cli::try_parse_from(keys.into_iter().chain(line.split_whitespace())).map_err(|it| it.to_string())?;
        let Command::Serve(args) = cli.command else { return Err("another command".into()) };
        let sign_in = args.sign_in.at(args.issuer.as_deref()).map_err(|error| error.to_string())?;
        Ok(sign_in.is_some())
    }

    #[test]
    fn users_sign_in_at_the_issuer_of_the_tokens_and_only_where_one_is_named() {
        assert_eq!(sign_in("--issuer https://login.example.com"), Ok(false));
        let client = "--oidc-client console --issuer https://login.example.com";
        assert_eq!(sign_in(client), Ok(true));
        let all = "--oidc-scope openid --oidc-resource urn:names --oidc-token-origin https://token.example.com";
        assert_eq!(sign_in(&format!("{client} {all}")), Ok(true));
        for (line, part) in [
            ("--oidc-client console --any-issuer", "--issuer"),
            ("--oidc-client console --issuer names", "`names` is not the URL of an OpenID provider"),
            ("--oidc-scope openid --issuer https://login.example.com", "--oidc-client"),
            (&format!("{client} --oidc-token-origin https://a/token"), "`https://a/token` is not an origin"),
        ] {
            let rejected = sign_in(line).unwrap_err();
            assert!(rejected.contains(part), "{line}: {rejected}");
        }
    }
}
