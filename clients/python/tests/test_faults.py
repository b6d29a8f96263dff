"""What the client does with a service that fails: FAULTS_URL is that of clients/faults.py.

The cases are those of clients/typescript/test/faults.test.ts.
"""

import base64
import hashlib
import json
import logging
import os
import time
import uuid

import httpx
import httpx_sse
import pytest
import sseclient
from conftest import LONG

from nameservice_client import (
    Followed,
    Nameservice,
    NameserviceError,
    NotAllowed,
    OutcomeUnknown,
    PositionExpired,
    Snapshot,
    Unavailable,
)

URL = os.environ.get("FAULTS_URL", "")
pytestmark = pytest.mark.skipif(not URL, reason="FAULTS_URL is not set")
UNBORN = {"id": None, "t": 0}
# Longer than a test may take.
NEVER = {"timeout": 900, "deadline": 1800}


def head(n):
    digest = hashlib.sha256(str(n).encode()).digest()
    return {"id": "b" + base64.b32encode(b"\x01\x55\x12\x20" + digest).decode().lower().rstrip("="), "t": n}


class Faulty:
    """A client that meets the faults of a plan."""

    def __init__(self, plan, **options):
        self.name, self.plan = uuid.uuid4().hex, plan.split(",")
        self.names = Nameservice(f"{URL}/{self.name}/{plan}", **{**LONG, **options})

    @property
    def requests(self):
        return httpx.get(f"{URL}/requests/{self.name}", timeout=60).json()

    def assert_met(self):
        """Asserts that the plan was met, and that one request without a fault followed.

        Where a fault hangs, the client is not patient: a request that the machine held up was then repeated, too.
        """
        met = [request["fault"] for request in self.requests]
        planned = [*self.plan, "-"]
        assert met[: len(planned)] == planned
        assert len(met) == len(planned) or self.plan[0].startswith("hang"), met


def patience(fault):
    """How many seconds a client waits for an answer, or for the next event: long, unless it never comes."""
    return 1 if fault.startswith("hang") else LONG["timeout"]


@pytest.fixture
def sound():
    """A client without faults."""
    with Nameservice(f"{URL}/sound/-", **LONG) as names:
        yield names


@pytest.fixture
def ledger(sound):
    return sound.ledger_create({"address": f"faults/{uuid.uuid4().hex}"})["address"]


@pytest.mark.parametrize(
    "fault",
    ["lost", "cut-headers", "cut-body", "cut-silently", "hang", "hang-body", "unavailable", "gateway", "outcome-unknown"],
)
def test_a_write_is_applied_once_through_every_fault(sound, ledger, fault):
    faulty = Faulty(f"{fault},{fault}", timeout=patience(fault))
    assert faulty.names.head_push(ledger, {"expected": UNBORN, "new": head(1)})["status"] == "updated"
    faulty.assert_met()
    keys = {request["key"] for request in faulty.requests}
    assert len(keys) == 1 and None not in keys
    assert [change["concern"] for change in sound.history_list(ledger)["changes"]].count("head") == 1


@pytest.mark.parametrize(
    "fault", ["lost", "cut-headers", "cut-body", "cut-silently", "hang", "hang-body", "unavailable", "gateway"]
)
def test_a_read_is_repeated_through_every_fault(ledger, fault):
    faulty = Faulty(f"{fault},{fault}", timeout=patience(fault))
    assert faulty.names.record_get(ledger)["head"] == UNBORN
    faulty.assert_met()


def test_a_write_that_is_lost_is_known_again_after_a_restart(sound, ledger):
    faulty = Faulty("restart")
    begun = time.monotonic()
    assert faulty.names.head_push(ledger, {"expected": UNBORN, "new": head(1)})["status"] == "updated"
    assert time.monotonic() - begun > 3
    assert len({request["key"] for request in faulty.requests}) == 1
    assert [change["concern"] for change in sound.history_list(ledger)["changes"]].count("head") == 1


@pytest.mark.parametrize("fault", ["hang", "hang-body"])
def test_a_call_ends_with_its_deadline(ledger, fault):
    with pytest.raises(Unavailable):
        Faulty(f"{fault}*", **{**NEVER, "deadline": 1}).names.record_get(ledger)


def test_an_attempt_ends_with_its_timeout_though_there_is_always_something_to_read(ledger):
    def drip():
        while True:
            time.sleep(0.05)
            yield b" "

    transport = httpx.MockTransport(lambda request: httpx.Response(200, content=drip()))
    with pytest.raises(Unavailable):
        Nameservice(URL, deadline=1, transport=transport).record_get(ledger)


