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
use nameservice_client::{ChangeFilter, Client, Event};
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

use super::leases::lease_of;
use crate::{
    child::{self, Running, Signals},
    client::{Request, write},
    failure::Failure,
    options::KeyArgs,
    output,
    session::Session,
};

use args::{ADDRESS, HOLDER, NAME, TOKEN};
pub use args::{
    ClaimArgs, HolderArgs, LeaseAcquireArgs, LeaseCommand, LeaseRefreshArgs, LeaseReleaseArgs, LeaseRunArgs, TermArgs,
};

/// How long a command that must end may take.
const GRACE: Duration = Duration::from_secs(5);
/// How often a lease that another holds is asked for.
const ASK_AGAIN: Duration = Duration::from_millis(800);
/// How long after its end, so that clocks which nearly agree do not miss it.
const MARGIN: Duration = Duration::from_millis(20);
/// How long the end waits for the lease to be released: it expires anyway.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(5);
/// How often a status that others change meanwhile is set.
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
        LeaseCommand::Run(args) => run_under(session, args).await,
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
        // Whether it has expired is for the service's clock to say.
        Some(lease) => format!("{address}: {}", output::lease(&lease)),
        None => format!("{address}: no lease is held"),
    };
    session.output.answer(&json!({"lease": lease}), || words)
}

async fn run_under(session: &Session, args: LeaseRunArgs) -> Result<(), Failure> {
    let LeaseRunArgs { holder, term, wait, on_failure, address, command } = args;
    let request = request(&holder, &term)?;
    // Before the lease: a state that cannot be set is a mistake of the command line.
    if let Some(state) = &on_failure {
        NewStatus::new(StatusPayload::state(state))
            .map_err(|error| Failure::Usage(format!("--on-failure: {error}")))?;
    }
    // From here on: a signal between the lease and the command must not leave the lease behind.
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
    // Refreshes are far apart: the record's events show sooner that the lease was taken.
    let check = keeper.check();
    let following = tokio::spawn(notice_loss(session.client.clone(), address.clone(), claim.clone(), check));
    let ended = watch(&address, &mut keeper, &mut running, &mut signals).await;
    following.abort();
    match ended? {
        Ok(status) => {
            let code = child::exit_code(status);
            if let Some(state) = on_failure.filter(|_| code != 0) {
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
                // It may still be the current one: others need not wait for it then.
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
    wait: bool,
    signals: &mut Signals,
) -> Result<LeaseKeeper<Client>, Failure> {
    let mut noted = false;
    loop {
        let asked = Instant::now();
        let wanted = ask(address, &Wanted::new(request, None), &KeyArgs::default());
        let again = match session.send::<Held>(wanted).await {
            Ok(held) => {
                let client = Arc::new(session.client.clone());
                return Ok(LeaseKeeper::held(client, address.clone(), request.clone(), held.value.into(), asked));
            }
            Err(Failure::Rejected(problem)) if wait && problem.kind() == Some(ProblemKind::LeaseHeld) => {
                let lease = problem.members.get("lease").and_then(|lease| Lease::deserialize(lease).ok());
                if !noted {
                    let by = lease.as_ref().map_or_else(|| problem.detail.clone(), output::lease);
                    output::note(&format!("waiting: {address} is locked: {by}"));
                    noted = true;
                }
                ask_again(lease.as_ref())
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
            signal = signals.next() => running.pass(signal),
        }
    }
}

/// Follows the record, and makes the keeper ask for its lease at once where another holder shows in its status, or where
/// the record goes.
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
            Ok(Event::Change(change)) => {
                let held = match &change.payload {
                    ChangePayload::Value(payload) => match payload.get(claim.name.as_str()) {
                        Some(lease) => lease["holder"] == claim.holder.as_str(),
                        // Another lease, or a service whose changes do not show leases.
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
                // The refreshes still notice.
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
            Ok(_) => return note("the record is not there"),
            Err(error) => return note(&chain(&error)),
        }
    }
    note("others change it all the time");
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

/// Releases the lease. If it was another one's by then, returns how it was lost.
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
