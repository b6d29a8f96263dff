//! `lease`

mod args;

use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use http::Method;
use nameservice::{LeaseKeeper, LeaseLost};
use nameservice_api::{
    ProblemKind,
    leases::{Held, Lease, Wanted},
};
use nameservice_client::{ChangeEvent, ChangeFilter, Client};
use nameservice_model::{
    Address, AddressGlob, Call, ChangeKind, ChangePayload, ChangedPart, ConcernKind, Error as BackendError, LeaseClaim,
    LeaseRequest, NewStatus, Object, PushOutcome, Released, Status, StatusPayload, StatusPublisher as _, StatusPush,
    chain, is_lease_member,
};
use serde::Deserialize as _;
use serde_json::{Value, json};
use tokio::{
    sync::Notify,
    time::{Instant, sleep, timeout},
};

use super::leases::{self, lease_of};
use crate::{
    child::{self, Running, Signal, Signals},
    client::{Request, write},
    exit::Exit,
    failure::Failure,
    options::KeyArgs,
    output,
    session::Session,
};

use args::{ADDRESS, HOLDER, NAME, TOKEN, Wait};
pub use args::{
    ClaimArgs, HolderArgs, LeaseAcquireArgs, LeaseCommand, LeaseRefreshArgs, LeaseReleaseArgs, LeaseRunArgs, TermArgs,
};

/// How long a command may take to end.
const GRACE: Duration = Duration::from_secs(5);
/// How often a lease that another holder has is requested.
const ASK_AGAIN: Duration = Duration::from_millis(800);
/// How long after its expiry it is requested, so that small clock differences do not matter.
const MARGIN: Duration = Duration::from_millis(20);
/// How long the program waits for the release at its end: the lease expires anyway.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(5);
/// After this time the timers of a process that was continued have noticed what has passed.
const CONTINUED: Duration = Duration::from_millis(20);
/// How long a signal waits for the answer to a request for a lease.
const LAST_ANSWER: Duration = Duration::from_secs(1);
/// How many times setting a status is attempted if others change it meanwhile.
const MAX_STATUS_PUSHES: usize = 5;

pub(crate) async fn run(session: &Session, command: LeaseCommand) -> Result<(), Failure> {
    match command {
        LeaseCommand::Acquire(LeaseAcquireArgs { address, holder, term, wait, key }) => {
            let request = request(&holder, &term)?;
            let wanted = ask(&address, &Wanted::new(&request, None), &key).query("wait", wait);
            let held = session.send::<Held>(wanted).await?;
            session.output.answer(&held.json, || granted(&address, &held))
        }
        LeaseCommand::Refresh(LeaseRefreshArgs { address, holder, lease_token, term, key }) => {
            let request = request(&holder, &term)?;
            let held = session.send::<Held>(ask(&address, &Wanted::new(&request, Some(lease_token)), &key)).await?;
            session.output.answer(&held.json, || granted(&address, &held))
        }
        LeaseCommand::Release(LeaseReleaseArgs { address, holder, lease_token, key }) => {
            let request = write(Method::DELETE, "leases", &key)
                .at(&address)
                .query("name", Some(&holder.name))
                .query("holder", Some(&holder.holder))
                .query("token", Some(lease_token));
            let answer = session.send::<Value>(request).await?;
            if answer.is_null() && session.output.is_json() {
                // The service answers without a body.
                return Ok(());
            }
            session.output.answer(&answer.json, || format!("{} of {address} is free", holder.name))
        }
        LeaseCommand::Show(args) => show(session, &args.address).await,
        LeaseCommand::List(args) => leases::run(session, args).await,
        LeaseCommand::Run(args) => run_under(session, args).await.map_err(Failure::of_lease_run),
    }
}

