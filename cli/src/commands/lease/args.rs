//! The arguments of `lease`, and the claim of a push.

use std::{ffi::OsString, time::Duration};

use clap::{Args, Subcommand};
use nameservice_api::leases::Claim;
use nameservice_model::{Address, LeaseName};

use crate::{
    commands::leases::LeaseListArgs,
    failure::Failure,
    options::{AddressArgs, KeyArgs},
    values,
};

pub(super) const ADDRESS: &str = "NAMESERVICE_ADDRESS";
pub(super) const NAME: &str = "NAMESERVICE_LEASE_NAME";
pub(super) const HOLDER: &str = "NAMESERVICE_LEASE_HOLDER";
pub(super) const TOKEN: &str = "NAMESERVICE_LEASE_TOKEN";

/// `lease`
#[derive(Debug, Subcommand)]
pub enum LeaseCommand {
    /// Acquire a lease that is free, expired, or already held under the same holder name
    Acquire(LeaseAcquireArgs),
    /// Extend a lease
    Refresh(LeaseRefreshArgs),
    /// Release a lease
    Release(LeaseReleaseArgs),
    /// Show who holds a lease of a record
    Show(AddressArgs),
    /// Show every lease that is held, by holder
    ///
    /// The remaining time of a lease is by this machine's clock; the service's clock decides whether it has expired.
    List(LeaseListArgs),
    /// Run a command under a lease
    ///
    /// Takes the lease, refreshes it while the command runs, and releases it. The command finds
    /// NAMESERVICE_ADDRESS, NAMESERVICE_LEASE_NAME, NAMESERVICE_LEASE_HOLDER and NAMESERVICE_LEASE_TOKEN in its
    /// environment, from which push, status and config read the lease that they claim. It runs in a process group of
    /// its own, receives the signals that this process receives, and is stopped once the lease is lost or has expired:
    /// by SIGTERM, and 5 seconds later by SIGKILL.
    ///
    /// Exits with the command's code, or 128 plus the signal that ended it; with 3 if another holder has the lease or
    /// it was lost.
    Run(LeaseRunArgs),
}

/// `lease acquire`
#[derive(Debug, Args)]
pub struct LeaseAcquireArgs {
    /// The record
    pub address: Address,
    /// The lease and its holder.
    #[command(flatten)]
    pub holder: HolderArgs,
    /// The duration.
    #[command(flatten)]
    pub term: TermArgs,
    /// How long to wait for a lease that another holder has: 10, 10s; at most 20 seconds
    #[arg(long, value_name = "DURATION", value_parser = values::wait)]
    pub wait: Option<u64>,
    /// The key with which it can be repeated.
    #[command(flatten)]
    pub key: KeyArgs,
}

/// `lease refresh`
#[derive(Debug, Args)]
pub struct LeaseRefreshArgs {
    /// The record
    pub address: Address,
    /// The lease and its holder.
    #[command(flatten)]
    pub holder: HolderArgs,
    /// The token that it was taken with
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(i64).range(1..))]
    pub lease_token: i64,
    /// The duration.
    #[command(flatten)]
    pub term: TermArgs,
    /// The key with which it can be repeated.
    #[command(flatten)]
    pub key: KeyArgs,
}

/// `lease release`
#[derive(Debug, Args)]
pub struct LeaseReleaseArgs {
    /// The record
    pub address: Address,
    /// The lease and its holder.
    #[command(flatten)]
    pub holder: HolderArgs,
    /// The token that it was taken with
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(i64).range(1..))]
    pub lease_token: i64,
    /// The key with which it can be repeated.
    #[command(flatten)]
    pub key: KeyArgs,
}

/// `lease run`
#[derive(Debug, Args)]
pub struct LeaseRunArgs {
    /// The lease and its holder.
    #[command(flatten)]
    pub holder: HolderArgs,
    /// The duration.
    #[command(flatten)]
    pub term: TermArgs,
    /// Wait until the lease is free, or for this long: 20, 20s, 5m
    #[arg(long, value_name = "DURATION", num_args = 0..=1)]
    pub wait: Option<Option<String>>,
    /// If the command fails, set this state before the lease is released. Exit code 9, of a push that is stale, is no failure
    #[arg(long, value_name = "STATE")]
    pub on_failure: Option<String>,
    /// The record
    #[arg(required_unless_present = "wait")]
    pub address: Option<Address>,
    /// The command and its arguments
    #[arg(last = true, required = true, value_name = "COMMAND")]
    pub command: Vec<OsString>,
}

/// How long to wait for a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wait {
    /// Not at all.
    Not,
    /// Until it is free.
    Forever,
    /// At most this long.
    For(Duration),
}

impl LeaseRunArgs {
    /// Returns the record, and how long to wait. The text after `--wait` is a duration, or already the record.
    pub(super) fn record_and_wait(&self) -> Result<(Address, Wait), Failure> {
        let missing = || Failure::Usage("which record? lease run … ADDRESS -- COMMAND".into());
        let named = || self.address.clone().ok_or_else(missing);
        match &self.wait {
            None => Ok((named()?, Wait::Not)),
            Some(None) => Ok((named()?, Wait::Forever)),
            Some(Some(text)) => match (values::period(text), &self.address) {
                (Ok(limit), Some(address)) => Ok((address.clone(), Wait::For(limit))),
                (Err(reason), Some(_)) => Err(Failure::Usage(format!("--wait: {reason}"))),
                (Err(_), None) => {
                    let address = Address::parse(text).map_err(|error| Failure::Usage(error.to_string()))?;
                    Ok((address, Wait::Forever))
                }
                (Ok(_), None) => Err(missing()),
            },
        }
    }
}

