"""The service, over HTTP."""

from __future__ import annotations

import os
import platform
import secrets
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal, cast

import httpx

from . import models
from .errors import Conflict, NameserviceError
from .feed import Followed, Place, Snapshot, Streams
from .lease import Lease
from .operations import Operations
from .selection import Selection
from .transport import Transport, client_of, place_of, query_of

Concern = Literal["meta", "head", "index", "status", "config"]
Kind = Literal["ledger", "graph_source"]


class Nameservice(Operations):
    """A service at a URL.

    Every operation is a method named as in the OpenAPI document, which takes and returns dictionaries (`models`). A
    rejection raises a `NameserviceError`. Writes carry an `Idempotency-Key`, and are repeated under it while the outcome is
    unknown, so that a lost answer is neither applied twice nor reported as a conflict with itself.

    url: by default NAMESERVICE_URL, else http://127.0.0.1:8080. token: by default NAMESERVICE_TOKEN. Those that cannot be
    used raise `ValueError`.
    events_url: where event streams are served, if elsewhere (on AWS).
    deadline: how many seconds a call may take with all its attempts, longer than a restart of the service. What the
    service is asked to `wait` is added. 0 for one attempt.
    timeout: how many seconds one attempt may take, its answer included; half of the deadline at most, so that a connection
    that has died is replaced in time.
    silence: how many seconds an event stream may be silent before it is opened again. The service writes every 15 seconds.
    transport: of httpx, for proxies and tests.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        token: str | None = None,
        events_url: str | None = None,
        deadline: float = 20,
        timeout: float = 35,
        silence: float = 50,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        self._url, credentials = place_of(url or os.environ.get("NAMESERVICE_URL") or "http://127.0.0.1:8080")
        events, _ = place_of(events_url) if events_url else (self._url, None)
        self._http = client_of(token or os.environ.get("NAMESERVICE_TOKEN"), credentials, transport)
        self._transport = Transport(self._http, self._url, deadline, timeout)
        self._streams = Streams(self._http, events, silence, lambda: _place_after(self.snapshot_get(limit=1)))

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
        to leave it. It is called again after a conflict, with the head that another writer has stored meanwhile, and has to
        make the commit anew, on that head: one made before leaves the other writer's out of the history. The same commit
        again is a `ValueError`. Returns the head that is stored then. Raises `Conflict` after so many attempts.
        """
        record = self.record_get(address, concerns=["head"])
        head = record.get("head") if record else None
        if head is None:
            raise NameserviceError(404, {"type": "/wrong-kind", "detail": f"{address} has no head: it is no ledger"})
        # The head on which each commit was made.
        parents: dict[str | None, str | None] = {}
        for attempt in range(attempts):
            new = decide(head)
            if new is None:
                return head
            commit, stored = new.get("id"), head["id"]
            # A commit that is stored already leaves none out.
            if parents.setdefault(commit, stored) != stored and commit != stored:
                raise ValueError(
                    f"nothing was pushed: commit {commit} was made before another writer moved the head of {address} to "
                    f"{stored}, which it does not follow; make a new commit on the head that is passed"
                )
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

    def snapshot(
        self,
        *,
        address: Sequence[str] = (),
        prefix: str | None = None,
        kind: Kind | None = None,
        source_type: str | None = None,
    ) -> tuple[list[models.Record], Place]:
        """Returns all records, and the place in the feed from which to follow what happens to them.

        The filters are those of `events`. The place is a cursor, or the position, if the service sends no cursors.
        """
        selection = Selection(address, prefix, kind, source_type)
        page = self.snapshot_get(prefix=selection.requested)
        records, place = selection.of(page["records"]), _place_after(page)
        while cursor := page.get("cursor"):
            page = self.snapshot_get(prefix=selection.requested, cursor=cursor)
            records += selection.of(page["records"])
        return records, place

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
        after: Place | None = None,
        address: Sequence[str] = (),
        prefix: str | None = None,
        kind: Kind | None = None,
        source_type: str | None = None,
        concern: Sequence[Concern] = (),
    ) -> Iterator[models.Change]:
        """Yields changes as they happen, in the order of the feed, each once, across reconnections.

        after: the place up to which everything is known, by default the end of the feed. Keep the `cursor` of each change
        once it is handled (its `position`, if the service sends none), to continue from there after a restart. Raises
        `PositionExpired` if the feed does not continue from there: begin again with `snapshot`, or use `follow`, which
        does. It does not end on its own.
        """
        filters = {"address": address, "prefix": prefix, "kind": kind, "source_type": source_type, "concern": concern}
        for followed in self._streams.changes(after, filters):
            yield followed.change

    def follow(
        self,
        *,
        after: Place | None = None,
        address: Sequence[str] = (),
        prefix: str | None = None,
        kind: Kind | None = None,
        source_type: str | None = None,
        concern: Sequence[Concern] = (),
    ) -> Iterator[Snapshot | Followed]:
        """Yields a `Snapshot` of all records, and then what happens to them, as `events` does, each as a `Followed`.

        after: the `cursor` of before, from which to continue without a snapshot. Keep that of each event once it is handled.
        If the feed does not continue there, because it no longer holds what follows, or is another one, such as that of a
        restored backup, another `Snapshot` comes, with the `reason`: forget what it does not name. All filters but
        `concern`, which is of the changes alone, select the records of a snapshot, too.
        """
        filters = {"address": address, "prefix": prefix, "kind": kind, "source_type": source_type, "concern": concern}

        def snapshot() -> tuple[list[models.Record], Place]:
            records, place = self.snapshot(address=address, prefix=prefix, kind=kind, source_type=source_type)
            # Filters that the service rejects are an error before a snapshot of nothing says that everything is gone.
            if query_of(filters):
                self._call("GET", "/v1/changes", None, {**filters, "after": place, "limit": 1}, {}, None)
            return records, place

        return self._streams.follow(snapshot, after, filters)

    # --- requests ---

    def _call(
        self,
        method: str,
        path: str,
        address: str | None,
        query: Mapping[str, Any],
        headers: Mapping[str, Any],
        body: Any,
        ended: threading.Event | None = None,
    ) -> Any:
        return self._transport.call(method, path, address, query, headers, body, ended)


def _place_after(page: models.SnapshotPage) -> Place:
    """Returns where to continue after a snapshot: the cursor, from a service that sends it."""
    return cast("dict[str, Place]", page).get("feed_cursor") or page["position"]
