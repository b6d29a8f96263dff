//! GraphQL over the nameservice: `/graphql`, with queries, mutations and subscriptions, and GraphiQL at `/graphiql`.
//!
//! Callers have the same permissions as over `/v1`: addresses that a token does not cover read like unknown ones, and secrets
//! are shown to those who may write a record. A rejection is an error with the problem's name as `code`; conflicts and similar
//! outcomes are members of the unions that mutations return.

mod budget;
mod context;
mod errors;
mod graphiql;
mod http;
mod limits;
mod mutation;
mod objects;
mod pages;
mod query;
mod scalars;
mod socket;
mod subscription;
mod views;

use async_graphql::Schema;

pub use context::Writes;
pub use http::router;

use crate::{
    mutation::Mutation,
    query::{Queries, Query},
    subscription::Changes,
    views::Views,
};

/// How deep a document may be nested.
const MAX_DEPTH: usize = 16;
/// How many fields an answer may have. A connection counts its node once for each entry that it may have; a search counts as
/// 1,000 fields, a read of changes as 500, a list as 100, a record as 10.
const MAX_COMPLEXITY: usize = 20_000;
/// How many directives a field may have.
const MAX_DIRECTIVES: usize = 8;

pub(crate) type NameserviceSchema = Schema<Query, Mutation, Changes>;

/// The schema. The data of its resolvers comes with each request.
pub(crate) fn schema() -> NameserviceSchema {
    let builder =
        Schema::build(Query(Queries, Views), Mutation, Changes).limit_depth(MAX_DEPTH).limit_complexity(MAX_COMPLEXITY);
    builder.limit_directives(MAX_DIRECTIVES).finish()
}

/// Returns the schema as text, in GraphQL's schema definition language.
pub fn sdl() -> String {
    schema().sdl()
}
