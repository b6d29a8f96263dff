//! `push`

use std::collections::BTreeMap;

use clap::{ArgGroup, Args, Subcommand};
use http::Method;
use nameservice_api::{
    Head, Index, PushAnswer, PushStatus,
    requests::{ExpectedIndex, GraphValue, HeadPush, HeadValue, IndexPush, NewIndex},
};
use nameservice_model::{Address, ContentId};
use serde_json::Value;

use super::{conflict::Expectation, lease::ClaimArgs};
use crate::{
    client::write,
    failure::Failure,
    options::{ForeignArgs, KeyArgs},
    output,
    session::{Answer, Session},
    values::{self, RefValue},
};

/// `push`
#[derive(Debug, Subcommand)]
pub enum PushCommand {
    /// Move the head of a ledger to a commit
    Head(PushHeadArgs),
    /// Move the index of a record to an index root
    Index(PushIndexArgs),
}

/// `push head`
#[derive(Debug, Args)]
pub struct PushHeadArgs {
    /// The ledger
    pub address: Address,
    /// The commit
    #[arg(value_parser = ContentId::parse)]
    pub id: ContentId,
    /// Its t
    pub t: i64,
    /// The value that must be stored now.
    #[command(flatten)]
    pub expect: ExpectArgs,
    /// The lease that it is made under.
    #[command(flatten)]
    pub claim: ClaimArgs,
    /// Whether it may store ids that Fluree cannot read.
    #[command(flatten)]
    pub foreign: ForeignArgs,
    /// The key with which it can be repeated.
    #[command(flatten)]
    pub key: KeyArgs,
}

/// `push index`
#[derive(Debug, Args)]
pub struct PushIndexArgs {
    /// The record
    pub address: Address,
    /// The index root
    #[arg(value_parser = ContentId::parse)]
    pub id: ContentId,
    /// The t that it covers
    pub t: i64,
    /// The indexes of named graphs, {"graph": {"id": …, "t": …}, …}: a JSON object, @FILE, or - for stdin
    #[arg(long, value_name = "JSON")]
    pub graphs: Option<String>,
    /// The value that must be stored now.
    #[command(flatten)]
    pub expect: ExpectArgs,
    /// Replace any older index, and one at the same t
    #[arg(long, group = "expectation")]
    pub allow_equal: bool,
    /// The rev of the expected value; not compared, but a repeated push is answered from it
    // clap does not require an argument that conflicts with a present one, as the expected value does with these.
    #[arg(long, value_name = "N", requires = "expect", conflicts_with_all = ["expect_none", "monotonic", "allow_equal"])]
    pub expect_rev: Option<i64>,
    /// The lease that it is made under.
    #[command(flatten)]
    pub claim: ClaimArgs,
    /// Whether it may store ids that Fluree cannot read.
    #[command(flatten)]
    pub foreign: ForeignArgs,
    /// The key with which it can be repeated.
    #[command(flatten)]
    pub key: KeyArgs,
}

/// The value that a push expects. One of them is required: a push says what it may replace.
#[derive(Debug, Args)]
#[command(group = ArgGroup::new("expectation").required(true).multiple(false))]
pub struct ExpectArgs {
    /// The expected value (compare-and-set)
    #[arg(long, value_name = "ID@T", group = "expectation", value_parser = RefValue::parse)]
    pub expect: Option<RefValue>,
    /// Expect no record: the push creates a ledger
    #[arg(long, group = "expectation")]
    pub expect_none: bool,
    /// Expect the record without data
    #[arg(long, group = "expectation")]
    pub expect_unborn: bool,
    /// Replace whatever is stored, if it is older
    #[arg(long, group = "expectation")]
    pub monotonic: bool,
}

