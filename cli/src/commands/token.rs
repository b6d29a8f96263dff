//! `token`: keys and tokens for those without an identity provider.

use std::{
    fs,
    io::{ErrorKind, Write as _},
    path::{Path, PathBuf},
    time::Duration,
};

use base64::{
    Engine as _,
    engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD},
};
use clap::{Args, Subcommand, ValueEnum};
use jiff::Timestamp;
use nameservice_http::auth::{self, Scope};
use nameservice_model::AddressGlob;
use ring::{
    rand::SystemRandom,
    signature::{Ed25519KeyPair, KeyPair as _},
};
use rustls::pki_types::{PrivatePkcs8KeyDer, pem::PemObject as _};
use serde_json::{Value, json};
use uuid::Uuid;

use crate::{
    connections::MAX_TOKEN,
    failure::Failure,
    output::{self, Output},
    values,
};

/// The issuer and the audience of tokens, unless others are named.
const DEFAULT_NAME: &str = "nameservice";

/// `token`
#[derive(Debug, Subcommand)]
pub enum TokenCommand {
    /// Create a private key, and put its public key into a key set for `serve --jwks`
    ///
    /// A key that exists is kept, and the set keeps its other keys: to replace a key, create another one into the same set, mint
    /// tokens with it, and remove the old one from the set once its tokens have expired.
    Keys(TokenKeysArgs),
    /// Print a token, signed with a private key
    Mint(TokenMintArgs),
}

/// `token keys`
#[derive(Debug, Args)]
pub struct TokenKeysArgs {
    /// The file of the private key, in PEM (Ed25519). Whoever can read it can mint tokens
    #[arg(long, value_name = "FILE")]
    pub key: PathBuf,
    /// The file of the key set
    #[arg(long, value_name = "FILE")]
    pub jwks: PathBuf,
}

/// `token mint`
#[derive(Debug, Args)]
pub struct TokenMintArgs {
    /// The file of the private key
    #[arg(long, value_name = "FILE")]
    pub key: PathBuf,
    /// Who the token is for: the service logs this name
    #[arg(long, value_name = "NAME")]
    pub subject: String,
    /// What its holder may do: each includes those before it
    #[arg(long, value_name = "SCOPE", value_enum)]
    pub scope: TokenScope,
    /// Only for records at these addresses, such as `mydb:*`; may be repeated
    #[arg(long, value_name = "PATTERN", value_parser = values::glob)]
    pub address: Vec<AddressGlob>,
    /// How long it is valid: 90d, 12h, or a number of seconds
    #[arg(long, value_name = "DURATION", default_value = "90d", value_parser = values::period)]
    pub ttl: Duration,
    /// Its issuer, as `serve --issuer` requires it
    #[arg(long, value_name = "ISSUER", default_value = DEFAULT_NAME)]
    pub issuer: String,
    /// Its audience, as `serve --audience` requires it
    #[arg(long, value_name = "AUDIENCE", default_value = DEFAULT_NAME)]
    pub audience: String,
}

/// What the holder of a token may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum TokenScope {
    /// Look at records and follow changes
    Read,
    /// Also create, push, retract and restore
    Write,
    /// Also purge, drop, reset and overwrite
    Admin,
}

impl From<TokenScope> for Scope {
    fn from(scope: TokenScope) -> Self {
        match scope {
            TokenScope::Read => Self::Read,
            TokenScope::Write => Self::Write,
            TokenScope::Admin => Self::Admin,
        }
    }
}

/// A private key.
struct Key(Ed25519KeyPair);

impl Key {
    /// Reads a file. `None` if there is none.
    fn read(path: &Path) -> Result<Option<Self>, Failure> {
        let unusable = |reason: &dyn std::fmt::Display| Failure::Usage(format!("{}: {reason}", path.display()));
        let pem = match fs::read(path) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            read => read.map_err(|error| unusable(&error))?,
        };
        let der = PrivatePkcs8KeyDer::from_pem_slice(&pem);
        let der = der.map_err(|_| unusable(&"expected a private key (PKCS #8) in PEM"))?;
        // Other programs write keys without the public half.
        let key = Ed25519KeyPair::from_pkcs8_maybe_unchecked(der.secret_pkcs8_der());
        let key = key.map_err(|error| unusable(&format_args!("expected an Ed25519 key ({error})")))?;
        Ok(Some(Self(key)))
    }

    /// Creates a key, and its file, for its owner only.
    fn create(path: &Path) -> Result<Self, Failure> {
        let failed = |reason: &dyn std::fmt::Display| Failure::Usage(format!("{}: {reason}", path.display()));
        let der = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new());
        let der = der.map_err(|_| failed(&"the system has no random numbers"))?;
        let key = Ed25519KeyPair::from_pkcs8(der.as_ref()).map_err(|error| failed(&error))?;
        let text = STANDARD.encode(der.as_ref());
        let lines: Vec<&str> = text.as_bytes().chunks(64).filter_map(|line| str::from_utf8(line).ok()).collect();
        let pem = format!("-----BEGIN PRIVATE KEY-----\n{}\n-----END PRIVATE KEY-----\n", lines.join("\n"));
        let mut options = fs::OpenOptions::new();
        options.write(true).create_new(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        let written = options.open(path).and_then(|mut file| {
            file.write_all(pem.as_bytes())?;
            file.sync_all()
        });
        written.map_err(|error| failed(&error))?;
        Ok(Self(key))
    }

    /// The public key, as the member `x` of a JSON Web Key.
    fn public(&self) -> String {
        URL_SAFE_NO_PAD.encode(self.0.public_key().as_ref())
    }

    /// The thumbprint of the public key (RFC 7638).
    fn id(&self) -> String {
        let canonical = format!(r#"{{"crv":"Ed25519","kty":"OKP","x":"{}"}}"#, self.public());
        URL_SAFE_NO_PAD.encode(ring::digest::digest(&ring::digest::SHA256, canonical.as_bytes()))
    }

    fn jwk(&self) -> Value {
        json!({"kty": "OKP", "crv": "Ed25519", "x": self.public(), "kid": self.id(), "use": "sig", "alg": "EdDSA"})
    }

    fn sign(&self, claims: &Value) -> String {
        let header = json!({"alg": "EdDSA", "typ": "JWT", "kid": self.id()});
        let part = |json: &Value| URL_SAFE_NO_PAD.encode(json.to_string());
        let signed = format!("{}.{}", part(&header), part(claims));
        let signature = URL_SAFE_NO_PAD.encode(self.0.sign(signed.as_bytes()));
        format!("{signed}.{signature}")
    }
}

