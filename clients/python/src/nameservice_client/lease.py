"""A lease that is kept while a block runs."""

from __future__ import annotations

import logging
import threading
import time
from typing import TYPE_CHECKING

from . import models
from .errors import LeaseLost, NameserviceError, UnknownRecord

if TYPE_CHECKING:
    from .client import Nameservice

LOG = logging.getLogger("nameservice_client")


class Lease:
    """A lease, refreshed in the background at a third of its duration.

    `claim` goes into every push that must not happen without the lease: `{"new": …, "lease": lease.claim}`. Long work calls
    `check()` between its steps; it raises `LeaseLost` once the lease is lost or its deadline has passed without a refresh.
    """

    def __init__(
        self, names: Nameservice, address: str, name: str, holder: str, ttl_seconds: int, target_t: int | None, wait: int
    ) -> None:
        self._names = names
        self._address, self._name, self._holder = address, name, holder
        self._ttl, self._target_t, self._wait = ttl_seconds, target_t, wait
        self._token = 0
        self._deadline = 0.0
        self._ended = threading.Event()
        self._lost: NameserviceError | None = None
        self._keeper = threading.Thread(target=self._keep, name=f"lease {name} of {address}", daemon=True)

    @property
    def token(self) -> int:
        """The fencing token: it grows with every holder."""
        return self._token

    @property
    def claim(self) -> models.Claim:
        """What a push carries to be rejected once the lease is lost."""
        return {"name": self._name, "holder": self._holder, "token": self._token}

    @property
    def is_lost(self) -> bool:
        return self._lost is not None or time.monotonic() >= self._deadline

    def check(self) -> None:
        """Raises `LeaseLost` if the lease is lost."""
        if self.is_lost:
            raise LeaseLost(409, {"type": "/lease-lost", "detail": f"{self._name} of {self._address} is lost"}) from self._lost

    def __enter__(self) -> Lease:
        try:
            self._take(None)
            if self._wait:
                # It is unknown when a wait for the lease ended. A refresh begins a term whose start is known.
                self._take(self._token)
        except BaseException:
            if self._token:
                self._release()
            raise
        self._keeper.start()
        return self

    def __exit__(self, *_: object) -> None:
        # A refresh in flight is not waited for: it is not repeated, and after the release its token is worth nothing.
        self._ended.set()
        self._release()

    def _release(self) -> None:
        """Releases the lease. A failure is logged: what the work has done counts. The lease expires on its own."""
        try:
            self._names.lease_release(self._address, name=self._name, holder=self._holder, token=self._token)
        except (LeaseLost, UnknownRecord):
            # Another holder has it, or the record is gone: there is nothing to release.
            pass
        except NameserviceError as error:
            LOG.warning("the lease %s of %s was not released: %s", self._name, self._address, error)

    def _take(self, token: int | None) -> None:
        # The deadline counts from before the request, on a monotonic clock.
        asked = time.monotonic()
        body: models.Wanted = {"name": self._name, "holder": self._holder, "ttl_seconds": self._ttl}
        if token is not None:
            body["token"] = token
        if self._target_t is not None:
            body["target_t"] = self._target_t
        wait = self._wait if token is None and self._wait else None
        headers = {"Idempotency-Key": None}
        # As `lease_acquire`, and not repeated once the block has ended.
        held = self._names._call("PUT", "/v1/leases/{address}", self._address, {"wait": wait}, headers, body, ended=self._ended)
        self._token = held["token"]
        self._deadline = asked + self._ttl

    def _keep(self) -> None:
        while not self._ended.wait(self._ttl / 3):
            try:
                self._take(self._token)
            except NameserviceError as error:
                if isinstance(error, LeaseLost) or error.status in (401, 403, 404, 410):
                    self._lost = error
                    return
                # Any other failure may be transient: the deadline decides.
            except RuntimeError:
                # The client was closed during a refresh, after the block.
                if not self._ended.is_set():
                    raise
