"""Which records a reader asks for: of a snapshot the same as of the changes."""

from __future__ import annotations

import fnmatch
import itertools
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from . import models


@dataclass(frozen=True)
class Selection:
    """The filters of `events` that are of records, applied to a snapshot, for which the service has only `prefix`."""

    address: Sequence[str] = ()
    prefix: str | None = None
    kind: str | None = None
    source_type: str | None = None

    @property
    def patterns(self) -> list[str]:
        """The patterns of addresses: one without a branch and a wildcard is of `main`."""
        address = [self.address] if isinstance(self.address, str) else self.address
        return [text if re.search("[:*?]", text) else f"{text}:main" for text in address]

    @property
    def requested(self) -> str | None:
        """The prefix to request: the longest that what is asked for has for certain."""
        fixed = [re.split("[*?]", pattern)[0] for pattern in self.patterns]
        # All others are between these two, and begin as they do.
        ends = zip(min(fixed, default=""), max(fixed, default=""), strict=False)
        common = "".join(one for one, _ in itertools.takewhile(lambda pair: pair[0] == pair[1], ends))
        return max(self.prefix or "", common, key=len) or None

    def of(self, records: Iterable[models.Record]) -> list[models.Record]:
        """Returns those of the records that are asked for."""
        # Brackets are no wildcards of the service.
        patterns = [pattern.replace("[", "[[]") for pattern in self.patterns]
        return [
            record
            for record in records
            if record["address"].startswith(self.prefix or "")
            and (self.kind is None or record["kind"] == self.kind)
            and (self.source_type is None or record.get("source_type") == self.source_type)
            and (not patterns or any(fnmatch.fnmatchcase(record["address"], pattern) for pattern in patterns))
        ]
