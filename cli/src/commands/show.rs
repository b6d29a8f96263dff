//! `show`

use nameservice_model::Address;

use super::Session;
use crate::{failure::Failure, output};

pub(super) async fn run(session: &Session, address: &Address) -> Result<(), Failure> {
    let record = session.record(address, None).await?;
    session.output.answer(&record.json, || output::record(&record))
}
