"""What schemathesis cannot know from the document."""

import itertools

import schemathesis

_count = itertools.count(1)


@schemathesis.hook
def before_call(context, case, kwargs):
    """Makes every Idempotency-Key unique: a key identifies one request, and the example of the document would be sent with
    all of them."""
    key = (case.headers or {}).get("Idempotency-Key")
    if isinstance(key, str) and key and len(key) <= 100 and all("!" <= c <= "~" for c in key):
        case.headers["Idempotency-Key"] = f"{key}{next(_count)}"