fn request(holder: &HolderArgs, term: &TermArgs) -> Result<LeaseRequest, Failure> {
    let request = LeaseRequest::new(holder.name.clone(), holder.holder.as_str());
    let request = request.and_then(|request| request.with_ttl_seconds(term.ttl));
    let request = request.and_then(|request| match term.target_t {
        Some(t) => request.with_target_t(t),
        None => Ok(request),
    });
    request.map_err(|error| Failure::Usage(error.to_string()))
}

fn ask(address: &Address, wanted: &Wanted, key: &KeyArgs) -> Request {
    write(Method::PUT, "leases", key).at(address).body(wanted)
}

fn granted(address: &Address, held: &Held) -> String {
    format!("{address}: {}, token {}", output::lease(&held.lease), held.token)
}

async fn show(session: &Session, address: &Address) -> Result<(), Failure> {
    let record = session.record(address, Some(ConcernKind::Status)).await?;
    let lease = record.status.as_ref().and_then(|status| lease_of(&json!({"payload": status.payload})));
    let words = match lease.as_ref().and_then(|lease| serde_json::from_value::<Lease>(lease.clone()).ok()) {
        // The service's clock decides whether it has expired.
        Some(lease) => format!("{address}: {}", output::lease(&lease)),
        None => format!("{address}: no lease is held"),
    };
    session.output.answer(&json!({"lease": lease}), || words)
}

async fn run_under(session: &Session, args: LeaseRunArgs) -> Result<(), Failure> {
    let (address, wait) = args.record_and_wait()?;
    let LeaseRunArgs { holder, term, on_failure, command, .. } = args;
    let request = request(&holder, &term)?;
    // Checked before the lease is taken: an invalid state is a mistake on the command line.
    if let Some(state) = &on_failure {
        NewStatus::new(StatusPayload::state(state))
            .map_err(|error| Failure::Usage(format!("--on-failure: {error}")))?;
    }
    // Listens from here on, so that a signal between the lease and the command does not leave the lease behind.
    let mut signals = Signals::listen().map_err(Failure::Watch)?;
    let mut keeper = acquire(session, &address, &request, wait, &mut signals).await?;
    let claim = keeper.claim();
    let environment = BTreeMap::from([
        (ADDRESS, address.to_string()),
        (NAME, claim.name.to_string()),
        (HOLDER, claim.holder.clone()),
        (TOKEN, claim.token.to_string()),
    ]);
    let mut running = match Running::start(&command, environment) {
        Ok(running) => running,
        Err(source) => {
            release(&address, keeper).await;
            let program = command.first().map(|program| program.to_string_lossy().into_owned()).unwrap_or_default();
            return Err(Failure::Start { program, source });
        }
    };
    let lost = |lost: LeaseLost| Failure::LeaseLost { address: address.to_string(), reason: lost.to_string() };
    // Refreshes are far apart. The record's events show sooner that another holder has taken the lease.
    let check = keeper.check();
    let following = tokio::spawn(notice_loss(session.client.clone(), address.clone(), claim.clone(), check));
    let ended = watch(&address, &mut keeper, &mut running, &mut signals).await;
    following.abort();
    match ended? {
        Ok(status) => {
            let code = child::exit_code(status);
            // A push that came too late has lost nothing.
            if let Some(state) = on_failure.filter(|_| code != 0 && code != Exit::Stale.code()) {
                mark_failed(&session.client, &address, &claim, &state, code).await;
            }
            if let Some(reason) = release(&address, keeper).await {
                return Err(lost(reason));
            }
            if code == 0 { Ok(()) } else { Err(Failure::Ended(code)) }
        }
        Err(reason) => {
            running.stop(GRACE).await.map_err(Failure::Watch)?;
            if reason == LeaseLost::Expired {
                // The lease may still be the current one: if it is released, others need not wait for its expiry.
                release(&address, keeper).await;
            }
            Err(lost(reason))
        }
    }
}

