"""Keeps a copy of all heads, from a snapshot on: follow.py [CHANGES], which ends after so many changes"""

import sys

from nameservice_client import Nameservice, Snapshot

changes = int(sys.argv[1]) if len(sys.argv) > 1 else -1
heads: dict[str, object] = {}
with Nameservice() as names:
    for event in names.follow(concern=["head"]):
        if isinstance(event, Snapshot):
            # The first, or another one: the program was away for longer than the feed's retention, or a backup was restored.
            heads = {record["address"]: record.get("head") for record in event.records}
            print(f"{len(heads)} records at position {event.cursor}", flush=True)
        else:
            change = event.change
            heads[change["address"]] = change.get("payload")
            print(f"{change['position']} {change['address']} t {change['watermark']}", flush=True)
            changes -= 1
        if changes == 0:
            break
