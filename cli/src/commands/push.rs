//! `push`

use http::Method;
use nameservice_model::Address;
use serde_json::{Value, json};

use super::Session;
use crate::{
    args::{ClaimArgs, ExpectArgs, KeyArgs, PushCommand, PushHeadArgs, PushIndexArgs},
    client::Request,
    failure::Failure,
    output,
    values::{self, RefValue},
};

pub(super) async fn run(session: &Session, command: PushCommand) -> Result<(), Failure> {
    match command {
        PushCommand::Head(PushHeadArgs { address, id, t, expect, claim, key }) => {
            let body = json!({"new": RefValue::new(id, t).to_json()});
            let body = under(claim, &address, with(expect, body))?;
            send(session, "head", "heads", &address, &key, body).await
        }
        PushCommand::Index(PushIndexArgs { address, id, t, graphs, allow_equal, expect, claim, key }) => {
            let mut body = json!({"new": RefValue::new(id, t).to_json()});
            if let Some(graphs) = graphs {
                body["new"]["graphs"] = values::object(&graphs)?.into();
            }
            if allow_equal {
                body["allow_equal"] = true.into();
            }
            let body = under(claim, &address, with(expect, body))?;
            send(session, "index", "indexes", &address, &key, body).await
        }
    }
}

/// Adds the expectation. None at all means: anything older.
fn with(expect: ExpectArgs, mut body: Value) -> Value {
    if expect.expect_none {
        body["expected"] = Value::Null;
    } else if expect.expect_unborn {
        body["expected"] = RefValue::UNBORN.to_json();
    } else if let Some(expected) = expect.expect {
        body["expected"] = expected.to_json();
    }
    body
}

/// Adds the lease under which a push is made, if there is one.
pub(super) fn under(claim: ClaimArgs, address: &Address, mut body: Value) -> Result<Value, Failure> {
    if let Some(claim) = claim.claim(address)? {
        body["lease"] = claim;
    }
    Ok(body)
}

async fn send(
    session: &Session,
    concern: &str,
    path: &str,
    address: &Address,
    key: &KeyArgs,
    body: Value,
) -> Result<(), Failure> {
    let answer = session.send(Request::write(Method::PUT, path, key).at(address).body(body)).await?;
    told(session, &format!("{concern} of {address}"), &answer)
}

/// Tells the answer to a push. A stale one is printed like any other, and is a failure to scripts.
pub(super) fn told(session: &Session, what: &str, answer: &Value) -> Result<(), Failure> {
    let value = output::value(&answer["value"]);
    if answer["status"] == "stale" {
        session.output.json_only(answer)?;
        return Err(Failure::Stale(format!("the {what} is {value}, which")));
    }
    let already = if answer["replayed"] == true { " (it was in place already)" } else { "" };
    session.output.answer(answer, || format!("{what}: {value}{already}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_expectation_is_left_out_null_unborn_or_a_value() {
        let expect = |expect: Option<RefValue>, expect_none, expect_unborn| {
            with(ExpectArgs { expect, expect_none, expect_unborn }, json!({"new": 1}))
        };
        assert_eq!(expect(None, false, false), json!({"new": 1}));
        assert_eq!(expect(None, true, false), json!({"new": 1, "expected": null}));
        assert_eq!(expect(None, false, true), json!({"new": 1, "expected": {"id": null, "t": 0}}));
        let unborn = Some(RefValue::UNBORN);
        assert_eq!(expect(unborn, false, false), json!({"new": 1, "expected": {"id": null, "t": 0}}));
    }
}
