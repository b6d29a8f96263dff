"""Rejections of the service, as exceptions."""

from __future__ import annotations

from typing import Any


class NameserviceError(Exception):
    """A problem document (RFC 9457), or a failure without one.

    `kind` is the last part of its stable `type`, such as `conflict`; `status` the HTTP status, 0 if no answer came;
    `problem` the whole document, whose further members depend on the kind.
    """

    def __init__(self, status: int, problem: dict[str, Any]) -> None:
        self.status = status
        self.problem = problem
        self.kind = str(problem.get("type", "")).rpartition("/")[2]
        super().__init__(problem.get("detail") or problem.get("title") or problem.get("message") or f"status {status}")


class Conflict(NameserviceError):
    """Certainly not written: another value than the expected one is stored.

    `actual` is that value, None if there is no record.
    """

    @property
    def actual(self) -> Any:
        return self.problem.get("actual")


class TransactionRejected(NameserviceError):
    """Certainly nothing was written; `results` has what came of each operation."""

    @property
    def results(self) -> list[Any]:
        return list(self.problem.get("results", []))


class AlreadyExists(NameserviceError):
    """A record with this address exists."""


class UnknownRecord(NameserviceError):
    """There is no such record, or none that the token covers."""


class Retracted(NameserviceError):
    """The record is retracted: restore it first."""


class HasDependents(NameserviceError):
    """Others depend on the record; `dependents` are their addresses."""

    @property
    def dependents(self) -> list[str]:
        return list(self.problem.get("dependents", []))


class LeaseHeld(NameserviceError):
    """Another holder has a lease of this record; `lease` shows it."""

    @property
    def lease(self) -> Any:
        return self.problem.get("lease")


class LeaseLost(NameserviceError):
    """The lease is not held under this token any more: stop the work that it protects."""


class NotAllowed(NameserviceError):
    """The token is missing, not valid, or does not allow this."""


class PositionExpired(NameserviceError):
    """The feed does not continue from this place: begin again with a snapshot.

    `oldest` is the first position that it holds. `reason` is `trimmed` if it no longer holds what follows, `other-history`
    if the place is of another history, such as one ahead of a restored backup, and `ahead` if the position is beyond its end.
    """

    @property
    def oldest(self) -> int | None:
        return self.problem.get("oldest")

    @property
    def reason(self) -> str:
        return str(self.problem.get("reason") or ("ahead" if self.kind == "position-ahead" else "trimmed"))


class NotYet(NameserviceError):
    """What is stored is older than `min_position`, `min_t` or `min_v` asked for."""


class Unavailable(NameserviceError):
    """Certainly not written: the service, or what is behind it, is not available."""


class OutcomeUnknown(NameserviceError):
    """The write may or may not have been applied: read the record, or repeat the call with this `idempotency_key`."""

    @property
    def idempotency_key(self) -> str | None:
        return self.problem.get("idempotency_key")


KINDS: dict[str, type[NameserviceError]] = {
    "conflict": Conflict,
    "transaction-refused": TransactionRejected,
    "already-exists": AlreadyExists,
    "unknown-record": UnknownRecord,
    "unknown-source": UnknownRecord,
    "retracted": Retracted,
    "has-dependents": HasDependents,
    "lease-held": LeaseHeld,
    "lease-lost": LeaseLost,
    "unauthorized": NotAllowed,
    "insufficient-scope": NotAllowed,
    "address-not-covered": NotAllowed,
    "expired": PositionExpired,
    "position-ahead": PositionExpired,
    "not-yet": NotYet,
    "unavailable": Unavailable,
    "feed-unavailable": Unavailable,
    "outcome-unknown": OutcomeUnknown,
}


def error_of(status: int, problem: dict[str, Any]) -> NameserviceError:
    """Returns the exception for a rejection. A gateway's own rejections are no problem documents."""
    kind = str(problem.get("type", "")).rpartition("/")[2]
    by_status = {401: NotAllowed, 403: NotAllowed, 429: Unavailable}
    return KINDS.get(kind, by_status.get(status, NameserviceError))(status, problem)