def test_a_write_that_the_service_never_decides_on_is_unknown_with_its_key(sound, ledger, three_attempts):
    faulty = Faulty("cut-body*")
    with pytest.raises(OutcomeUnknown) as unknown:
        faulty.names.head_push(ledger, {"expected": UNBORN, "new": head(1)})
    key = unknown.value.idempotency_key
    assert [request["key"] for request in faulty.requests] == [key] * 3
    again = sound.head_push(ledger, {"expected": UNBORN, "new": head(1)}, idempotency_key=key)
    assert (again["status"], again["replayed"]) == ("updated", True)


def test_a_service_that_is_unavailable_has_written_nothing(sound, ledger, three_attempts):
    faulty = Faulty("unavailable*")
    with pytest.raises(Unavailable):
        faulty.names.head_push(ledger, {"new": head(1)})
    assert len(faulty.requests) == 3
    assert sound.record_get(ledger)["head"] == UNBORN


def test_a_failed_release_warns_and_the_result_of_the_work_counts(ledger, caplog):
    with caplog.at_level(logging.WARNING, "nameservice_client"):
        with Faulty("-,forbidden*").names.lease(ledger, "index_lock", "one"):
            pass
        assert "was not released" in caplog.text
        caplog.clear()
        with pytest.raises(KeyError, match="of the work"), Faulty("-,forbidden*").names.lease(ledger, "index_lock", "one"):
            raise KeyError("of the work")
    assert "was not released" in caplog.text


def test_a_wait_whose_second_request_fails_leaves_no_lease(sound, ledger):
    with pytest.raises(NotAllowed):
        Faulty("-,forbidden").names.lease(ledger, "index_lock", wait=5).__enter__()
    assert sound.record_get(ledger)["status"]["payload"]["state"] == "ready"


def test_the_end_of_a_block_does_not_wait_for_a_refresh(ledger):
    faulty = Faulty("-,hang,-", **NEVER)
    # lint: its refresh is to be soon, and whether it is lost meanwhile makes no difference
    lease = faulty.names.lease(ledger, "index_lock", ttl_seconds=3).__enter__()
    while len(faulty.requests) < 2:
        time.sleep(0.05)
    lease.__exit__()
    assert [request["fault"] for request in faulty.requests] == ["-", "hang", "-"]


@pytest.mark.parametrize("fault", ["lost", "cut-headers", "cut-body", "hang-body", "unavailable", "gateway"])
def test_events_are_complete_through_every_fault(sound, ledger, fault):
    _, after = sound.snapshot()
    for n in range(1, 10):
        sound.head_push(ledger, {"new": head(n)})
    faulty = Faulty(f"{fault},{fault}", silence=patience(fault))
    seen = []
    for change in faulty.names.events(after=after, address=[ledger], concern=["head"]):
        seen.append(change["watermark"])
        if len(seen) == 9:
            break
    assert seen == list(range(1, 10))
    faulty.assert_met()
    if fault in ("cut-body", "hang-body"):
        # It goes on where it was, not where it began.
        assert len({request["path"] for request in faulty.requests[:3]}) == 3


@pytest.mark.parametrize(
    "read",
    [
        pytest.param(lambda stream: sseclient.SSEClient(stream.iter_bytes()).events(), id="sseclient-py"),
        pytest.param(lambda stream: httpx_sse.EventSource(stream).iter_sse(), id="httpx-sse"),
    ],
)
def test_a_library_of_others_loses_nothing_whatever_block_its_stream_is_cut_after(sound, ledger, read):
    _, after = sound.snapshot()
    cuts = ["cut-after-beginning", "cut-after-change", "cut-after-heartbeat", "stop"]
    url = f"{URL}/{uuid.uuid4().hex}/{','.join(cuts)}/v1/events"
    filters = {"address": ledger, "concern": "head"}
    last, seen, t, connections = None, [], 0, 0
    while connections <= len(cuts) or seen[-1]["watermark"] < t:
        if connections > 0:
            assert last, "it would begin again with what changes then"
            # While it is not connected, something changes.
            t += 1
            sound.head_push(ledger, {"new": head(t)})
        connections += 1
        headers = {"last-event-id": last} if last else {}
        with httpx.stream("GET", url, params=filters, headers=headers, timeout=LONG["timeout"]) as stream:
            for event in read(stream):
                last = event.id or last
                if event.event == "change":
                    seen.append(json.loads(event.data))
                    if connections > len(cuts) and seen[-1]["watermark"] == t:
                        break
    assert seen == sound.change_list(after=after, address=[ledger], concern=["head"])["changes"]


def test_a_stream_that_falls_silent_is_opened_again(sound, ledger):
    _, after = sound.snapshot()
    sound.head_push(ledger, {"new": head(1)})
    faulty = Faulty("hang", silence=patience("hang"))
    assert next(faulty.names.events(after=after, address=[ledger]))["watermark"] == 1
    faulty.assert_met()


