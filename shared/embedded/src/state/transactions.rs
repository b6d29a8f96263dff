//! Several operations, all or none.

use std::collections::BTreeMap;

use nameservice_model::{
    Committed, ConcernKind, ConcernState, Judgement, LeaseClaim, Operation, OperationKind, OperationOutcome, Push,
    Result, is_held_until,
};

use super::{
    Step, concern::Concern, config::ConfigConcern, head::HeadConcern, index::IndexConcern, outcome_unknown,
    record::Record, status::StatusConcern,
};

/// An operation, whichever concern it is about.
trait Operable {
    fn writes(&self) -> bool;
    fn lease(&self) -> Option<&LeaseClaim>;
    fn belongs_to(&self, record: &Record) -> bool;
    fn judge(&self, record: &Record) -> Judgement;
    fn read(&self, record: &Record) -> ConcernState;
    fn written(&self, record: &Record) -> ConcernState;
    fn left_on(&self, record: &Record) -> ConcernState;
    fn was_written(&self) -> Option<ConcernState>;
    fn store(&self, record: &mut Record) -> Result<()>;
}

struct Pushing<'a, C: Concern>(&'a Push<C::Payload, C::New>);

impl<C: Concern> Operable for Pushing<'_, C> {
    fn writes(&self) -> bool {
        true
    }

    fn lease(&self) -> Option<&LeaseClaim> {
        self.0.lease()
    }

    fn belongs_to(&self, record: &Record) -> bool {
        C::belongs_to(record.kind)
    }

    fn judge(&self, record: &Record) -> Judgement {
        C::judge(record, self.0)
    }

    fn read(&self, record: &Record) -> ConcernState {
        C::state(C::read(record))
    }

    fn written(&self, record: &Record) -> ConcernState {
        C::state(C::written(record, self.0))
    }

    fn left_on(&self, record: &Record) -> ConcernState {
        C::state(C::left_by(record, self.0))
    }

    fn was_written(&self) -> Option<ConcernState> {
        C::was_written(self.0).map(C::state)
    }

    fn store(&self, record: &mut Record) -> Result<()> {
        C::store(record, self.0)
    }
}

struct Checking<'a>(&'a ConcernState);

impl Operable for Checking<'_> {
    fn writes(&self) -> bool {
        false
    }

    fn lease(&self) -> Option<&LeaseClaim> {
        None
    }

    fn belongs_to(&self, record: &Record) -> bool {
        Record::concerns(record.kind).contains(&self.0.concern())
    }

    fn judge(&self, record: &Record) -> Judgement {
        let matches = match self.0 {
            ConcernState::Head(expected) => HeadConcern::matches(record, expected),
            ConcernState::Index(expected) => IndexConcern::matches(record, expected),
            ConcernState::Status(expected) => StatusConcern::matches(record, expected),
            ConcernState::Config(expected) => ConfigConcern::matches(record, expected),
        };
        if matches { Judgement::Admissible } else { Judgement::Conflict }
    }

    fn read(&self, record: &Record) -> ConcernState {
        match self.0.concern() {
            ConcernKind::Head => ConcernState::Head(HeadConcern::read(record)),
            ConcernKind::Index => ConcernState::Index(IndexConcern::read(record)),
            ConcernKind::Status => ConcernState::Status(StatusConcern::read(record)),
            ConcernKind::Config => ConcernState::Config(ConfigConcern::read(record)),
        }
    }

    fn written(&self, record: &Record) -> ConcernState {
        self.read(record)
    }

    fn left_on(&self, record: &Record) -> ConcernState {
        self.read(record)
    }

    fn was_written(&self) -> Option<ConcernState> {
        None
    }

    fn store(&self, _record: &mut Record) -> Result<()> {
        Ok(())
    }
}

fn operable(action: &OperationKind) -> Box<dyn Operable + '_> {
    match action {
        OperationKind::PushHead(push) => Box::new(Pushing::<HeadConcern>(push)),
        OperationKind::PushIndex(push) => Box::new(Pushing::<IndexConcern>(push)),
        OperationKind::PushStatus(push) => Box::new(Pushing::<StatusConcern>(push)),
        OperationKind::PushConfig(push) => Box::new(Pushing::<ConfigConcern>(push)),
        OperationKind::Check(state) => Box::new(Checking(state)),
    }
}

