//! The bugs: plausible mistakes of one line.

use std::{fs, path::Path};

/// A bug, and the tests that must notice it.
pub(crate) struct Bug {
    pub(crate) name: &'static str,
    pub(crate) file: &'static str,
    /// The text to replace, which occurs once.
    pub(crate) find: &'static str,
    /// Its replacement.
    pub(crate) put: &'static str,
    /// Filters of test names.
    pub(crate) tests: &'static [&'static str],
}

const fn bug(
    name: &'static str,
    file: &'static str,
    find: &'static str,
    put: &'static str,
    tests: &'static [&'static str],
) -> Bug {
    Bug { name, file, find, put, tests }
}

const JUDGE: &str = "shared/model/src/judge.rs";
const PUSHES: &str = "shared/api/src/requests/pushes.rs";
const CONCERN: &str = "shared/store/src/concern/stored.rs";
const CONFIG: &str = "shared/store/src/concern/config.rs";
const HEAD: &str = "shared/store/src/concern/head.rs";
const INDEX: &str = "shared/store/src/concern/index.rs";
const STATUS: &str = "shared/store/src/concern/status.rs";
const EXPRESSIONS: &str = "shared/store/src/expressions.rs";
const PUSH: &str = "shared/store/src/push.rs";
const SENDING: &str = "shared/dynamo/src/sending.rs";
const BATCHES: &str = "shared/dynamo/src/batches.rs";
const LEASES: &str = "shared/store/src/leases.rs";
const TRANSACTIONS: &str = "shared/store/src/transactions.rs";
const PLANNED: &str = "shared/store/src/planned.rs";
const REFERENCES: &str = "shared/store/src/references.rs";
const RETRACTIONS: &str = "shared/store/src/retractions.rs";
const PROTECTIONS: &str = "shared/store/src/protections.rs";
const PURGES: &str = "shared/store/src/purges.rs";
const CREATION: &str = "shared/store/src/creation.rs";
const COMMITS: &str = "shared/store/src/doctor/commits.rs";
const APPEND: &str = "shared/feed/src/append.rs";
const PAYLOADS: &str = "shared/feed/src/payloads.rs";
const READ: &str = "shared/feed/src/read.rs";
const ADVANCE: &str = "shared/views/src/transactions.rs";
const CONSUMER: &str = "functions/stream_consumer/src/lib.rs";
const HANDLING: &str = "functions/stream_consumer/src/handling.rs";
const PUBLISHER: &str = "functions/topic_publisher/src/lib.rs";
const TOPIC: &str = "functions/topic_publisher/src/topic.rs";
const EMBEDDED_INDEX: &str = "shared/embedded/src/state/index.rs";
const EMBEDDED_PUSHES: &str = "shared/embedded/src/state/pushes.rs";
const EMBEDDED_LEASES: &str = "shared/embedded/src/state/leases.rs";
const EMBEDDED_TRANSACTIONS: &str = "shared/embedded/src/state/transactions.rs";
const EMBEDDED_RETRACTIONS: &str = "shared/embedded/src/state/retractions.rs";
const EMBEDDED_PURGES: &str = "shared/embedded/src/state/purges.rs";
const EMBEDDED_LEDGERS: &str = "shared/embedded/src/state/ledgers.rs";
const EMBEDDED_GRAPH_SOURCES: &str = "shared/embedded/src/state/graph_sources.rs";
const EMBEDDED_WRITER: &str = "shared/embedded/src/writer.rs";

