import os
import uuid
from collections.abc import Iterator

import pytest

from nameservice_client import Nameservice


@pytest.fixture
def names() -> Iterator[Nameservice]:
    """The service that .ci/clients-test runs."""
    with Nameservice(os.environ["NAMESERVICE_URL"]) as names:
        yield names


@pytest.fixture
def address(names: Nameservice) -> str:
    """A new ledger."""
    return names.ledger_create({"address": f"python/{uuid.uuid4().hex}"})["address"]