async fn acquire(
    session: &Session,
    address: &Address,
    request: &LeaseRequest,
    wait: Wait,
    signals: &mut Signals,
) -> Result<LeaseKeeper<Client>, Failure> {
    let mut noted = false;
    let until = match wait {
        Wait::For(limit) => Some(Instant::now() + limit),
        Wait::Not | Wait::Forever => None,
    };
    loop {
        let asked = Instant::now();
        let wanted = ask(address, &Wanted::new(request, None), &KeyArgs::default());
        let keeper = |held: Held| {
            LeaseKeeper::held(Arc::new(session.client.clone()), address.clone(), request.clone(), held.into(), asked)
        };
        let mut asking = std::pin::pin!(session.send::<Held>(wanted));
        let answer = loop {
            tokio::select! {
                biased;
                answer = &mut asking => break answer,
                signal = signals.next() => match signal {
                    Signal::Stop => child::stop_this_process(),
                    signal => {
                        // The lease may be granted all the same: then others need not wait for its expiry.
                        if let Ok(Ok(held)) = timeout(LAST_ANSWER, asking).await {
                            release(address, keeper(held.value)).await;
                        }
                        return Err(Failure::Ended(signal.exit_code()));
                    }
                },
            }
        };
        let again = match answer {
            Ok(held) => return Ok(keeper(held.value)),
            Err(Failure::Rejected(problem))
                if wait != Wait::Not
                    && until.is_none_or(|until| Instant::now() < until)
                    && problem.kind() == Some(ProblemKind::LeaseHeld) =>
            {
                let lease = problem.members.get("lease").and_then(|lease| Lease::deserialize(lease).ok());
                if !noted {
                    let by = lease.as_ref().map_or_else(|| problem.detail.clone(), output::lease);
                    output::note(&format!("waiting: {address} is locked: {by}"));
                    noted = true;
                }
                // At the end of the wait, it is asked once more.
                let left = until.map_or(Duration::MAX, |until| until.saturating_duration_since(Instant::now()));
                ask_again(lease.as_ref()).min(left)
            }
            Err(failure) => return Err(failure),
        };
        tokio::select! {
            () = sleep(again) => {}
            signal = signals.next() => match signal {
                Signal::Stop => child::stop_this_process(),
                signal => return Err(Failure::Ended(signal.exit_code())),
            },
        }
    }
}

/// When to request a lease again that another holder has: soon, or right after its expiry if that is sooner by this clock.
fn ask_again(lease: Option<&Lease>) -> Duration {
    let expires = lease.and_then(|lease| u64::try_from(lease.expires_at).ok()).unwrap_or_default();
    let ends = UNIX_EPOCH + Duration::from_secs(expires) + MARGIN;
    ends.duration_since(SystemTime::now()).map_or(ASK_AGAIN, |left| left.clamp(MARGIN, ASK_AGAIN))
}

/// Keeps the lease while the command runs. Returns the command's exit status, or how the lease was lost.
async fn watch(
    address: &Address,
    keeper: &mut LeaseKeeper<Client>,
    running: &mut Running,
    signals: &mut Signals,
) -> Result<Result<std::process::ExitStatus, LeaseLost>, Failure> {
    let mut noted = false;
    let check = keeper.check();
    let kept = keeper.keep(|error| {
        if !noted {
            output::note(&format!("the lease of {address} is not refreshed: {}", chain(&error)));
            noted = true;
        }
    });
    tokio::pin!(kept);
    loop {
        tokio::select! {
            biased;
            status = running.wait() => return status.map(Ok).map_err(Failure::Watch),
            lost = &mut kept => return Ok(Err(lost)),
            signal = signals.next() => match signal {
                // The command is stopped first, so that it does not run on under a lease that is not refreshed.
                Signal::Stop => {
                    running.pause();
                    child::stop_this_process();
                    // Continued: if the lease has expired meanwhile, the command does not continue under it.
                    tokio::select! {
                        biased;
                        lost = &mut kept => return Ok(Err(lost)),
                        () = sleep(CONTINUED) => {}
                    }
                    check.notify_one();
                    running.resume();
                }
                signal => running.pass(signal),
            },
        }
    }
}

