//! Branches, retraction and purge: what an administrator does.
//!
//! ```sh
//! cargo run -p nameservice --example admin -- memory:
//! ```

use nameservice::{Address, Call, Dropped, Error, Purged, Rejection, Restored, Retracted};

const COMMIT: &str = "bafybeigdyrzt5sfp7udm7hu76uh7y26nf3efuylqabf3oclgtqy55fbzdi";

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Error> {
    let url = std::env::args().nth(1).unwrap_or_else(|| "memory:".into());
    let ns = nameservice::connect(&url).await?;
    let main: Address = "admin-example".parse()?;
    let dev: Address = "admin-example:dev".parse()?;
    match ns.create_ledger(&main).head(COMMIT, 1).await {
        Ok(_) | Err(Error::Rejected(Rejection::AlreadyExists)) => {}
        Err(error) => return Err(error),
    }
    let branch = ns.create_branch(&dev, &main).await?;
    println!("{} starts at t {}", branch.address, branch.head.map_or(0, |head| head.v));

    let admin = ns.backend();
    // A record that others depend on stays.
    match admin.retract(&Call::fresh(), &main, None).await? {
        Retracted::HasDependents => println!("{main} has dependents: {:?}", admin.dependents(&main).await?),
        other => return Err(other.into()),
    }
    match admin.drop_branch(&Call::fresh(), &dev).await? {
        Dropped::Dropped { parent_branches } => println!("{dev} is gone; {parent_branches} branches are left"),
        other => println!("{dev} stays: {other:?}"),
    }
    match admin.retract(&Call::fresh(), &main, Some("an example")).await? {
        Retracted::Retracted(_) | Retracted::Already(_) => println!("{main} is retracted"),
        other => return Err(other.into()),
    }
    match admin.restore(&Call::fresh(), &main).await? {
        Restored::Restored(_) | Restored::NotRetracted(_) => println!("{main} is live"),
        other => return Err(other.into()),
    }
    match admin.purge(&Call::fresh(), &main).await? {
        Purged::Purged => println!("{main} is deleted"),
        other => println!("{main} stays: {other:?}"),
    }
    Ok(())
}
