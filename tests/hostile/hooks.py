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


@schemathesis.check
def only_a_read_ahead_of_the_service_is_a_server_error(ctx, response, case):
    """Stands for `not_a_server_error`: one 5xx is an answer to the request's own content, the 503 `not-yet` to a read that
    asks for a position or a watermark that nothing has reached."""
    if response.status_code < 500:
        return
    asks_for_freshness = any(name.startswith("min_") for name in case.query or {})
    problem = response.json().get("type", "") if response.status_code == 503 else ""
    if not (asks_for_freshness and problem.endswith("/not-yet")):
        raise AssertionError(f"server error {response.status_code}: {response.text[:500]}")