/// Follows the record, and makes the keeper check its lease immediately if the status shows another holder, or the record is
/// deleted.
async fn notice_loss(client: Client, address: Address, claim: LeaseClaim, check: Arc<Notify>) {
    let Ok(glob) = AddressGlob::parse(address.as_str()) else { return };
    let filter = ChangeFilter {
        addresses: vec![glob],
        parts: vec![ChangedPart::Meta, ChangedPart::Concern(ConcernKind::Status)],
        ..ChangeFilter::default()
    };
    let mut changes = client.follow(filter, None);
    loop {
        match changes.next().await {
            Ok(ChangeEvent::Change(change)) => {
                let held = match &change.payload {
                    ChangePayload::Value(payload) => match payload.get(claim.name.as_str()) {
                        Some(lease) => lease["holder"] == claim.holder.as_str(),
                        // The status shows another lease, or the service's changes do not show leases.
                        None => payload
                            .as_object()
                            .is_none_or(|payload| !payload.iter().any(|(name, value)| is_lease_member(name, value))),
                    },
                    _ => true,
                };
                if !held || matches!(change.kind, ChangeKind::Retracted | ChangeKind::Purged) {
                    check.notify_one();
                }
            }
            Ok(_) => check.notify_one(),
            Err(error) => {
                // The refreshes still notice a loss.
                tracing::debug!(error = %chain(&error), "the events of the record cannot be followed");
                return;
            }
        }
    }
}

/// Sets the state of a record whose command has failed, keeping its metadata.
async fn mark_failed(client: &Client, address: &Address, claim: &LeaseClaim, state: &str, code: u8) {
    let note = |reason: &str| output::note(&format!("the state of {address} was not set to {state}: {reason}"));
    for _ in 0..MAX_STATUS_PUSHES {
        match push_state(client, address, claim, state, code).await {
            Ok(Some(PushOutcome::Updated { .. })) => return,
            Ok(Some(PushOutcome::Conflict { actual: Some(_) })) => {}
            Ok(Some(PushOutcome::LeaseLost { .. })) => return note("the lease was lost"),
            Ok(_) => return note("the record does not exist"),
            Err(error) => return note(&chain(&error)),
        }
    }
    note("it keeps changing");
}

async fn push_state(
    client: &Client,
    address: &Address,
    claim: &LeaseClaim,
    state: &str,
    code: u8,
) -> Result<Option<PushOutcome<StatusPayload>>, BackendError> {
    let Some(current) = client.status(address).await? else { return Ok(None) };
    let mut meta: Object = current.payload.map(|payload| payload.without_leases().meta).unwrap_or_default();
    meta.insert("exit_code".into(), code.into());
    let invalid = |error: nameservice_model::InvalidPayload| BackendError::Store {
        operation: "set a state",
        source: error.into(),
    };
    let new = NewStatus::new(StatusPayload { state: state.to_owned(), meta }).map_err(invalid)?;
    let push = StatusPush::cas(Status::stored(current.v, None), new).under(claim.clone()).map_err(invalid)?;
    client.push_status(&Call::fresh(), address, &push).await.map(Some)
}

/// Releases the lease. If it was no longer held, returns how it was lost.
async fn release(address: &Address, keeper: LeaseKeeper<Client>) -> Option<LeaseLost> {
    let failure = match timeout(RELEASE_TIMEOUT, keeper.release()).await {
        Ok(Ok(Released::Released)) => return None,
        Ok(Ok(Released::Lost { lease })) => return Some(LeaseLost::Taken(lease)),
        Ok(Ok(_)) => return Some(LeaseLost::RecordGone),
        Ok(Err(error)) => chain(&error),
        Err(_) => "no answer".into(),
    };
    output::note(&format!("the lease of {address} was not released, and will expire: {failure}"));
    None
}
