//! The concerns as they are stored, each in a file of its own.

mod config;
mod head;
mod index;
mod status;
mod stored;

pub(crate) use self::{
    config::ConfigConcern,
    head::HeadConcern,
    index::{IndexConcern, graphs_attribute},
    status::{StatusConcern, set_status},
    stored::{Concern, as_seen, value_as_seen},
};
