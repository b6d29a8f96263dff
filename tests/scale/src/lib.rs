//! What the change feed on DynamoDB can carry: computed from AWS's limits, and simulated under them.
//!
//! Nothing here calls AWS or the service. [`simulation`] is a discrete-event model of writers, the table's stream, its
//! consumers and the feed's table, whose limits are those that AWS documents ([`parameters`] names the sources, and says what is
//! assumed). [`designs`] are the forms of the feed that are compared. [`report`] renders the figures of docs/scale.md, so that the page
//! and the program cannot differ.

pub mod ceilings;
pub mod designs;
pub mod dynamo;
pub mod outcome;
pub mod page;
pub mod parameters;
pub mod report;
pub mod simulation;
mod stream;
