//! GraphQL over the nameservice: `/graphql`, with queries, mutations and subscriptions, and GraphiQL at `/graphiql`.
//!
//! The same callers may do the same as over `/v1`: addresses that a token does not cover read like unknown ones, secrets are
//! shown to those who may write a record. What the service rejects is an error with the problem's name as `code`;
//! conflicts and their like are members of the unions that mutations return.

mod context;
mod graphiql;
mod http;
mod mutation;
mod objects;
mod query;
mod scalars;
mod subscription;

use async_graphql::Schema;

pub use context::Writes;
pub use http::router;

use crate::{mutation::Mutation, query::Query, subscription::Changes};

/// How deep a document may be nested.
const MAX_DEPTH: usize = 16;
/// How many fields an answer may have: a connection counts its node once for each entry that it may have.
const MAX_COMPLEXITY: usize = 20_000;

pub(crate) type NameserviceSchema = Schema<Query, Mutation, Changes>;

/// The schema. What a request draws on comes with the request.
pub(crate) fn schema() -> NameserviceSchema {
    Schema::build(Query, Mutation, Changes).limit_depth(MAX_DEPTH).limit_complexity(MAX_COMPLEXITY).finish()
}

/// Returns the schema as text, in the language of GraphQL.
pub fn sdl() -> String {
    schema().sdl()
}
