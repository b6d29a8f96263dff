import os
import uuid
from collections.abc import Iterator

import pytest

from nameservice_client import Nameservice

# Far longer than a sound service holds up a request, and a busy machine, too.
LONG = {"timeout": 60, "deadline": 120}


class Clock:
    """A clock that only pauses move."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def three_attempts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Calls give up after three attempts: a pause is a third of their deadline, and nothing else takes time."""
    monkeypatch.setattr("nameservice_client.transport.time", Clock())
    monkeypatch.setattr("nameservice_client.transport.backoff", lambda attempt: LONG["deadline"] / 3)


@pytest.fixture
def names() -> Iterator[Nameservice]:
    """The service that .ci/clients-test runs."""
    with Nameservice(os.environ["NAMESERVICE_URL"], **LONG) as names:
        yield names


@pytest.fixture
def address(names: Nameservice) -> str:
    """A new ledger."""
    return names.ledger_create({"address": f"python/{uuid.uuid4().hex}"})["address"]
