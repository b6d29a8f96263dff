//! What only a DynamoDB table has: its rows as they are written and as others left them, and what a request costs.

mod branch;
mod config;
mod create;
mod feed;
mod fluree_rows;
mod graph_source;
mod head;
mod idempotency;
mod index;
mod layout;
mod leases;
mod limits;
mod lists;
mod orphans;
mod protection;
mod purge;
mod recreated;
mod reset;
mod retract;
mod snapshot;
mod status;
mod table;
mod traces;
mod transactions;
mod uncertain;
mod writes;