pub(crate) const BUGS: &[Bug] = &[
    // ---- pushes ----
    bug(
        "a push of a head drops its condition, and the head goes back",
        HEAD,
        "(None, Expected::Older | Expected::NoRecord) => expression.below(ATTR_COMMIT_T, push.desired().t()),",
        "(None, Expected::Older | Expected::NoRecord) => {}",
        &["contract::head", "history::whatever"],
    ),
    bug(
        "a stale head is answered as updated",
        JUDGE,
        "Expected::Older => Judgement::Stale,",
        "Expected::Older => Judgement::Current,",
        &["contract::head", "model::"],
    ),
    bug(
        "an equal t passes for a newer one",
        EXPRESSIONS,
        "({name} < {bound} OR {absent})",
        "({name} <= {bound} OR {absent})",
        &["contract::head", "contract::index", "model::"],
    ),
    bug(
        "an expectation compares t alone",
        CONCERN,
        "                expression.equals(self.id, string(id.as_str()));\n",
        "",
        &["contract::head", "contract::index"],
    ),
    bug(
        "an expected counter is not compared",
        STATUS,
        "            v => expression.equals(ATTR_STATUS_V, number(v)),",
        "            _ => {}",
        &["contract::status", "history::whatever"],
    ),
    bug(
        "an advance of an index keeps the revision",
        INDEX,
        "                expression.set(ATTR_REV, number(0));\n",
        "",
        &["contract::index", "model::"],
    ),
    bug(
        "a ledger's push reaches the config of a graph source",
        CONFIG,
        "        expression.is(ATTR_CONFIG_JSON, None);",
        "        let _ = expression;",
        &["contract::config", "contract::graph_source", "model::"],
    ),
    bug(
        "a push to a retracted record is applied",
        EXPRESSIONS,
        "self.require(format!(\"NOT ({name} = {yes})\"));",
        "let _ = (name, yes);",
        &["contract::retract", "model::"],
    ),
    // ---- lost replies ----
    bug(
        "a call that arrives twice is applied twice",
        EXPRESSIONS,
        "        self.not_by_call(request_id);\n",
        "",
        &["faults::", "leases::", "races::one_call"],
    ),
    bug(
        "a retry of a push is answered as a conflict",
        PUSH,
        "    if items::remembers(item, &call.request_id) {",
        "    if false {",
        &["faults::", "routes::idempotency"],
    ),
    bug(
        "an item remembers its last write alone",
        EXPRESSIONS,
        "for (n, id) in ids.iter().enumerate() {",
        "for (n, id) in ids.iter().enumerate().take(1) {",
        &["faults::", "routes::idempotency"],
    ),
    bug(
        "a lost reply is forgotten, and a rejection after it is trusted",
        SENDING,
        "                    attempts.uncertain = true;\n",
        "",
        &["faults::", "model::"],
    ),
    bug(
        "an internal error is treated as throttling",
        SENDING,
        "_ if status >= 500 => Failure::Lost,",
        "_ if status >= 500 => Failure::Busy,",
        &["faults::", "model::"],
    ),
    bug(
        "a transaction that met another is judged as rejected",
        SENDING,
        "\"TransactionConflict\" => Some(Busy::Contended),",
        "\"TransactionConflict\" => None,",
        &["faults::", "history::whatever"],
    ),
    bug(
        "a lost and overtaken push is answered with what it expected",
        PUSH,
        "            match planned.cloned().or_else(|| C::assumed_previous(push)) {",
        "            match Some(Item::new()).or_else(|| planned.cloned()).or_else(|| C::assumed_previous(push)) {",
        &["history::found"],
    ),
    bug(
        "an expected index without a revision has the revision 0",
        JUDGE,
        "expected.v == self.desired().t() && !self.is_rev_stated() =>",
        "expected.v == self.desired().t() && false =>",
        &["contract::transactions::repeated", "routes::index_push"],
    ),
    bug(
        "a request does not say that it leaves out the revision of the expected index",
        PUSHES,
        "let is_rev_stated = expected.id.is_none() || expected.rev.is_some();",
        "let is_rev_stated = true;",
        &["routes::index_push"],
    ),
    bug(
        "the stated revision of an expected index is lost",
        PUSHES,
        "let rev = self.rev.unwrap_or(0);",
        "let rev = 0;",
        &["routes::index_push"],
    ),
    bug(
        "keys that a batch left unread are forgotten",
        BATCHES,
        "            left = output.unprocessed_keys.unwrap_or_default().into_values().flat_map(|keys| keys.keys).collect();",
        "            let _ = output.unprocessed_keys;",
        &["faults::", "contract::lists"],
    ),
    // ---- leases ----
    bug(
        "any token of the holder will do",
        EXPRESSIONS,
        "        self.equals(ATTR_LEASE_TOKEN, number(claim.token));\n",
        "",
        &["leases::", "history::whatever"],
    ),
    bug(
        "tokens do not grow",
        LEASES,
        "            acquire.increment(ATTR_LEASE_TOKEN, 0, None);",
        "            acquire.add(ATTR_LEASE_TOKEN, 0);",
        &["leases::", "model::"],
    ),
    bug(
        "a push is made under a lease that has ended",
        EXPRESSIONS,
        "        self.require(format!(\"{expires} > {now} AND {expires} <= {last}\"));",
        "        let _ = (expires, now, last);",
        &["leases::"],
    ),
    bug(
        "a lease is taken from whoever holds it",
        EXPRESSIONS,
        "OR {held_by} = {holder})",
        "OR {held_by} <> {holder})",
        &["leases::", "history::a_clock"],
    ),
    bug(
        "a lease ends a second early",
        LEASES,
        "    -(-now_ms).div_euclid(1000) + i64::from(ttl_seconds)",
        "    now_ms.div_euclid(1000) + i64::from(ttl_seconds) - 1",
        &["leases::"],
    ),
    // ---- transactions ----
    bug(
        "a check of a transaction is not made",
        PLANNED,
        "            None => C::expect(expression, &self.0),",
        "            None => {}",
        &["transactions::", "model::"],
    ),
    bug(
        "a transaction is rejected only where all of its operations are",
        TRANSACTIONS,
        "outcomes.iter().any(Verdict::rejects)",
        "outcomes.iter().all(Verdict::rejects)",
        &["transactions::", "model::"],
    ),
    bug(
        "a repeated transaction is answered as rejected",
        TRANSACTIONS,
        "            if remembered {",
        "            if remembered && false {",
        &["transactions::", "model::", "faults::"],
    ),
    bug(
        "a transaction is applied in part",
        TRANSACTIONS,
        "            let actions = slots\n                .into_iter()\n",
        "            let actions = slots\n                .into_iter()\n                .take(1)\n",
        &["appends::over_dynamodb"],
    ),
    bug(
        "a repeated transaction answers with a lease that it has not written",
        PLANNED,
        "        item.remove(ATTR_LEASE);\n",
        "",
        &["contract::transactions"],
    ),
    bug(
        "an operation that was current is answered as written after a lost reply",
        TRANSACTIONS,
        "|| matches!(pending.stage, Stage::Current(_))",
        "",
        &["dynamodb::transactions"],
    ),
    // ---- references ----
    bug(
        "a dependency is not counted",
        REFERENCES,
        "                    count.count(ATTR_DEPENDENTS, self.unreadable.get(target));\n",
        "",
        &["contract::graph_source", "races::references", "model::"],
    ),
    bug(
        "a record is retracted although something has come to depend on it meanwhile",
        REFERENCES,
        "    expression.no_references(ATTR_DEPENDENTS);\n",
        "",
        &["races::depending", "faults::"],
    ),
    bug(
        "a retraction marks the record alone",
        RETRACTIONS,
        "        mark.set(ATTR_RETRACTED, boolean(true));\n",
        "",
        &["contract::retract", "model::"],
    ),
    bug(
        "a protected record is purged by whoever has read it before",
        PURGES,
        "    delete.unprotected();\n",
        "",
        &["dynamodb::protection"],
    ),
    bug(
        "a protected record is retracted by whoever has read it before",
        RETRACTIONS,
        "            retract.unprotected();\n",
        "",
        &["dynamodb::protection"],
    ),
    bug(
        "a protection makes a record",
        PROTECTIONS,
        "        mark.record_exists();\n",
        "",
        &["contract::protection", "dynamodb::protection"],
    ),
    bug(
        "a dropped branch is counted on",
        PURGES,
        "    uncount.add(ATTR_BRANCHES, -1);",
        "    uncount.add(ATTR_BRANCHES, 0);",
        &["contract::branch", "races::the_count", "model::"],
    ),
    bug(
        "a record is created over another",
        CREATION,
        "                    condition.not_exists(ATTR_KIND);\n",
        "",
        &["contract::create", "races::of_all_creations", "model::"],
    ),
    // ---- Fluree's commit log ----
    bug(
        "a creation leaves the commit log of an earlier life",
        CREATION,
        "            self.clear_commits(operation, address, NO_COMMITS, None, attempts).await?;\n",
        "",
        &["dynamodb::create"],
    ),
    bug(
        "a history that lags behind the head is a reason to delete",
        COMMITS,
        "if replay.has_unread || replay.last != Some((head.v, id)) {",
        "if replay.has_unread {",
        &["doctor::commits"],
    ),
    // ---- the feed ----
    bug(
        "the feed forgets which stream records it has seen",
        APPEND,
        "Guard::write(name, change, payload, until)?",
        "Guard::write(&format!(\"{name}{}\", change.position), change, payload, until)?",
        &["stream::deliveries", "stream::crashes"],
    ),
    bug(
        "the feed is appended to without its guard",
        ADVANCE,
        "let mut condition = \"#field = :from\".to_owned();",
        "let mut condition = \"(#field = :from OR attribute_exists(#field))\".to_owned();",
        &["stream::deliveries", "stream::crashes", "views::"],
    ),
    bug(
        "the feed's consumer acknowledges what was not appended",
        CONSUMER,
        "end = end.min(failed);",
        "let _ = failed;",
        &["stream::deliveries", "stream::crashes"],
    ),
    bug(
        "a stream record that cannot be read leaves no change",
        CONSUMER,
        "call, identities }, difference, without_payload)",
        "call, identities }, difference, without_payload.filter(|_| false))",
        &["stream::poison", "stream::consumer", "replicas::a_change_of_what_cannot_be_read"],
    ),
    bug(
        "a stream record whose tries fail with an answer is passed over",
        HANDLING,
        "(false, unanswered) => (unanswered + 1, 0, Extent::Whole),",
        "(false, unanswered) => (unanswered + 1, unanswered + 1, Extent::Whole),",
        &["stream::passed_over"],
    ),
    bug(
        "a stream record that ends the function is tried without end",
        HANDLING,
        "tries.save(Tried { unanswered: during, end })",
        "tries.save(Tried { end, ..before })",
        &["stream::passed_over"],
    ),
    bug(
        "a function that ends at every stream record passes over all of them",
        HANDLING,
        "tries.pass_over(before, PASSED_AFTER).await?",
        "(tries.pass_over(before, PASSED_AFTER).await? || true)",
        &["stream::passed_over"],
    ),
    bug(
        "the doctor deletes commits below a head that could not be read",
        COMMITS,
        "if replay.has_unread || ",
        "if ",
        &["doctor::commits"],
    ),
    bug(
        "the checkpoint of the topic passes what was not published",
        PUBLISHER,
        "(done.min(changes.len()), 0)",
        "(done.max(changes.len()), 0)",
        &["stream::deliveries", "stream::topic"],
    ),
    bug(
        "the consumer appends a batch whole, whatever its payloads take in memory",
        CONSUMER,
        "while !memory.is_full()",
        "while true",
        &["memory::the_largest_batch"],
    ),
    bug(
        "a read of the feed unpacks as many changes as it may return, whatever they take in memory",
        PAYLOADS,
        "            && !memory.is_full()",
        "            && true",
        &["memory::statuses"],
    ),
    bug(
        "a request of the topic that is to be split counts as done after a later one has failed",
        TOPIC,
        "published.done = published.done.min(first[0].place);",
        "published.done = published.done.max(first[0].place);",
        &["stream::messages"],
    ),
    bug(
        "the feed's reader continues from a position that was never given",
        READ,
        "        if after > counter.n {",
        "        if after > counter.n && false {",
        &["routes::change_list", "routes::change_stream"],
    ),
    // ---- the embedded backend ----
    bug(
        "a monotonic push of a head is admissible at any time",
        JUDGE,
        "Expected::Older if is_newer => Judgement::Admissible,",
        "Expected::Older => Judgement::Admissible,",
        &["contract::head", "model::", "properties::a_push_over"],
    ),
    bug(
        "a push of a head compares nothing but t",
        JUDGE,
        "Expected::Value(expected) if is_newer && ContentId::is_expected(stored, expected) => Judgement::Admissible,",
        "Expected::Value(_) if is_newer => Judgement::Admissible,",
        &["contract::head", "contract::races::of_all_pushes", "model::", "properties::a_push_over"],
    ),
    bug(
        "embedded: an overwrite of an index does not count its revision",
        EMBEDDED_INDEX,
        "Some(root) => root.rev.saturating_add(1),",
        "Some(root) => root.rev,",
        &["contract::index", "model::"],
    ),
    bug(
        "embedded: a push does not remember its call",
        EMBEDDED_PUSHES,
        "                self.remember(&mut record, C::KIND);\n",
        "",
        &["contract::head", "contract::races::one_call", "model::"],
    ),
    bug(
        "embedded: a lease never expires for others",
        EMBEDDED_LEASES,
        "!is_held_until(lease.expires_at, self.now.seconds()) || ",
        "",
        &["contract::leases"],
    ),
    bug(
        "embedded: a superseded token still claims its lease",
        EMBEDDED_LEASES,
        "    status.token == claim.token\n",
        "    status.token >= claim.token\n",
        &["contract::leases", "model::"],
    ),
    bug(
        "embedded: a record that others depend on is retracted",
        EMBEDDED_RETRACTIONS,
        "        if there.is_referenced() {",
        "        if there.is_referenced() && false {",
        &["contract::retract", "contract::races::depending", "model::"],
    ),
    bug(
        "embedded: a protected record is purged",
        EMBEDDED_PURGES,
        "        if record.protected {\n            return Ok(Purged::Protected);",
        "        if false {\n            return Ok(Purged::Protected);",
        &["contract::protection", "model::"],
    ),
    bug(
        "embedded: a transaction is applied in part",
        EMBEDDED_TRANSACTIONS,
        "        for record in written {\n",
        "        for record in written.into_iter().take(1) {\n",
        &["appends::over_the_embedded"],
    ),
    bug(
        "embedded: a check of a transaction is not made",
        EMBEDDED_TRANSACTIONS,
        "        if matches { Judgement::Admissible } else { Judgement::Conflict }",
        "        if matches || true { Judgement::Admissible } else { Judgement::Conflict }",
        &["appends::over_the_embedded"],
    ),
    bug(
        "embedded: a transaction that is repeated answers with a lease that it has not written",
        EMBEDDED_TRANSACTIONS,
        "|record| operable.left_on(&record)",
        "|record| operable.read(&record)",
        &["contract::transactions"],
    ),
    bug(
        "embedded: a branch is not counted at its source",
        EMBEDDED_LEDGERS,
        "parent.branches.saturating_add(1)",
        "parent.branches.saturating_add(0)",
        &["contract::branch", "contract::races::the_count", "model::"],
    ),
    bug(
        "embedded: a dependency that is dropped stays counted",
        EMBEDDED_GRAPH_SOURCES,
        "            self.uncount(target);\n",
        "            let _ = target;\n",
        &["contract::graph_source", "model::"],
    ),
    bug(
        "embedded: a write is answered before the log has it",
        EMBEDDED_WRITER,
        "Some(log) => log.commit(&batch, expired_before),",
        "Some(_) => Ok(()),",
        &["contract::head", "contract::create"],
    ),
];

/// The bugs whose text does not occur exactly once.
pub(crate) fn misplaced(root: &Path) -> Vec<String> {
    let places = BUGS.iter().map(|bug| {
        let text = fs::read_to_string(root.join(bug.file)).unwrap_or_else(|error| panic!("{}: {error}", bug.file));
        (bug, text.matches(bug.find).count())
    });
    let misplaced = places.filter(|(_, found)| *found != 1);
    misplaced.map(|(bug, found)| format!("{}: {} holds {found} times:\n{}", bug.name, bug.file, bug.find)).collect()
}
