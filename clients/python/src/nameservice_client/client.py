"""The service, over HTTP."""

from __future__ import annotations

import os
import platform
import random
import secrets
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal, cast
from urllib.parse import quote

import httpx
import httpx_sse

from . import models
from .errors import Conflict, NameserviceError, NotYet, OutcomeUnknown, Unavailable, error_of
from .lease import Lease
from .operations import Operations

Concern = Literal["meta", "head", "index", "status", "config"]
# What may be transient: too many requests, and failures of the service or of something in front of it.
TEMPORARY = {429, 500, 502, 503, 504}
OUTCOME_UNKNOWN = "https://nameservice.dev/problems/outcome-unknown"


class Nameservice(Operations):
    """A service at a URL.

    Every operation is a method named as in the OpenAPI document, which takes and returns dictionaries (`models`). A
    rejection raises a `NameserviceError`. Writes carry an `Idempotency-Key`, and are repeated under it while the outcome is
    unknown, so that a lost answer is neither applied twice nor reported as a conflict with itself.

    url: by default NAMESERVICE_URL, else http://127.0.0.1:8080. token: by default NAMESERVICE_TOKEN.
    events_url: where event streams are served, if elsewhere (on AWS). timeout: of one request, in seconds.
    attempts: how often a request is sent at most. transport: of httpx, for proxies and tests.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        token: str | None = None,
        events_url: str | None = None,
        timeout: float = 35,
        attempts: int = 6,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        url = url or os.environ.get("NAMESERVICE_URL") or "http://127.0.0.1:8080"
        self._url = url.rstrip("/")
        self._events_url = (events_url or url).rstrip("/")
        self._attempts = attempts
        token = token or os.environ.get("NAMESERVICE_TOKEN")
        headers = {"authorization": f"Bearer {token}"} if token else {}
        self._http = httpx.Client(headers=headers, timeout=timeout, transport=transport)

    def close(self) -> None:
        """Closes its connections."""
        self._http.close()

    def __enter__(self) -> Nameservice:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # --- conflicts ---

    def update_head(
        self,
        address: str,
        decide: Callable[[models.Head], models.HeadValue | None],
        *,
        lease: models.Claim | None = None,
        attempts: int = 10,
    ) -> models.Head:
        """Moves a head by compare-and-set, deciding again after each conflict.

        `decide` gets the stored head (`{"id": None, "t": 0}` if there is no commit yet) and returns the new one, or None
        to leave it. Returns the head that is stored then. Raises `Conflict` after so many attempts.
        """
        record = self.record_get(address, concerns=["head"])
        head = record.get("head") if record else None
        if head is None:
            raise NameserviceError(404, {"type": "/wrong-kind", "detail": f"{address} has no head: it is no ledger"})
        for attempt in range(attempts):
            new = decide(head)
            if new is None:
                return head
            body: models.HeadPush = {"expected": cast(models.HeadValue, head), "new": new}
            if lease is not None:
                body["lease"] = lease
            try:
                return self.head_push(address, body)["value"]
            except Conflict as conflict:
                if attempt + 1 == attempts or conflict.actual is None:
                    raise
                head = cast(models.Head, conflict.actual)
        raise ValueError("at least one attempt is required")

    # --- leases ---

    def lease(
        self,
        address: str,
        name: str,
        holder: str | None = None,
        *,
        ttl_seconds: int = 300,
        target_t: int | None = None,
        wait: int = 0,
    ) -> Lease:
        """Acquires a lease and keeps it, until the block ends or it is lost: `with names.lease("mydb", "index_lock") as lease`.

        holder: by default a name of this call: host, process and a random part, so that no two threads, and no two
        containers of one host name, are the same holder. wait: how many seconds to wait for another holder, at most 20.
        Raises `LeaseHeld` if another holder has it.
        """
        holder = holder or f"{platform.node()}-{os.getpid()}-{secrets.token_hex(4)}"
        return Lease(self, address, name, holder, ttl_seconds, target_t, wait)

    # --- reading everything, and following changes ---

    def snapshot(self, *, prefix: str | None = None) -> tuple[list[models.Record], int]:
        """Returns all records, and the position of the feed from which to follow what happens to them."""
        page = self.snapshot_get(prefix=prefix)
        records, position = list(page["records"]), page["position"]
        while cursor := page.get("cursor"):
            page = self.snapshot_get(prefix=prefix, cursor=cursor)
            records += page["records"]
        return records, position

    def records(self, **filters: Any) -> Iterator[models.Listed]:
        """Yields the records of a list, page by page; the filters are those of `record_list`."""
        cursor: str | None = None
        while True:
            page = self.record_list(**filters, cursor=cursor)
            yield from page["records"]
            cursor = page.get("cursor")
            if not cursor:
                return

    def events(
        self,
        *,
        after: int | None = None,
        address: Sequence[str] = (),
        prefix: str | None = None,
        kind: Literal["ledger", "graph_source"] | None = None,
        source_type: str | None = None,
        concern: Sequence[Concern] = (),
    ) -> Iterator[models.Change]:
        """Yields changes as they happen, in the order of the feed, each once, across reconnections.

        after: the position up to which everything is known, by default the end of the feed. Keep the `position` of each
        change once it is handled, to continue from there after a restart. Raises `PositionExpired` if the feed no longer
        holds what follows: begin again with `snapshot`. It does not end on its own.
        """
        query = {"address": address, "prefix": prefix, "kind": kind, "source_type": source_type, "concern": concern}
        # Requested before the first connection, so that nothing is missed if that breaks.
        position = after if after is not None else self.snapshot_get(limit=1)["position"]
        failures = 0
        while True:
            params = _query({**query, "after": position})
            # The service sends something every few seconds, so a longer silence is a broken connection.
            timeout = httpx.Timeout(35, read=60)
            try:
                with httpx_sse.connect_sse(
                    self._http, "GET", f"{self._events_url}/v1/events", params=params, timeout=timeout
                ) as source:
                    if source.response.status_code != 200:
                        source.response.read()
                        raise _error(source.response)
                    for event in source.iter_sse():
                        failures = 0
                        if event.event == "expired":
                            raise error_of(410, {**event.json(), "type": "/expired", "detail": "the position has expired"})
                        if event.event == "error":
                            problem = event.json()
                            raise error_of(problem.get("status", 500), problem)
                        if event.id.isdigit():
                            position = int(event.id)
                        if event.event == "change":
                            yield cast(models.Change, event.json())
            except (httpx.TransportError, httpx_sse.SSEError):
                pass
            except NameserviceError as error:
                if error.status not in TEMPORARY:
                    raise
            failures += 1
            time.sleep(_backoff(failures) if failures > 1 else 0)

    # --- requests ---

    def _call(
        self,
        method: str,
        path: str,
        address: str | None,
        query: Mapping[str, Any],
        headers: Mapping[str, Any],
        body: Any,
    ) -> Any:
        # An address comes last in a path and may hold any character.
        url = self._url + path.replace("{address}", quote(address or "", safe=""))
        sent = {name: str(value) for name, value in headers.items() if value is not None}
        reads = method == "GET" or path == "/v1/changes/compare"
        writes_once = "Idempotency-Key" in headers
        if writes_once:
            sent.setdefault("Idempotency-Key", str(uuid.uuid4()))
        unknown = False
        last: NameserviceError = Unavailable(0, {"detail": "no request was sent"})
        for attempt in range(self._attempts if reads or writes_once else 1):
            if attempt:
                time.sleep(_backoff(attempt))
            try:
                response = self._http.request(method, url, params=_query(query), headers=sent, json=body)
            except httpx.TransportError as error:
                # Without a connection, nothing was sent.
                unknown = unknown or not (reads or isinstance(error, httpx.ConnectError))
                last = Unavailable(0, {"detail": f"{url} cannot be reached: {error}"})
                continue
            if response.status_code == 304:
                return None
            if response.is_success:
                return response.json() if response.content else None
            last = _error(response)
            if response.status_code not in TEMPORARY or isinstance(last, NotYet):
                if unknown and not _is_decision(last):
                    break
                raise last
            # Certainly not written. After anything else, such as the 502 of a gateway, the outcome is unknown.
            unknown = unknown or not (reads or response.status_code == 429 or last.kind == "unavailable")
        if unknown and not isinstance(last, OutcomeUnknown):
            problem = {**last.problem, "type": OUTCOME_UNKNOWN, "detail": f"the outcome is unknown: {last}"}
            raise OutcomeUnknown(last.status, problem) from last
        raise last


def _is_decision(error: NameserviceError) -> bool:
    """Returns whether the service has decided on the write after it looked for its key.

    Had an earlier attempt been applied, it would have answered as at first. What is answered before (a token, the size of
    a body) proves nothing about that attempt. Neither does a record that is gone, retracted, or of another kind, nor a conflict
    that shows no value: the record that remembered the attempt may have been purged since. A lease may have ended after the
    attempt, and items of a transaction may have forgotten it.
    """
    if error.kind == "conflict" and error.problem.get("actual") is None:
        return False
    forgetful = ("", "retracted", "wrong-kind", "lease-lost", "transaction-refused")
    return error.kind not in forgetful and error.status in (409, 410, 422)


def _query(query: Mapping[str, Any]) -> list[tuple[str, str | int | float | bool | None]]:
    pairs: list[tuple[str, str | int | float | bool | None]] = []
    for name, value in query.items():
        values = [value] if isinstance(value, (str, int, float)) else (value or [])
        pairs += [(name, one) for one in values]
    return pairs


def _error(response: httpx.Response) -> NameserviceError:
    try:
        problem = response.json()
    except ValueError:
        problem = None
    return error_of(response.status_code, problem if isinstance(problem, dict) else {"detail": response.text[:500]})


def _backoff(attempt: int) -> float:
    """Seconds to wait before the next attempt: up to twice as long each time, ten seconds at most."""
    return random.uniform(0, min(10, 0.1 * 2**attempt))
