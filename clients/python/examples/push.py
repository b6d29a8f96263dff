"""Moves a head by compare-and-set: push.py ADDRESS CONTENT_ID"""

import sys

from nameservice_client import Nameservice, UnknownRecord

address, commit = sys.argv[1:]
with Nameservice() as names:
    try:
        head = names.update_head(address, lambda stored: {"id": commit, "t": stored["t"] + 1})
    except UnknownRecord:
        sys.exit(f"there is no ledger {address}: create it with names.ledger_create")
    print(f"{address} is at t {head['t']}")