@pytest.mark.parametrize(
    ("fault", "reason"), [("trimmed", "trimmed"), ("other-history", "other-history"), ("expires", "other-history")]
)
def test_what_follows_begins_again_with_a_snapshot_and_says_so_once(sound, ledger, fault, reason):
    with pytest.raises(PositionExpired) as expired:
        next(Faulty(fault).names.events(after="0000000000000000:1"))
    assert expired.value.reason == reason
    events = Faulty(fault).names.follow(after=0, prefix=ledger, address=[ledger])
    snapshot = next(events)
    assert isinstance(snapshot, Snapshot)
    assert [record["address"] for record in snapshot.records] == [ledger]
    assert snapshot.reason == reason
    sound.head_push(ledger, {"new": head(1)})
    followed = next(events)
    assert isinstance(followed, Followed)
    assert followed.change["watermark"] == 1
    # A place that was kept goes on without a snapshot.
    sound.head_push(ledger, {"new": head(2)})
    later = next(sound.follow(after=followed.cursor, prefix=ledger))
    assert isinstance(later, Followed) and later.change["watermark"] == 2


def test_a_place_ahead_of_the_feed_begins_again(sound, ledger):
    snapshot = next(sound.follow(after=10**9, prefix=ledger))
    assert isinstance(snapshot, Snapshot)
    assert snapshot.reason == "ahead"


def test_a_cursor_that_the_service_sends_is_kept():
    cursor, asked = "3f9c0a1b2c3d4e5f:7", []

    def answer(request):
        asked.append(request.url.params.get("after"))
        if request.url.path.endswith("/snapshot"):
            return httpx.Response(200, json={"position": 6, "feed_cursor": "3f9c0a1b2c3d4e5f:6", "records": []})
        stream = f'event: change\ndata: {{"position": 7, "cursor": "{cursor}"}}\nid: {cursor}\n\n'
        # No client knows every event.
        stream = "event: timelines\ndata: of this feed\n\n" + stream
        if len(asked) > 2:
            stream = 'event: change\ndata: {"position": 9}\nid: 3f9c0a1b2c3d4e5f:9\n\n'
        return httpx.Response(200, content=stream, headers={"content-type": "text/event-stream"})

    events = Nameservice("http://localhost", transport=httpx.MockTransport(answer)).follow()
    assert [next(events).cursor for _ in range(3)] == ["3f9c0a1b2c3d4e5f:6", cursor, "3f9c0a1b2c3d4e5f:9"]
    assert asked == [None, "3f9c0a1b2c3d4e5f:6", cursor]


@pytest.mark.parametrize(
    ("url", "token"),
    [
        ("localhost:8080", None),
        ("ftp://user:secret@example.com", None),
        ("user:secret@example.com", None),
        ("http://user:sec/ret@example.com:x", None),
        ("http://", None),
        ("http://example.com/?secret=1", None),
        ("http://localhost", "secret\n"),
        ("http://localhost", "secret secret"),
    ],
)
def test_a_url_or_a_token_that_cannot_be_used_is_an_error_at_once_and_is_not_shown(url, token):
    with pytest.raises(ValueError) as error:
        Nameservice(url, token=token)
    text = f"{error.value!r} {error.value.__cause__!r}"
    assert "user" not in text and "secret" not in text and "sec/ret" not in text


def test_a_key_that_cannot_be_sent_is_an_error_at_once(ledger):
    faulty = Faulty("-")
    with pytest.raises(ValueError):
        faulty.names.head_push(ledger, {"new": head(1)}, idempotency_key="a\nb")
    assert faulty.requests == []


def test_the_user_of_a_url_is_sent_and_in_no_message():
    sent = []

    def answer(request):
        sent.append(request.headers.get("authorization"))
        raise httpx.ConnectError("refused", request=request)

    for token in (None, "token"):
        names = Nameservice("http://user:secret@localhost/x", token=token, deadline=0, transport=httpx.MockTransport(answer))
        with pytest.raises(Unavailable) as error:
            names.record_get("mydb")
        assert "secret" not in str(error.value) and "user" not in str(error.value)
    assert sent == [f"Basic {base64.b64encode(b'user:secret').decode()}", "Bearer token"]


def test_an_answer_that_is_no_json_is_an_error_at_once():
    page = httpx.MockTransport(lambda request: httpx.Response(200, html="<h1>Hello</h1>"))
    with pytest.raises(NameserviceError, match="is it a nameservice"):
        Nameservice("http://localhost", transport=page).record_get("mydb")
    with pytest.raises(NameserviceError, match="no stream of events"):
        next(Nameservice("http://localhost", transport=page).events(after=0))