pub(crate) fn run(command: TokenCommand, output: Output) -> Result<(), Failure> {
    match command {
        TokenCommand::Keys(args) => keys(&args, output),
        TokenCommand::Mint(args) => mint(&args, output),
    }
}

fn keys(args: &TokenKeysArgs, output: Output) -> Result<(), Failure> {
    // The set is read first: a key that is in no set is of no use.
    let mut set = key_set(&args.jwks)?;
    let (key, created) = match Key::read(&args.key)? {
        Some(key) => (key, false),
        None => (Key::create(&args.key)?, true),
    };
    let added = !set.iter().any(|known| known["kid"] == key.id());
    if added {
        set.push(key.jwk());
        let json = format!("{:#}\n", json!({"keys": set}));
        replace(&args.jwks, &json).map_err(|error| Failure::Usage(format!("{}: {error}", args.jwks.display())))?;
    }
    let answer = json!({"kid": key.id(), "created": created, "added": added, "keys": set.len()});
    output.answer(&answer, || {
        let (key, jwks) = (args.key.display(), args.jwks.display());
        let done = if created { "created the private key" } else { "the private key is" };
        let added = if added { "added its public key to" } else { "its public key is in" };
        format!(
            "{done} {key}; {added} {jwks}\n  nameservice serve … --jwks {jwks} --issuer {DEFAULT_NAME} --audience {DEFAULT_NAME}\n  \
             nameservice token mint --key {key} --subject NAME --scope write"
        )
    })
}

/// Returns the keys of a set; none if its file does not exist.
fn key_set(path: &Path) -> Result<Vec<Value>, Failure> {
    let text = match fs::read_to_string(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        read => read.map_err(|error| Failure::Usage(format!("{}: {error}", path.display())))?,
    };
    let set = serde_json::from_str::<Value>(&text).ok();
    match set.as_ref().and_then(|set| set.get("keys")).and_then(Value::as_array) {
        Some(keys) => Ok(keys.clone()),
        None => Err(Failure::Usage(format!("{} is not a key set (JWKS): it was left as it is", path.display()))),
    }
}

/// Replaces a file as a whole, since a service may read it meanwhile.
fn replace(path: &Path, text: &str) -> std::io::Result<()> {
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut file = tempfile::NamedTempFile::new_in(directory)?;
    file.write_all(text.as_bytes())?;
    file.as_file().sync_all()?;
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt as _;
        // Public keys are public; temporary files are not.
        file.as_file().set_permissions(fs::Permissions::from_mode(0o644))?;
    }
    file.persist(path)?;
    Ok(())
}

fn mint(args: &TokenMintArgs, output: Output) -> Result<(), Failure> {
    let Some(key) = Key::read(&args.key)? else {
        return Err(Failure::Usage(format!(
            "there is no key {}: `nameservice token keys` creates one",
            args.key.display()
        )));
    };
    for (name, text) in [("--subject", &args.subject), ("--issuer", &args.issuer), ("--audience", &args.audience)] {
        if text.trim().is_empty() {
            return Err(Failure::Usage(format!("{name} is empty")));
        }
    }
    let now = Timestamp::now().as_second();
    let expires = i64::try_from(args.ttl.as_secs()).ok().and_then(|ttl| now.checked_add(ttl));
    let expires = expires.ok_or_else(|| Failure::Usage("--ttl is too long".into()))?;
    let mut claims = json!({
        "iss": args.issuer,
        "aud": args.audience,
        "sub": args.subject,
        "scope": Scope::from(args.scope).as_str(),
        "iat": now,
        "exp": expires,
        "jti": Uuid::new_v4().to_string(),
    });
    if !args.address.is_empty() {
        claims["nameservice:addresses"] = args.address.iter().map(AddressGlob::as_str).collect();
    }
    let rejected = |reason: String| Failure::Usage(format!("no service would take this token: {reason}"));
    if let Some(claims) = claims.as_object() {
        auth::check_claims(claims).map_err(rejected)?;
    }
    let token = key.sign(&claims);
    if token.len() > MAX_TOKEN {
        let bytes = token.len();
        let reason = format!(
            "it has {bytes} bytes, and {MAX_TOKEN} fit the headers of a request: give fewer or wider --address"
        );
        return Err(rejected(reason));
    }
    output.answer(&json!({"token": token, "claims": claims}), || output::clean(&token))
}
