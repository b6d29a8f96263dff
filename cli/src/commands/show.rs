//! `show`

use clap::Args;
use nameservice_api::Record;
use nameservice_model::{Address, ConcernKind};

use crate::{client::Request, failure::Failure, options::concern, output, session::Session, values};

/// `show`
#[derive(Debug, Args)]
pub struct ShowArgs {
    /// The record, NAME:BRANCH; NAME means NAME:main
    pub address: Address,
    /// Require its head (or its index, with --concern index) to have at least this t
    #[arg(long, value_name = "T", conflicts_with = "min_v")]
    pub min_t: Option<i64>,
    /// Require its status or its configuration, as --concern says, to have at least this version
    #[arg(long, value_name = "N", requires = "concern")]
    pub min_v: Option<i64>,
    /// The concern that --min-t or --min-v applies to
    #[arg(long, value_parser = concern())]
    pub concern: Option<ConcernKind>,
    /// Require the service to have reached this position of the change feed
    #[arg(long, value_name = "POSITION")]
    pub min_position: Option<u64>,
    /// How long to wait for it: 10, 10s; at most 20 seconds
    #[arg(long, value_name = "DURATION", value_parser = values::wait)]
    pub wait: Option<u64>,
}

pub(crate) async fn run(session: &Session, args: ShowArgs) -> Result<(), Failure> {
    let request = Request::get("records")
        .at(&args.address)
        .query("min_t", args.min_t)
        .query("min_v", args.min_v)
        .query("concern", args.concern)
        .query("min_position", args.min_position)
        .query("wait", args.wait);
    let record = session.send::<Record>(request).await?;
    session.output.answer(&record.json, || output::record(&record))
}
