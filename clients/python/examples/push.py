"""Commits a text and moves the head to it, by compare-and-set: push.py ADDRESS TEXT"""

import base64
import hashlib
import json
import sys

from nameservice_client import Nameservice, UnknownRecord, models

address, text = sys.argv[1:]


def commit(stored: models.Head) -> models.HeadValue:
    """Makes a commit on the stored head: again after each conflict, since a commit has the id of the one that it follows."""
    t = stored["t"] + 1
    content = json.dumps({"previous": stored["id"], "t": t, "text": text}).encode()
    # Store the content here, where readers look for it: it has to be there before its id is pushed.
    multihash = b"\x01\x55\x12\x20" + hashlib.sha256(content).digest()
    return {"id": "b" + base64.b32encode(multihash).decode().lower().rstrip("="), "t": t}


with Nameservice() as names:
    try:
        head = names.update_head(address, commit)
    except UnknownRecord:
        sys.exit(f"there is no ledger {address}: create it with names.ledger_create")
    print(f"{address} is at t {head['t']}")
