"""Client of the nameservice: typed operations, events, leases and conflicts.

from nameservice_client import Nameservice

with Nameservice() as names:
    names.ledger_create({"address": "mydb"})
    # Called again after a conflict: the commit is made anew on the head that is stored then.
    names.update_head("mydb", lambda head: {"id": commit_on(head["id"]), "t": head["t"] + 1})
    for change in names.events(after=0, address=["mydb:*"]):
        print(change["position"], change["concern"], change["watermark"])
"""

from . import models
from .client import Nameservice
from .errors import (
    AlreadyExists,
    Conflict,
    HasDependents,
    LeaseHeld,
    LeaseLost,
    NameserviceError,
    NotAllowed,
    NotYet,
    OutcomeUnknown,
    PositionExpired,
    Retracted,
    TransactionRejected,
    Unavailable,
    UnknownRecord,
)
from .feed import Followed, Snapshot
from .lease import Lease

__all__ = [
    "AlreadyExists",
    "Conflict",
    "Followed",
    "HasDependents",
    "Lease",
    "LeaseHeld",
    "LeaseLost",
    "Nameservice",
    "NameserviceError",
    "NotAllowed",
    "NotYet",
    "OutcomeUnknown",
    "PositionExpired",
    "Retracted",
    "Snapshot",
    "TransactionRejected",
    "Unavailable",
    "UnknownRecord",
    "models",
]