/// The lease and its holder.
#[derive(Debug, Args)]
pub struct HolderArgs {
    /// The name of the lease: index_lock, reindex_lock, maintenance_lock, migration_lock, or one of your own (a-z, 0-9, _)
    #[arg(long, value_parser = values::lease_name)]
    pub name: LeaseName,
    /// The name of the holder. A holder of the same name takes the lease over: give each process its own
    #[arg(long)]
    pub holder: String,
}

/// The terms of a lease.
#[derive(Debug, Args)]
pub struct TermArgs {
    /// How long it lasts without a refresh: 5m, 90s, or a number of seconds
    #[arg(long, value_name = "DURATION", default_value = "5m", value_parser = values::ttl)]
    pub ttl: u32,
    /// The t that the holder works towards
    #[arg(long, value_name = "T", value_parser = clap::value_parser!(i64).range(0..))]
    pub target_t: Option<i64>,
}

/// The lease that a push is made under: the push is rejected once another holder has taken the lease over.
///
/// Within `lease run`, pushes to its record are made under its lease by default.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Under a lease [default: that of `lease run`, on its record]")]
pub struct ClaimArgs {
    /// Push only while this lease is held
    #[arg(long, value_name = "NAME", value_parser = values::lease_name, requires_all = ["lease_holder", "lease_token"])]
    pub lease_name: Option<LeaseName>,
    /// The holder of the lease
    #[arg(long, value_name = "HOLDER", requires_all = ["lease_name", "lease_token"])]
    pub lease_holder: Option<String>,
    /// The token of the lease
    #[arg(long, value_name = "N", requires_all = ["lease_name", "lease_holder"])]
    pub lease_token: Option<i64>,
}

impl ClaimArgs {
    /// Returns the claim of a push to a record: that of the command line, or that of the surrounding `lease run` if it has
    /// leased this record.
    pub(in crate::commands) fn claim(self, address: &Address) -> Result<Option<Claim>, Failure> {
        self.claim_within(address, |name| std::env::var(name).ok().filter(|value| !value.is_empty()))
    }

    fn claim_within(
        self,
        address: &Address,
        variable: impl Fn(&str) -> Option<String>,
    ) -> Result<Option<Claim>, Failure> {
        let Self { lease_name, lease_holder, lease_token } = self;
        if let (Some(name), Some(holder), Some(token)) = (lease_name, lease_holder, lease_token) {
            return Ok(Some(Claim { name, holder, token }));
        }
        let (Some(leased), Some(name), Some(holder), Some(token)) =
            (variable(ADDRESS), variable(NAME), variable(HOLDER), variable(TOKEN))
        else {
            return Ok(None);
        };
        if Address::parse(&leased).ok().as_ref() != Some(address) {
            return Ok(None);
        }
        let unusable = |name: &str, reason: &str| Failure::Usage(format!("{name} cannot be used: {reason}"));
        let name = values::lease_name(&name).map_err(|reason| unusable(NAME, &reason))?;
        let token = token.parse().map_err(|_| unusable(TOKEN, "it is not a number"))?;
        Ok(Some(Claim { name, holder, token }))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    const SET: [(&str, &str); 4] = [(ADDRESS, "mydb"), (NAME, "index_lock"), (HOLDER, "h"), (TOKEN, "7")];

    fn within(args: ClaimArgs, address: &str, set: &[(&str, &str)]) -> Result<Option<Value>, Failure> {
        let variable = |name: &str| set.iter().find(|(set, _)| *set == name).map(|(_, value)| (*value).to_owned());
        Ok(args.claim_within(&Address::parse(address).unwrap(), variable)?.map(|claim| json!(claim)))
    }

    #[test]
    fn a_claim_is_named_or_comes_from_the_lease_around_it_and_only_for_its_record() {
        let around = json!({"name": "index_lock", "holder": "h", "token": 7});
        assert_eq!(within(ClaimArgs::default(), "mydb:main", &SET).unwrap(), Some(around));
        assert_eq!(within(ClaimArgs::default(), "mydb:dev", &SET).unwrap(), None);
        assert_eq!(within(ClaimArgs::default(), "mydb", &SET[1..]).unwrap(), None);
        let named = ClaimArgs {
            lease_name: Some(LeaseName::REINDEX),
            lease_holder: Some("other".into()),
            lease_token: Some(9),
        };
        let claim = json!({"name": "reindex_lock", "holder": "other", "token": 9});
        assert_eq!(within(named, "mydb", &SET).unwrap(), Some(claim));
    }

    #[test]
    fn a_lease_around_it_that_cannot_be_read_is_not_ignored() {
        for (name, value) in [(NAME, "a lock"), (TOKEN, "x")] {
            let mut set = SET;
            set.iter_mut().filter(|(set, _)| *set == name).for_each(|(_, set)| *set = value);
            assert!(matches!(within(ClaimArgs::default(), "mydb", &set), Err(Failure::Usage(_))), "{name}");
        }
    }
}