pub(crate) async fn run(session: &Session, command: PushCommand) -> Result<(), Failure> {
    match command {
        PushCommand::Head(PushHeadArgs { address, id, t, expect, claim, foreign, key }) => {
            let expected = expected(expect);
            let expectation = expectation(expected.as_ref());
            let push = HeadPush { expected, new: RefValue::new(id, t).into(), lease: claim.claim(&address)? };
            let request =
                write(Method::PUT, "heads", &key).at(&address).query("allow_foreign", foreign.parameter()).body(&push);
            let answer = session.send(request).await;
            let answer = answer.map_err(|failure| expectation.explain(failure, Some(t)))?;
            report(session, &format!("head of {address}"), &answer, |head: &Head| output::head(Some(head)))
        }
        PushCommand::Index(args) => {
            let PushIndexArgs { address, id, t, graphs, allow_equal, expect, expect_rev, claim, foreign, key } = args;
            let HeadValue { id, t } = RefValue::new(id, t).into();
            let graphs = match graphs {
                Some(graphs) => {
                    let text = Value::Object(values::object(&graphs)?).to_string();
                    nameservice_api::json::from_slice::<BTreeMap<String, Option<GraphValue>>>(text.as_bytes())
                        .map_err(|error| Failure::Usage(format!("--graphs: {error}")))?
                }
                None => Default::default(),
            };
            let expected = expected(expect);
            let expectation = expectation(expected.as_ref());
            let expected = expected.map(|expected| expected.map(|expected| expected_index(expected, expect_rev)));
            let new = NewIndex { id, t, graphs };
            let push = IndexPush { expected, new, allow_equal, lease: claim.claim(&address)? };
            let request = write(Method::PUT, "indexes", &key)
                .at(&address)
                .query("allow_foreign", foreign.parameter())
                .body(&push);
            let answer = session.send(request).await;
            let answer = answer.map_err(|failure| expectation.explain(failure, Some(t)))?;
            report(session, &format!("index of {address}"), &answer, |index: &Index| output::index(Some(index)))
        }
    }
}

/// The expectation of a push: `None` is any older value, `Some(None)` is no record.
fn expected(expect: ExpectArgs) -> Option<Option<HeadValue>> {
    if expect.expect_none {
        Some(None)
    } else if expect.expect_unborn {
        Some(Some(RefValue::UNBORN.into()))
    } else {
        expect.expect.map(|expected| Some(expected.into()))
    }
}

fn expected_index(HeadValue { id, t }: HeadValue, rev: Option<i64>) -> ExpectedIndex {
    ExpectedIndex { id, t, rev, graphs: Default::default() }
}

fn expectation(expected: Option<&Option<HeadValue>>) -> Expectation {
    match expected {
        None => Expectation::Older,
        Some(None) => Expectation::NoRecord,
        Some(Some(HeadValue { id, t })) => Expectation::Reference(HeadValue { id: id.clone(), t: *t }),
    }
}

/// Prints the answer to a push. A stale one is printed like any other, but exits as a failure for scripts.
pub(super) fn report<T>(
    session: &Session,
    what: &str,
    answer: &Answer<PushAnswer<T>>,
    words: impl Fn(&T) -> String,
) -> Result<(), Failure> {
    let value = words(&answer.value.value);
    if answer.status == PushStatus::Stale {
        session.output.json_only(&answer.json)?;
        return Err(Failure::Stale(format!("the {what} is {value}, which")));
    }
    let already = if answer.replayed { " (it was stored already)" } else { "" };
    session.output.answer(&answer.json, || format!("{what}: {value}{already}"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_expectation_is_left_out_null_unborn_or_a_value() {
        let body = |expect: Option<RefValue>, expect_none: bool, expect_unborn: bool| {
            let monotonic = expect.is_none() && !expect_none && !expect_unborn;
            let expected = expected(ExpectArgs { expect, expect_none, expect_unborn, monotonic });
            let new = HeadValue { id: None, t: 1 };
            let mut body = json!(HeadPush { expected, new, lease: None });
            body.as_object_mut().unwrap().remove("new");
            body
        };
        assert_eq!(body(None, false, false), json!({}));
        assert_eq!(body(None, true, false), json!({"expected": null}));
        assert_eq!(body(None, false, true), json!({"expected": {"id": null, "t": 0}}));
        let unborn = Some(RefValue::UNBORN);
        assert_eq!(body(unborn, false, false), json!({"expected": {"id": null, "t": 0}}));
        let index = |rev| json!(expected_index(HeadValue { id: Some("a".into()), t: 1 }, rev));
        assert_eq!(index(None), json!({"id": "a", "t": 1}));
        assert_eq!(index(Some(0)), json!({"id": "a", "t": 1, "rev": 0}));
    }
}
