//! Publishing graph sources.

use std::{collections::BTreeSet, sync::Arc};

use nameservice_model::{Address, ConcernKind, GraphSourcePublication, Published, RecordKind, Result};

use super::{
    Origin, Record, Step, check_count,
    config::CONFIG_V,
    grown,
    ledgers::as_created,
    record::{ConfigItem, json_text},
};

const PUBLISH: &str = "publish a graph source";

impl Step<'_> {
    pub(super) fn publish_graph_source(&mut self, publication: &GraphSourcePublication) -> Result<Published> {
        let address = publication.address();
        match self.get(address) {
            Some(there) => self.republish(publication, &there),
            None => self.publish_new(address, publication),
        }
    }

    fn publish_new(&mut self, address: &Address, publication: &GraphSourcePublication) -> Result<Published> {
        let source = self.source(publication);
        if let Some(times) = self.created_before(address, None) {
            return Ok(Published::Created(Box::new(as_created(source, times))));
        }
        self.check_key(self.reuses_key_at(address, None), PUBLISH)?;
        if publication.expected_v().is_some_and(|v| v > 0) {
            return Ok(Published::Conflict { actual: None });
        }
        let wanted = publication.dependencies().unwrap_or_default();
        let missing = self.missing(wanted);
        if !missing.is_empty() {
            return Ok(Published::MissingDependencies(missing));
        }
        self.check_counts(wanted)?;
        let record = self.put(source).to_model();
        for target in wanted {
            self.count(target);
        }
        Ok(Published::Created(Box::new(record)))
    }

    /// Returns the graph source that a publication creates.
    fn source(&self, publication: &GraphSourcePublication) -> Record {
        let mut source = self.new_record(publication.address(), RecordKind::GraphSource);
        let wanted = publication.dependencies().unwrap_or_default();
        source.origin = Some(Arc::new(self.origin(publication, wanted)));
        set_config(&mut source.config, publication.v_after(0).unwrap_or(1), publication);
        source
    }

    /// Replaces config and dependencies; index, status and everything else stay.
    fn republish(&mut self, publication: &GraphSourcePublication, there: &Record) -> Result<Published> {
        let v = there.config.v;
        if there.any_remembers(self.call) {
            // Only the call that created it has written the index or the status, too.
            let has_created = there.index.calls.remembers(self.call)
                || there.status.calls.remembers(self.call)
                || v == publication.v().unwrap_or(1);
            let published = if has_created { Published::Created } else { Published::Updated };
            return Ok(published(Box::new(there.to_model())));
        }
        if let Some(times) = self.created_before(publication.address(), Some(there)) {
            return Ok(Published::Created(Box::new(as_created(self.source(publication), times))));
        }
        self.check_key(there.config.calls.knows_key_of(self.call), PUBLISH)?;
        let source_type = there.source_type();
        if there.kind != RecordKind::GraphSource
            || source_type.is_some_and(|stored| stored != publication.source_type())
        {
            return Ok(Published::WrongKind { kind: there.kind, source_type: source_type.map(str::to_owned) });
        }
        if there.retracted {
            return Ok(Published::Retracted);
        }
        if publication.expected_v().is_some_and(|expected| expected != v) {
            return Ok(Published::Conflict { actual: Some(there.config.value()) });
        }
        let Some(new_v) = publication.v_after(v) else {
            return Ok(Published::Conflict { actual: Some(there.config.value()) });
        };
        let mut record = there.clone();
        let counted: Vec<Address> = there.dependencies().iter().map(|target| Address::stored(&**target)).collect();
        let wanted = publication.dependencies().unwrap_or(&counted);
        if publication.dependencies().is_some() {
            let missing = self.missing(wanted);
            if !missing.is_empty() {
                return Ok(Published::MissingDependencies(missing));
            }
            record.origin = Some(Arc::new(self.origin(publication, wanted)));
        }
        let added: Vec<&Address> = wanted.iter().filter(|target| !counted.contains(target)).collect();
        set_config(&mut record.config, grown(CONFIG_V, v, new_v)?, publication);
        self.check_counts(added.iter().copied())?;
        self.remember(&mut record, ConcernKind::Config);
        let record = self.put(record).to_model();
        for target in added {
            self.count(target);
        }
        for target in counted.iter().filter(|target| !wanted.contains(target)) {
            self.uncount(target);
        }
        Ok(Published::Updated(Box::new(record)))
    }

    /// Returns all targets that do not exist or are retracted, in order.
    fn missing(&self, targets: &[Address]) -> Vec<Address> {
        let is_live = |target: &Address| self.state.get(target).is_some_and(|record| !record.retracted);
        let missing: BTreeSet<&Address> = targets.iter().filter(|target| !is_live(target)).collect();
        missing.into_iter().cloned().collect()
    }

    fn origin(&self, publication: &GraphSourcePublication, dependencies: &[Address]) -> Origin {
        // The text of a target's address is shared with the target.
        let shared = |target: &Address| match self.state.get(target) {
            Some(record) => record.address.clone(),
            None => Arc::from(target.as_str()),
        };
        Origin {
            source_branch: None,
            source_type: Some(Arc::from(publication.source_type())),
            dependencies: dependencies.iter().map(shared).collect(),
        }
    }

    fn check_counts<'a>(&self, targets: impl IntoIterator<Item = &'a Address>) -> Result<()> {
        let mut counts = targets.into_iter().filter_map(|target| self.state.get(target));
        counts.try_for_each(|target| check_count("dependents", target.dependents))
    }

    fn count(&mut self, target: &Address) {
        self.change(target, |record| record.dependents = record.dependents.saturating_add(1));
    }

    /// Undoes [`Self::count`].
    pub(super) fn uncount(&mut self, target: &Address) {
        self.change(target, |record| record.dependents = record.dependents.saturating_sub(1));
    }
}

fn set_config(item: &mut ConfigItem, v: i64, publication: &GraphSourcePublication) {
    item.v = v;
    item.payload = Some(json_text(publication.config()));
}
