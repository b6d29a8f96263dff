"""What schemathesis has to know beyond the document."""

import itertools

import schemathesis

_count = itertools.count(1)


@schemathesis.hook
def before_call(context, case, kwargs):
    """A key names one request (contract: sent again under the same key, the same request is not applied twice): one that
    is used for all, as an example is, would make every request a repetition of the first."""
    key = (case.headers or {}).get("Idempotency-Key")
    if isinstance(key, str) and key and len(key) <= 100 and all("!" <= c <= "~" for c in key):
        case.headers["Idempotency-Key"] = f"{key}{next(_count)}"
