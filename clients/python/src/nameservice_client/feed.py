"""The change feed as it grows."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, cast

import httpx
import httpx_sse

from . import models
from .errors import NameserviceError, PositionExpired, error_of
from .transport import CONNECT, TEMPORARY, UNUSABLE, backoff, error_from, query_of

# A place in the feed: the cursor that the service names, `TIMELINE:POSITION`, or a position of its present history.
Place = str | int
PLACE = re.compile(r"(?:[0-9a-f]{16}:)?[0-9]+")


@dataclass(frozen=True)
class Snapshot:
    """All records that are asked for, from `follow`. What they do not name is gone."""

    records: list[models.Record]
    # Where to continue.
    cursor: Place
    # None at first; why the feed is followed from a new beginning: it no longer holds what followed (`trimmed`), or it is
    # another one (`other-history`, `ahead`).
    reason: str | None


@dataclass(frozen=True)
class Followed:
    """One change, from `follow`."""

    change: models.Change
    # Keep it once the change is handled, to continue from there.
    cursor: Place


@dataclass(frozen=True)
class Streams:
    """How event streams are reached, and how many seconds they may be silent."""

    http: httpx.Client
    url: str
    silence: float
    # Reads the present end of the feed.
    end: Callable[[], Place]

    def changes(self, after: Place | None, filters: Mapping[str, Any]) -> Iterator[Followed]:
        """Yields changes with the place that each reaches, from one place on, across reconnections."""
        if after is not None and not PLACE.fullmatch(str(after)):
            raise ValueError("after is no cursor, and no position")
        failures = 0
        while True:
            try:
                # Requested before the first connection, so that nothing is missed if that breaks.
                if after is None:
                    after = self.end()
                for event in self._stream({**filters, "after": after}):
                    failures = 0
                    if event.event == "expired":
                        raise error_of(410, {**event.json(), "type": "/expired", "detail": "the position has expired"})
                    if event.event == "error":
                        problem = event.json()
                        raise error_of(problem.get("status", 500), problem)
                    # The id of any block shows which place the stream has reached, past what the filters leave out.
                    if PLACE.fullmatch(event.id):
                        after = event.id
                    if event.event == "change":
                        change = event.json()
                        after = cast("Place", change.get("cursor") or event.id or change["position"])
                        yield Followed(cast(models.Change, change), after)
            except UNUSABLE as error:
                raise ValueError(f"{self.url} cannot be followed: {type(error).__name__}") from None
            except httpx.RequestError:
                pass
            except NameserviceError as error:
                if not is_temporary(error):
                    raise
            # A stream that ends as every stream does is opened again at once.
            if failures:
                time.sleep(backoff(failures))
            failures += 1

    def _stream(self, query: Mapping[str, Any]) -> Iterator[httpx_sse.ServerSentEvent]:
        timeout = httpx.Timeout(self.silence, connect=min(CONNECT, self.silence))
        url = f"{self.url}/v1/events"
        with httpx_sse.connect_sse(self.http, "GET", url, params=query_of(query), timeout=timeout) as source:
            if source.response.status_code != 200:
                source.response.read()
                raise error_from(source.response)
            try:
                yield from source.iter_sse()
            except httpx_sse.SSEError:
                raise NameserviceError(200, {"detail": f"what {self.url} answers is no stream of events"}) from None

    def follow(
        self, snapshot: Callable[[], tuple[list[models.Record], Place]], after: Place | None, filters: Mapping[str, Any]
    ) -> Iterator[Snapshot | Followed]:
        """Yields a snapshot, unless `after` says where to continue, and then what changes; and so on where that ends."""
        reason: str | None = None
        vain = 0
        while True:
            if vain > 1:
                time.sleep(backoff(vain))
            vain += 1
            try:
                if after is None:
                    records, after = snapshot()
                    yield Snapshot(records, after, reason)
                for followed in self.changes(after, filters):
                    vain = 0
                    yield followed
            except PositionExpired as error:
                after, reason = None, error.reason
            except NameserviceError as error:
                # Unless the service is not available, so that a snapshot can be read later.
                if not is_temporary(error):
                    raise


def is_temporary(error: NameserviceError) -> bool:
    """Returns whether the service was not reached, or has failed in a way that may pass."""
    return error.status == 0 or error.status in TEMPORARY
