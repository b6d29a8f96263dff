//! What `serve` prints once it listens.

use super::{ServeArgs, Service};
use crate::{
    base_path::BasePath,
    target::{DEFAULT_URL, Opened},
};

const SAMPLE_ID: &str = "bagaybqabciqgzqtsjbrqbffrm4ty533it7ddqf64mij4qin6czev43pzhuhgqky";

/// The greeting: where the service listens, and commands to paste.
pub(super) fn greeting(args: &ServeArgs, service: &Service, opened: &Opened) -> String {
    // The program as it was called, since it need not be on the path.
    let program = quoted(&std::env::args().next().unwrap_or_else(|| "nameservice".into()));
    let url = if service.url() == DEFAULT_URL { String::new() } else { format!(" --url {}", quoted(&service.url())) };
    let token = match (&args.dev_token, &args.jwks) {
        (Some(token), _) => format!("  export NAMESERVICE_TOKEN={}\n", quoted(token)),
        (None, Some(_)) => "  export NAMESERVICE_TOKEN=…  # a token of your issuer\n".to_owned(),
        (None, None) => String::new(),
    };
    let certificate = match args.tls.client_ca.is_some() {
        true => {
            "  export NAMESERVICE_CLIENT_CERT=… NAMESERVICE_CLIENT_KEY=…  # a certificate of your authority, and its key\n"
        }
        false => "",
    };
    let elsewhere = if service.listen().is_unspecified() { " and every other address of this machine" } else { "" };
    // Browsers do not open Unix sockets.
    let pages = if service.listen().is_unix() {
        String::new()
    } else {
        format!("The console is at {0}/console.\nThe API is described at {0}/v1/docs. ", service.url())
    };
    if let Some(reason) = for_proxies(service) {
        return format!(
            "Listening on {}, {}, for a proxy: {reason}.\n\nCtrl-C stops the service.",
            service.url(),
            opened.describe()
        );
    }
    format!(
        "Listening on {}{elsewhere}, {}. Try:\n\n{token}{certificate}  {program} create mydb{url}\n  \
         {program} push head mydb {SAMPLE_ID} 1 --expect-unborn{url}\n  {program} show mydb{url}\n  \
         {program} watch{url}\n\n{pages}Ctrl-C stops the service.",
        service.url(),
        opened.describe(),
    )
}

/// Returns why `--url unix:PATH` does not reach the service on a socket; `None` if it does.
fn for_proxies(service: &Service) -> Option<String> {
    let base = service.base.as_ref().map_or("", BasePath::as_str);
    match (service.listen().is_unix(), service.is_tls) {
        (true, true) => Some("`--url unix:PATH` does not speak TLS".to_owned()),
        (true, false) if !base.is_empty() => Some(format!("`--url unix:PATH` asks nothing below {base}")),
        _ => None,
    }
}

/// Quotes a text for a shell.
fn quoted(text: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | '/' | ':' | '=' | '+');
    match !text.is_empty() && text.chars().all(is_plain) {
        true => text.to_owned(),
        false => format!("'{}'", text.replace('\'', r"'\''")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_quoted_for_the_shell() {
        for (text, expected) in [("abc-1.x", "abc-1.x"), ("a b", "'a b'"), ("it's", r"'it'\''s'"), ("", "''")] {
            assert_eq!(quoted(text), expected);
        }
    }
}
