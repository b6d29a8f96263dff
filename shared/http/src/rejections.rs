//! The rejections of a route, as the OpenAPI document lists them.

use std::collections::BTreeMap;

use utoipa::openapi::{ContentBuilder, Ref, RefOr, Response, ResponseBuilder};

use crate::problem::Kind;

/// The rejections of any route that authenticates its caller and reads the store.
pub const READS: &[Kind] =
    &[Kind::InvalidIdempotencyKey, Kind::Unauthorized, Kind::InsufficientScope, Kind::Internal, Kind::Unavailable];
/// Further rejections of a route that writes.
pub const WRITES: &[Kind] = &[
    Kind::IdempotencyKeyReused,
    Kind::AddressNotCovered,
    Kind::PayloadTooLarge,
    Kind::LimitReached,
    Kind::OutcomeUnknown,
    Kind::Unsupported,
];
/// Further rejections of a route with a body.
pub const TAKES_BODY: &[Kind] = &[Kind::InvalidBody, Kind::RequestTimeout, Kind::UnsupportedMediaType];

/// Declares the `Rejections` of a handler, for its `responses`: the sets it names, and kinds of its own. A crate with
/// several handlers names each: `rejections!(ReadRejections: READS; …)`.
///
/// ```ignore
/// nameservice_http::rejections!(READS WRITES; InvalidAddress UnknownRecord);
/// ```
#[macro_export]
macro_rules! rejections {
    ($($set:ident)*; $($kind:ident)*) => {
        $crate::rejections!(Rejections: $($set)*; $($kind)*);
    };
    ($name:ident: $($set:ident)*; $($kind:ident)*) => {
        struct $name;

        impl ::utoipa::IntoResponses for $name {
            fn responses() -> ::std::collections::BTreeMap<
                ::std::string::String,
                ::utoipa::openapi::RefOr<::utoipa::openapi::Response>,
            > {
                $crate::rejections::responses(&[
                    $($crate::rejections::$set,)*
                    &[$($crate::problem::Kind::$kind),*],
                ])
            }
        }
    };
}

/// Returns one response per status, which lists the problem types with that status.
pub fn responses(sets: &[&[Kind]]) -> BTreeMap<String, RefOr<Response>> {
    let mut by_status = BTreeMap::<u16, Vec<Kind>>::new();
    for kind in sets.iter().copied().flatten() {
        by_status.entry(kind.status()).or_default().push(*kind);
    }
    let problem = || ContentBuilder::new().schema(Some(Ref::from_schema_name("Problem"))).build();
    by_status
        .into_iter()
        .map(|(status, kinds)| {
            let lines: Vec<_> = kinds.iter().map(|kind| format!("`{}`: {}", kind.slug(), kind.title())).collect();
            let response =
                ResponseBuilder::new().description(lines.join("; ")).content("application/problem+json", problem());
            (status.to_string(), RefOr::T(response.build()))
        })
        .collect()
}
