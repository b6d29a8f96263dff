//! `lease`

use std::{
    collections::BTreeMap,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use http::Method;
use nameservice_model::{Address, LeaseName, is_lease_member};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::Session;
use crate::{
    args::{
        ClaimArgs, HolderArgs, KeyArgs, LeaseAcquireArgs, LeaseCommand, LeaseRefreshArgs, LeaseReleaseArgs,
        LeaseRunArgs, TermArgs,
    },
    child::{self, Running, Signals},
    client::Request,
    failure::Failure,
    output, values,
};

const ADDRESS: &str = "NAMESERVICE_ADDRESS";
const NAME: &str = "NAMESERVICE_LEASE_NAME";
const HOLDER: &str = "NAMESERVICE_LEASE_HOLDER";
const TOKEN: &str = "NAMESERVICE_LEASE_TOKEN";

/// How long a command that was told to end may take.
const GRACE: Duration = Duration::from_secs(5);
/// How often a lease that somebody else holds is asked for.
const ASK_AGAIN: Duration = Duration::from_millis(800);
/// How long after its end, so that clocks which nearly agree do not miss it.
const MARGIN: Duration = Duration::from_millis(20);
/// The longest pause after a refresh that was not answered.
const REFRESH_AGAIN: Duration = Duration::from_secs(1);
/// How long the end waits for the lease to be given back: it ends by itself, too.
const GIVE_BACK: Duration = Duration::from_secs(5);

pub(super) async fn run(session: &Session, command: LeaseCommand) -> Result<(), Failure> {
    match command {
        LeaseCommand::Acquire(LeaseAcquireArgs { address, holder, term, key }) => {
            let held = session.send(take(&address, &holder, &term, None, &key)).await?;
            granted(session, &address, &held)
        }
        LeaseCommand::Refresh(LeaseRefreshArgs { address, holder, lease_token, term, key }) => {
            let held = session.send(take(&address, &holder, &term, Some(lease_token), &key)).await?;
            granted(session, &address, &held)
        }
        LeaseCommand::Release(LeaseReleaseArgs { address, holder, lease_token, key }) => {
            let answer = session.send(give_back(&address, &holder, lease_token, &key)).await?;
            if answer.is_null() && session.output.is_json() {
                // The service answers without a body.
                return Ok(());
            }
            session.output.answer(&answer, || format!("{} of {address} is free", holder.name.as_str()))
        }
        LeaseCommand::Show(args) => show(session, &args.address).await,
        LeaseCommand::Run(args) => run_under(session, args).await,
    }
}

fn take(address: &Address, holder: &HolderArgs, term: &TermArgs, token: Option<i64>, key: &KeyArgs) -> Request {
    let mut body = json!({"name": holder.name.as_str(), "holder": holder.holder, "ttl_seconds": term.ttl});
    for (member, number) in [("target_t", term.target_t), ("token", token)] {
        if let Some(number) = number {
            body[member] = number.into();
        }
    }
    Request::write(Method::PUT, "leases", key).at(address).body(body)
}

fn give_back(address: &Address, holder: &HolderArgs, token: i64, key: &KeyArgs) -> Request {
    Request::write(Method::DELETE, "leases", key)
        .at(address)
        .query("name", Some(holder.name.as_str()))
        .query("holder", Some(&holder.holder))
        .query("token", Some(token))
}

fn granted(session: &Session, address: &Address, held: &Value) -> Result<(), Failure> {
    session.output.answer(held, || {
        format!("{address}: {}, token {}", output::lease(&held["lease"]), output::text(&held["token"]))
    })
}

async fn show(session: &Session, address: &Address) -> Result<(), Failure> {
    let record = session.record(address, Some("status")).await?;
    let payload = &record["status"]["payload"];
    let lease = payload.as_object().into_iter().flatten().find_map(|(name, lease)| {
        let mut lease = Some(lease).filter(|lease| lease.is_object() && is_lease_member(name, lease))?.clone();
        lease["name"] = name.as_str().into();
        Some(lease)
    });
    let answer = json!({"lease": lease});
    // Whether it has run out is for the service's clock to say.
    session.output.answer(&answer, || match &answer["lease"] {
        Value::Null => format!("{address}: nobody holds a lease"),
        lease => format!("{address}: {}", output::lease(lease)),
    })
}

impl ClaimArgs {
    /// The claim that a push to a record makes: as the command line says, or that of the `lease run` around it where
    /// the record is the one that it has leased.
    pub(super) fn claim(self, address: &Address) -> Result<Option<Value>, Failure> {
        self.claim_within(address, |name| std::env::var(name).ok().filter(|value| !value.is_empty()))
    }

    fn claim_within(
        self,
        address: &Address,
        variable: impl Fn(&str) -> Option<String>,
    ) -> Result<Option<Value>, Failure> {
        let Self { lease_name, lease_holder, lease_token } = self;
        if let (Some(name), Some(holder), Some(token)) = (lease_name, lease_holder, lease_token) {
            return Ok(Some(claim(&name, &holder, token)));
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
        Ok(Some(claim(&name, &holder, token)))
    }
}

fn claim(name: &LeaseName, holder: &str, token: i64) -> Value {
    json!({"name": name.as_str(), "holder": holder, "token": token})
}

/// A lease that this process holds.
struct Held {
    token: i64,
    /// By this process's clock, which runs on while the process is stopped. Counted from before the request was sent:
    /// the service counts from later on.
    runs_out: Instant,
}

/// How the command has ended, or why it must.
enum End {
    Exited(std::process::ExitStatus),
    /// The service says that the lease is not this process's any more.
    Lost(String),
    /// No refresh has arrived in time.
    RanOut,
}

async fn run_under(session: &Session, args: LeaseRunArgs) -> Result<(), Failure> {
    let LeaseRunArgs { holder, term, wait, address, command } = args;
    // From here on: a signal between the lease and the command must not leave the lease behind.
    let mut signals = Signals::listen().map_err(Failure::Watch)?;
    let mut held = acquire(session, &address, &holder, &term, wait, &mut signals).await?;
    let environment = BTreeMap::from([
        (ADDRESS, address.to_string()),
        (NAME, holder.name.as_str().to_owned()),
        (HOLDER, holder.holder.clone()),
        (TOKEN, held.token.to_string()),
    ]);
    let mut running = match Running::start(&command, environment) {
        Ok(running) => running,
        Err(source) => {
            release(session, &address, &holder, held.token).await;
            let program = command.first().map(|program| program.to_string_lossy().into_owned()).unwrap_or_default();
            return Err(Failure::Start { program, source });
        }
    };
    let lost = |reason: String| Failure::LeaseLost { address: address.to_string(), reason };
    match watch(session, &address, &holder, &term, &mut held, &mut running, &mut signals).await? {
        End::Exited(status) => {
            if let Some(reason) = release(session, &address, &holder, held.token).await {
                return Err(lost(reason));
            }
            match child::exit_code(status) {
                0 => Ok(()),
                code => Err(Failure::Ended(code)),
            }
        }
        End::Lost(reason) => {
            running.stop(GRACE).await.map_err(Failure::Watch)?;
            Err(lost(reason))
        }
        End::RanOut => {
            running.stop(GRACE).await.map_err(Failure::Watch)?;
            // It may still be the current one: others need not wait for it then.
            release(session, &address, &holder, held.token).await;
            Err(lost("it has run out before it could be refreshed".into()))
        }
    }
}

async fn acquire(
    session: &Session,
    address: &Address,
    holder: &HolderArgs,
    term: &TermArgs,
    wait: bool,
    signals: &mut Signals,
) -> Result<Held, Failure> {
    let mut told = false;
    loop {
        let asked = Instant::now();
        let again = match session.send(take(address, holder, term, None, &KeyArgs::default())).await {
            Ok(answer) => {
                let token = answer["token"].as_i64().ok_or_else(|| Failure::BadAnswer("it has no token".into()))?;
                return Ok(Held { token, runs_out: asked + ttl(term) });
            }
            Err(Failure::Refused(problem)) if wait && problem.type_uri.ends_with("/lease-held") => {
                if !told {
                    output::note(&format!("waiting: {}", problem.detail));
                    told = true;
                }
                ask_again(&problem.members)
            }
            Err(failure) => return Err(failure),
        };
        tokio::select! {
            () = sleep(again) => {}
            signal = signals.next() => return Err(Failure::Ended(signal.exit_code())),
        }
    }
}

/// When to ask again for a lease that is held: soon, and sooner where it ends before, as far as the two clocks agree.
fn ask_again(refusal: &serde_json::Map<String, Value>) -> Duration {
    let expires = refusal.get("lease").and_then(|lease| lease["expires_at"].as_u64()).unwrap_or_default();
    let ends = UNIX_EPOCH + Duration::from_secs(expires) + MARGIN;
    ends.duration_since(SystemTime::now()).map_or(ASK_AGAIN, |left| left.clamp(MARGIN, ASK_AGAIN))
}

fn ttl(term: &TermArgs) -> Duration {
    Duration::from_secs(term.ttl.into())
}

/// Refreshes the lease while the command runs: until either ends.
async fn watch(
    session: &Session,
    address: &Address,
    holder: &HolderArgs,
    term: &TermArgs,
    held: &mut Held,
    running: &mut Running,
    signals: &mut Signals,
) -> Result<End, Failure> {
    let interval = ttl(term) / 3;
    let again = (interval / 2).min(REFRESH_AGAIN);
    let mut due = held.runs_out - ttl(term) + interval;
    let token = held.token;
    // The `t` was told when the lease was taken, and stays.
    let term = TermArgs { ttl: term.ttl, target_t: None };
    let mut told = false;
    loop {
        let at = due;
        let refresh = async {
            sleep_until(at).await;
            let asked = Instant::now();
            (asked, session.send(take(address, holder, &term, Some(token), &KeyArgs::default())).await)
        };
        tokio::pin!(refresh);
        let (asked, answer) = loop {
            tokio::select! {
                biased;
                status = running.wait() => return status.map(End::Exited).map_err(Failure::Watch),
                // Before the refresh: a process that was stopped may find both times past.
                () = sleep_until(held.runs_out) => return Ok(End::RanOut),
                signal = signals.next() => running.pass(signal),
                answered = &mut refresh => break answered,
            }
        };
        match answer {
            Ok(_) => {
                held.runs_out = asked + ttl(&term);
                due = asked + interval;
                told = false;
            }
            Err(failure) if takes_away(&failure) => return Ok(End::Lost(failure.to_string())),
            Err(failure) => {
                if !told {
                    output::note(&format!(
                        "the lease of {address} is not refreshed: {}",
                        nameservice_model::chain(&failure)
                    ));
                    told = true;
                }
                due = Instant::now() + again;
            }
        }
    }
}

/// Whether the service has said that the lease is gone: it is another one's, or its record is retracted or purged.
fn takes_away(failure: &Failure) -> bool {
    failure.problem().is_some_and(|problem| {
        ["/lease-lost", "/retracted", "/unknown-record"].iter().any(|kind| problem.type_uri.ends_with(kind))
    })
}

/// Gives the lease back. If it was another one's by then, says so.
async fn release(session: &Session, address: &Address, holder: &HolderArgs, token: i64) -> Option<String> {
    let request = give_back(address, holder, token, &KeyArgs::default());
    let failure = match timeout(GIVE_BACK, session.send(request)).await {
        Ok(Ok(_)) => return None,
        Ok(Err(failure)) if takes_away(&failure) => return Some(failure.to_string()),
        Ok(Err(failure)) => nameservice_model::chain(&failure),
        Err(_) => "no answer".into(),
    };
    output::note(&format!("the lease of {address} was not given back, and ends by itself: {failure}"));
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    const SET: [(&str, &str); 4] = [(ADDRESS, "mydb"), (NAME, "index_lock"), (HOLDER, "h"), (TOKEN, "7")];

    fn within(args: ClaimArgs, address: &str, set: &[(&str, &str)]) -> Result<Option<Value>, Failure> {
        let variable = |name: &str| set.iter().find(|(set, _)| *set == name).map(|(_, value)| (*value).to_owned());
        args.claim_within(&Address::parse(address).unwrap(), variable)
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
