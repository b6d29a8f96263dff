//! The OpenAPI document, from the descriptions of the handlers.

use std::collections::BTreeMap;

use serde::Deserialize;
use utoipa::{
    IntoParams, PartialSchema,
    openapi::{
        Components, Content, HeaderBuilder, InfoBuilder, LicenseBuilder, ObjectBuilder, OpenApi, Paths, RefOr,
        Response, Schema, Server, Type,
        schema::SchemaType,
        security::{HttpAuthScheme, HttpBuilder, SecurityScheme},
        tag::TagBuilder,
    },
};

use crate::problem::ProblemDocument;

/// The name of the security scheme, for the `security` of a handler.
pub const BEARER: &str = "bearer";

/// The groups of operations, in the order in which a reader needs them.
const GROUPS: [(&str, &str); 9] = [
    ("records", "What is under an address: read, list, search, create"),
    ("pushes", "Move a head, an index, a status or a config, by compare-and-set"),
    ("branches", "Branches of a ledger"),
    ("leases", "Leases with fencing tokens"),
    ("transactions", "Several writes, all or none"),
    ("lifecycle", "Retract, restore, protect, reset, purge"),
    ("changes", "The change feed"),
    ("fluree", "The wire of Fluree's servers"),
    ("service", "Health, the documentation and the console"),
];

/// The address at the end of a path.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Path)]
#[allow(dead_code, reason = "describes a parameter, is never made")]
pub struct AddressInPath {
    /// The address of the record, `name:branch`; `mydb` means `mydb:main`. May contain `/`, escaped or not.
    #[param(example = "mydb:main")]
    address: String,
}

/// The header that identifies a write, so that it can be repeated.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Header)]
#[allow(dead_code, reason = "describes a parameter, is never made")]
pub struct IdempotencyKey {
    /// Identifies this write: if the request is repeated with the same key, it is not applied twice.
    #[serde(rename = "Idempotency-Key")]
    #[param(max_length = 128, pattern = "^[!-~]+$")]
    idempotency_key: Option<String>,
}

/// The parameter that allows ids which Fluree's engine cannot read, and names of ledgers that it would not create.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[allow(dead_code, reason = "describes a parameter, is never made")]
pub struct AllowForeign {
    /// Store ids that Fluree's engine cannot read, and create ledgers that it would not create, in a place that is shared with
    /// Fluree. Requires `nameservice:admin`.
    #[param(default = false)]
    allow_foreign: Option<bool>,
}

/// Completes the document of a router: title, version, security, and paths as OpenAPI writes them
/// (`{address}` where the router's `{*address}` takes the rest of the path).
pub fn openapi(mut document: OpenApi) -> OpenApi {
    document.info = InfoBuilder::new()
        .title("Nameservice")
        .version(env!("CARGO_PKG_VERSION"))
        .description(Some(
            "Tracks the heads, indexes, states and configurations of ledgers and graph sources.\n\n\
             Rejections are problem details (RFC 9457) whose `type` never changes. Every answer has an `x-request-id`. \
             An address outside a token's `nameservice:addresses` reads like an unknown one; writes to it are a 403.",
        ))
        .license(Some(LicenseBuilder::new().name("Apache-2.0").identifier(Some("Apache-2.0")).build()))
        .build();
    let tags = GROUPS.map(|(name, text)| TagBuilder::new().name(name).description(Some(text)).build());
    document.tags = Some(tags.to_vec());
    document.servers = Some(vec![Server::new("/")]);
    let mut paths = BTreeMap::new();
    for (path, mut item) in std::mem::take(&mut document.paths.paths) {
        let takes_body = [&mut item.put, &mut item.post, &mut item.delete];
        for body in takes_body.into_iter().flatten().filter_map(|operation| operation.request_body.as_mut()) {
            if let RefOr::T(body) = body {
                body.content.values_mut().for_each(|content| {
                    if let RefOr::T(content) = content {
                        without_null(content);
                    }
                });
            }
        }
        let operations = [&mut item.get, &mut item.put, &mut item.post, &mut item.delete];
        for operation in operations.into_iter().flatten().filter(|operation| operation.security.is_some()) {
            for (status, response) in &mut operation.responses.responses {
                if let RefOr::T(response) = response {
                    add_headers(status, response);
                }
            }
        }
        paths.insert(path.replace("{*", "{"), item);
    }
    document.paths = Paths::new();
    document.paths.paths.extend(paths);
    let components = document.components.get_or_insert_with(Components::new);
    components.schemas.insert("Problem".into(), ProblemDocument::schema());
    let scheme = HttpBuilder::new()
        .scheme(HttpAuthScheme::Bearer)
        .bearer_format("JWT")
        .description(Some("Scopes: nameservice:read, nameservice:write, nameservice:admin"));
    components.security_schemes.insert(BEARER.into(), SecurityScheme::Http(scheme.build()).into());
    document
}

/// Describes the headers that answers of every operation have.
fn add_headers(status: &str, response: &mut Response) {
    let (name, kind, description) = match status {
        "200" | "201" | "204" | "304" | "409" | "410" | "422" => (
            "nameservice-position",
            Type::Integer,
            "The position of the change feed that the answer includes, if the \
                service knows it without a further request",
        ),
        "503" => ("Retry-After", Type::Integer, "After how many seconds to try again"),
        _ => return,
    };
    let schema = ObjectBuilder::new().schema_type(SchemaType::Type(kind)).build();
    let header = HeaderBuilder::new().schema(Some(schema)).description(Some(description)).build();
    response.headers.entry(name.to_owned()).or_insert(RefOr::T(header));
}

/// Removes `null` from an optional body: the derive macro describes a body that may be left out as one that may be null.
fn without_null(content: &mut Content) {
    let Some(RefOr::T(Schema::OneOf(one_of))) = &mut content.schema else { return };
    let is_null = |schema: &RefOr<Schema>| matches!(schema, RefOr::T(Schema::Object(object)) if object.schema_type == SchemaType::Type(Type::Null));
    one_of.items.retain(|schema| !is_null(schema));
    if let [only] = one_of.items.as_slice() {
        content.schema = Some(only.clone());
    }
}
