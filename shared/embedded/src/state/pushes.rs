//! The single path of all pushes of one concern.

use nameservice_model::{
    Address, Committed, ConcernKind, ConcernValue, Error, Expected, Judgement, Operation, OperationKind,
    OperationOutcome, Push, PushOutcome, RecordKind, Result,
};

use super::{Step, concern::Concern, outcome_unknown, record::Record};

impl Step<'_> {
    pub(super) fn push<C: Concern>(
        &mut self,
        address: &Address,
        push: &Push<C::Payload, C::New>,
    ) -> Result<PushOutcome<C::Payload>>
    where
        Push<C::Payload, C::New>: Clone + Into<OperationKind>,
    {
        if matches!(push.expected(), Expected::NoRecord) {
            return self.create_by_push::<C>(address, push);
        }
        if push.lease().is_some() {
            return self.push_under_lease::<C>(address, push);
        }
        let Some(record) = self.get(address) else { return Ok(PushOutcome::Unknown) };
        let Some(calls) = record.calls(C::KIND) else { return Ok(PushOutcome::WrongKind(record.kind)) };
        if calls.remembers(self.call) {
            let value = match calls.ends_with(self.call) {
                true => C::read(&record),
                false => C::was_written(push).ok_or_else(|| outcome_unknown(C::OPERATION))?,
            };
            return Ok(PushOutcome::Updated { value, replayed: true });
        }
        self.check_key(calls.knows_key_of(self.call), C::OPERATION)?;
        if record.retracted {
            return Ok(PushOutcome::Retracted);
        }
        if !C::belongs_to(record.kind) {
            return Ok(PushOutcome::WrongKind(record.kind));
        }
        Ok(match C::judge(&record, push) {
            Judgement::Current => PushOutcome::Updated { value: C::read(&record), replayed: true },
            Judgement::Stale => PushOutcome::Stale { actual: C::read(&record) },
            Judgement::Conflict => PushOutcome::Conflict { actual: Some(C::read(&record)) },
            Judgement::Admissible => {
                let mut record = Record::clone(&record);
                C::store(&mut record, push)?;
                self.remember(&mut record, C::KIND);
                let record = self.put(record);
                PushOutcome::Updated { value: C::read(&record), replayed: false }
            }
        })
    }

    /// Notes that this call has written a concern.
    pub(super) fn remember(&self, record: &mut Record, concern: ConcernKind) {
        if let Some(calls) = record.calls_mut(concern) {
            calls.remember(self.call);
        }
    }

    /// A push under a lease is a transaction of one operation.
    fn push_under_lease<C: Concern>(
        &mut self,
        address: &Address,
        push: &Push<C::Payload, C::New>,
    ) -> Result<PushOutcome<C::Payload>>
    where
        Push<C::Payload, C::New>: Clone + Into<OperationKind>,
    {
        let operation = Operation { address: address.clone(), action: push.clone().into() };
        let (Committed::Committed(mut outcomes) | Committed::Rejected(mut outcomes)) =
            self.commit(C::OPERATION, &[operation])?;
        let outcome = outcomes.pop();
        let value = |state| C::value(state).unwrap_or(ConcernValue::unborn());
        Ok(match outcome {
            Some(OperationOutcome::Updated { value: state, replayed }) => {
                PushOutcome::Updated { value: value(state), replayed }
            }
            Some(OperationOutcome::Stale { actual }) => PushOutcome::Stale { actual: value(actual) },
            Some(OperationOutcome::Conflict { actual }) => PushOutcome::Conflict { actual: actual.map(value) },
            Some(OperationOutcome::Unknown) => PushOutcome::Unknown,
            Some(OperationOutcome::Retracted) => PushOutcome::Retracted,
            Some(OperationOutcome::WrongKind(kind)) => PushOutcome::WrongKind(kind),
            Some(OperationOutcome::LeaseLost { lease }) => PushOutcome::LeaseLost { lease },
            // One operation has one outcome, and a push never merely passes.
            _ => return Err(Error::Store { operation: C::OPERATION, source: "it has no outcome".into() }),
        })
    }

    /// Applies a push that expects no record: creates a ledger with the new value.
    fn create_by_push<C: Concern>(
        &mut self,
        address: &Address,
        push: &Push<C::Payload, C::New>,
    ) -> Result<PushOutcome<C::Payload>> {
        let mut wanted = self.new_record(address, RecordKind::Ledger);
        C::store(&mut wanted, push)?;
        let there = self.get(address);
        if let Some(there) = there.as_ref().filter(|there| there.any_remembers(self.call)) {
            let is_last = there.calls(C::KIND).is_some_and(|calls| calls.ends_with(self.call));
            let value = C::read(if is_last { there } else { &wanted });
            return Ok(PushOutcome::Updated { value, replayed: true });
        }
        if self.remembered_at(address).is_some() {
            return Ok(PushOutcome::Updated { value: C::read(&wanted), replayed: true });
        }
        self.check_key(self.reuses_key_at(address, there.as_deref()), C::OPERATION)?;
        let Some(there) = there else {
            let value = C::read(&self.put(wanted));
            return Ok(PushOutcome::Updated { value, replayed: false });
        };
        if !C::belongs_to(there.kind) {
            return Ok(PushOutcome::WrongKind(there.kind));
        }
        if there.retracted {
            return Ok(PushOutcome::Retracted);
        }
        let value = C::read(&there);
        Ok(match C::is_same(&there, &wanted) {
            true => PushOutcome::Updated { value, replayed: true },
            false => PushOutcome::Conflict { actual: Some(value) },
        })
    }
}
