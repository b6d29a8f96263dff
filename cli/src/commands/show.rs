//! `show`

use nameservice_api::Record;

use super::Session;
use crate::{
    args::{ConcernArg, ShowArgs},
    client::Request,
    failure::Failure,
    output,
};

pub(super) async fn run(session: &Session, args: ShowArgs) -> Result<(), Failure> {
    let concern = args.concern.map(|concern| match concern {
        ConcernArg::Head => Ok("head"),
        ConcernArg::Index => Ok("index"),
        ConcernArg::Status => Ok("status"),
        ConcernArg::Config => Ok("config"),
        ConcernArg::Meta => Err(Failure::Usage("--concern is head, index, status or config here".into())),
    });
    let request = Request::get("records")
        .at(&args.address)
        .query("min_t", args.min_t)
        .query("min_v", args.min_v)
        .query("concern", concern.transpose()?)
        .query("min_position", args.min_position)
        .query("wait", args.wait);
    let record = session.send::<Record>(request).await?;
    session.output.answer(&record.json, || output::record(&record))
}