impl Step<'_> {
    /// Commits operations about different concerns, none of which creates a record: their type has checked that.
    pub(super) fn commit(&mut self, name: &'static str, operations: &[Operation]) -> Result<Committed> {
        let operables: Vec<_> = operations.iter().map(|operation| (operation, operable(&operation.action))).collect();
        let writing = || operables.iter().filter(|(_, operable)| operable.writes());
        let calls_of = |operation: &Operation| {
            let record = self.state.get(&operation.address)?;
            record.calls(operation.action.concern()).cloned()
        };
        if writing().filter_map(|(operation, _)| calls_of(operation)).any(|calls| calls.remembers(self.call)) {
            let outcomes =
                operables.iter().map(|(operation, operable)| self.repeated(name, operation, operable.as_ref()));
            return Ok(Committed::Committed(outcomes.collect::<Result<_>>()?));
        }
        let reused =
            writing().filter_map(|(operation, _)| calls_of(operation)).any(|calls| calls.knows_key_of(self.call));
        self.check_key(reused, name)?;

        let outcomes: Vec<_> =
            operables.iter().map(|(operation, operable)| self.judge(operation, operable.as_ref())).collect();
        if outcomes.iter().any(OperationOutcome::rejects) {
            return Ok(Committed::Rejected(outcomes));
        }
        let mut outcomes = Vec::with_capacity(operables.len());
        // Records in the order in which they are first written.
        let (mut written, mut places): (Vec<Record>, BTreeMap<&str, usize>) = (Vec::new(), BTreeMap::new());
        for (operation, operable) in &operables {
            let Some(record) = self.get(&operation.address).filter(|_| operable.writes()) else {
                outcomes.push(OperationOutcome::Passed);
                continue;
            };
            if operable.judge(&record) == Judgement::Current {
                outcomes.push(OperationOutcome::Updated { value: operable.read(&record), replayed: true });
                continue;
            }
            outcomes.push(OperationOutcome::Updated { value: operable.written(&record), replayed: false });
            let at = *places.entry(operation.address.as_str()).or_insert_with(|| {
                written.push(Record::clone(&record));
                written.len() - 1
            });
            operable.store(&mut written[at])?;
            self.remember(&mut written[at], operation.action.concern());
        }
        for record in written {
            self.put(record);
        }
        Ok(Committed::Committed(outcomes))
    }

    fn judge(&self, operation: &Operation, operable: &dyn Operable) -> OperationOutcome {
        let Some(record) = self.get(&operation.address) else { return OperationOutcome::Unknown };
        if let Some(claim) = operable.lease() {
            if record.retracted {
                return OperationOutcome::Retracted;
            }
            if !self.is_current(&record, claim) {
                return OperationOutcome::LeaseLost { lease: record.status.lease() };
            }
        }
        // A graph source has no head that could be marked as retracted.
        if record.calls(operation.action.concern()).is_none() {
            return OperationOutcome::WrongKind(record.kind);
        }
        if operable.writes() && record.retracted {
            return OperationOutcome::Retracted;
        }
        if !operable.belongs_to(&record) {
            return OperationOutcome::WrongKind(record.kind);
        }
        match operable.judge(&record) {
            Judgement::Stale => OperationOutcome::Stale { actual: operable.read(&record) },
            Judgement::Conflict => OperationOutcome::Conflict { actual: Some(operable.read(&record)) },
            Judgement::Current | Judgement::Admissible => OperationOutcome::Passed,
        }
    }

    /// Returns whether a claim matches the current lease, and the lease is held: it has not expired, nor was it set before the
    /// clock was set back.
    fn is_current(&self, record: &Record, claim: &LeaseClaim) -> bool {
        let status = &record.status;
        status.lease.as_ref().is_some_and(|lease| {
            status.token == claim.token
                && *lease.name == *claim.name.as_str()
                && *lease.holder == *claim.holder
                && is_held_until(lease.expires_at, self.now.seconds())
        })
    }

    /// Returns the outcome of an operation of a transaction that this call has committed before; an error if the value that it
    /// wrote cannot be known.
    fn repeated(&self, name: &'static str, operation: &Operation, operable: &dyn Operable) -> Result<OperationOutcome> {
        if !operable.writes() {
            return Ok(OperationOutcome::Passed);
        }
        let (concern, record) = (operation.action.concern(), self.get(&operation.address));
        let calls = record.as_ref().and_then(|record| record.calls(concern));
        let is_remembered = calls.is_some_and(|calls| calls.remembers(self.call));
        let is_last = calls.is_some_and(|calls| calls.ends_with(self.call));
        let value = match record {
            Some(record) if !is_remembered && operable.judge(&record) == Judgement::Current => {
                Some(operable.read(&record))
            }
            // The concern has forgotten the call, or had the value already when the transaction was committed. Both leave the
            // pushed value, of an index with a revision that is not known.
            _ if !is_remembered && concern == ConcernKind::Index => None,
            record => {
                let last = record.filter(|_| is_last);
                last.map(|record| operable.left_on(&record)).or_else(|| operable.was_written())
            }
        };
        let value = value.ok_or_else(|| outcome_unknown(name))?;
        Ok(OperationOutcome::Updated { value, replayed: true })
    }
}
