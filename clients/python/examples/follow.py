"""Keeps a copy of all heads, from a snapshot on: follow.py [CHANGES], which ends after so many changes"""

import sys

from nameservice_client import Nameservice, PositionExpired


def follow(names: Nameservice, changes: int) -> None:
    records, position = names.snapshot()
    heads = {record["address"]: record.get("head") for record in records}
    print(f"{len(heads)} records at position {position}", flush=True)
    if changes == 0:
        return
    for change in names.events(after=position, concern=["head"]):
        heads[change["address"]] = change.get("payload")  # type: ignore[assignment]
        print(f"{change['position']} {change['address']} t {change['watermark']}", flush=True)
        changes -= 1
        if changes == 0:
            return


limit = int(sys.argv[1]) if len(sys.argv) > 1 else -1
with Nameservice() as names:
    while True:
        try:
            follow(names, limit)
            break
        except PositionExpired:
            continue  # The program was away for longer than the feed's retention: begin again with a snapshot.
