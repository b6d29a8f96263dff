"""Works under a lease: index.py ADDRESS. What it publishes is rejected once another indexer has the lease."""

import sys
from typing import cast

from nameservice_client import LeaseHeld, Nameservice, models

address = sys.argv[1]
with Nameservice() as names:
    record = names.record_get(address)
    head, index = (record.get("head"), record.get("index")) if record else (None, None)
    if not head or not index or head["t"] <= index["t"]:
        sys.exit(f"the index of {address} is up to date")
    try:
        with names.lease(address, "index_lock", ttl_seconds=60, target_t=head["t"]) as lease:
            # Build the index here, and call lease.check() between the steps.
            new = cast(models.NewIndex, {"id": head["id"], "t": head["t"]})
            names.index_push(address, {"new": new, "lease": lease.claim})
            print(f"indexed {address} to t {head['t']} under token {lease.token}")
    except LeaseHeld as held:
        sys.exit(f"{held.lease['holder']} is at it")
