"""The client against a running service: NAMESERVICE_URL."""

import base64
import hashlib
import itertools
import json
import os
import threading
import uuid

import httpx
import pytest
from conftest import LONG

from nameservice_client import (
    AlreadyExists,
    Conflict,
    HasDependents,
    LeaseHeld,
    LeaseLost,
    Nameservice,
    NameserviceError,
    NotYet,
    OutcomeUnknown,
    PositionExpired,
    Snapshot,
    TransactionRejected,
    Unavailable,
    UnknownRecord,
)
from nameservice_client.selection import Selection


def cid(n):
    digest = hashlib.sha256(str(n).encode()).digest()
    return "b" + base64.b32encode(b"\x01\x55\x12\x20" + digest).decode().lower().rstrip("=")


def head(n):
    return {"id": cid(n), "t": n}


UNBORN = {"id": None, "t": 0}


class Cutting(httpx.HTTPTransport):
    """Delivers a number of requests and loses their answers, or (before=True) loses the requests."""

    def __init__(self, cuts, *, before=False, answer=None):
        super().__init__()
        self.cuts, self.before, self.answer, self.sent = cuts, before, answer, []

    def handle_request(self, request):
        self.sent.append(request)
        if self.cuts == 0:
            return super().handle_request(request)
        self.cuts -= 1
        if not self.before:
            super().handle_request(request).read()
        if self.answer:
            return httpx.Response(self.answer[0], json=self.answer[1])
        raise httpx.ReadError("cut", request=request)


def through(names, transport, **options):
    return Nameservice(names._url, transport=transport, **{**LONG, **options})


def test_a_new_ledger_is_unborn(names, address):
    record = names.record_get(address)
    assert record["address"] == address
    assert record["head"] == UNBORN
    assert record["status"]["payload"]["state"] == "ready"


def test_an_address_may_hold_slashes_and_a_branch(names):
    name = f"python/{uuid.uuid4().hex}/a b"
    assert names.ledger_create({"address": f"{name}:release/v1"})["branch"] == "release/v1"
    assert names.record_get(f"{name}:release/v1")["name"] == name


def test_a_push_that_expects_another_value_is_a_conflict_with_the_stored_one(names, address):
    assert names.head_push(address, {"expected": UNBORN, "new": head(1)})["status"] == "updated"
    with pytest.raises(Conflict) as rejected:
        names.head_push(address, {"expected": UNBORN, "new": head(2)})
    assert rejected.value.actual == head(1)
    assert rejected.value.status == 409


def test_an_older_value_is_stale(names, address):
    names.index_push(address, {"new": head(5)})
    assert names.index_push(address, {"new": head(4)})["status"] == "stale"


def test_rejections_have_their_exceptions(names, address):
    with pytest.raises(AlreadyExists):
        names.ledger_create({"address": address})
    with pytest.raises(UnknownRecord):
        names.record_get("python/nobody")
    with pytest.raises(NameserviceError) as invalid:
        names.record_get("a:b:c")
    assert invalid.value.kind == "invalid-address"
    names.graph_source_publish(
        f"{address}-search".replace(":main", ""),
        {
            "source_type": "f:Bm25Index",
            "config": {"k1": 1.2},
            "dependencies": [address],
        },
    )
    with pytest.raises(HasDependents) as needed:
        names.record_retract(address)
    assert len(needed.value.dependents) == 1


def test_a_record_that_has_not_changed_is_none(names, address):
    tag = httpx.get(f"{names._url}/v1/records/{address}").headers["etag"]
    assert names.record_get(address, if_none_match=tag) is None
    assert names.record_get(address, if_none_match='"another"') is not None


def test_a_lost_answer_is_repeated_and_applied_once(names, address):
    transport = Cutting(2)
    answer = through(names, transport).head_push(address, {"expected": UNBORN, "new": head(1)})
    assert answer["status"] == "updated"
    assert len(transport.sent) == 3
    assert len({request.headers["idempotency-key"] for request in transport.sent}) == 1
    assert [change["concern"] for change in names.history_list(address)["changes"]].count("head") == 1


def test_a_write_whose_answers_are_all_lost_is_unknown(names, address, three_attempts):
    lost = Cutting(-1)
    with pytest.raises(OutcomeUnknown):
        through(names, lost).head_push(address, {"expected": UNBORN, "new": head(1)})
    assert len(lost.sent) == 3
    assert names.record_get(address)["head"] == head(1)


def test_a_gateway_that_fails_leaves_a_write_unknown(names, address, three_attempts):
    bad = Cutting(-1, before=True, answer=(502, {"message": "Bad Gateway"}))
    with pytest.raises(OutcomeUnknown):
        through(names, bad).head_push(address, {"expected": UNBORN, "new": head(1)})
    assert len(bad.sent) == 3


@pytest.mark.parametrize(
    ("status", "slug", "is_certain"),
    [
        (404, "unknown-record", False),
        (409, "wrong-kind", False),
        (409, "conflict", False),
        (409, "lease-lost", False),
        (409, "transaction-refused", False),
        (409, "limit-reached", True),
        (410, "retracted", False),
        (422, "idempotency-key-reused", True),
        (400, "invalid-body", False),
        (401, "unauthorized", False),
        (403, "insufficient-scope", False),
        (403, "address-not-covered", False),
        (404, "not-found", False),
        (405, "method-not-allowed", False),
        (408, "request-timeout", False),
        (413, "payload-too-large", False),
        (415, "unsupported-media-type", False),
        (501, "unsupported", False),
        # Of something in front of the service.
        (401, None, False),
        (404, None, False),
        (409, None, False),
        (410, None, False),
        (422, None, False),
    ],
)
def test_after_a_lost_attempt_only_a_decision_of_the_service_is_certain(names, status, slug, is_certain):
    problem = {"message": "no"}
    if slug:
        problem = {"type": f"https://nameservice.dev/problems/{slug}", "status": status, "detail": "d"}

    def outcome(*, lost):
        sent = []

        def answer(request):
            sent.append(request)
            if lost and len(sent) == 1:
                raise httpx.ReadError("cut", request=request)
            return httpx.Response(status, json=problem)

        with pytest.raises(NameserviceError) as rejected:
            through(names, httpx.MockTransport(answer)).head_push("mydb", {"expected": UNBORN, "new": head(1)})
        return rejected.value

    assert not isinstance(outcome(lost=False), OutcomeUnknown)
    after = outcome(lost=True)
    assert isinstance(after, OutcomeUnknown) != is_certain
    assert after.kind == (slug if is_certain else "outcome-unknown")
    assert after.status == status


def test_a_service_that_is_unavailable_has_written_nothing(names, address, three_attempts):
    problem = {"type": "https://nameservice.dev/problems/unavailable", "status": 503, "detail": "later"}
    later = Cutting(-1, before=True, answer=(503, problem))
    with pytest.raises(Unavailable):
        through(names, later).head_push(address, {"new": head(1)})
    assert len(later.sent) == 3


def test_a_read_whose_answers_are_lost_is_unavailable(names, address, three_attempts):
    lost = Cutting(-1)
    with pytest.raises(Unavailable):
        through(names, lost).record_get(address)
    assert len(lost.sent) == 3


def test_writers_that_conflict_all_succeed_in_the_end_and_are_in_one_history(names, address):
    commits = {}

    def write(n):
        def decide(stored):
            commit = cid(f"{n} {stored['id']}")
            commits[commit] = (n, stored["id"])
            return {"id": commit, "t": stored["t"] + 1}

        with Nameservice(names._url, **LONG) as own:
            own.update_head(address, decide, attempts=50)

    writers = [threading.Thread(target=write, args=(n,)) for n in range(8)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    head = names.record_get(address)["head"]
    assert head["t"] == 8
    history, commit = [], head["id"]
    while commit:
        writer, commit = commits[commit]
        history.append(writer)
    assert sorted(history) == list(range(8))


def test_a_commit_that_was_made_before_a_conflict_is_not_pushed_on_the_head_of_another_writer(names, address):
    def decide(stored):
        if stored == UNBORN:
            names.head_push(address, {"expected": UNBORN, "new": head(1)})
        return {"id": cid("mine"), "t": stored["t"] + 1}

    with pytest.raises(ValueError, match="make a new commit"):
        names.update_head(address, decide)
    assert names.record_get(address)["head"] == head(1)


def test_a_commit_is_not_pushed_on_the_head_of_another_writer_even_if_another_one_was_made_meanwhile(names, address):
    seen = []

    def decide(stored):
        seen.append(stored["t"])
        names.head_push(address, {"expected": stored, "new": head(len(seen))})
        return {"id": cid("another" if len(seen) == 2 else "mine"), "t": stored["t"] + 1}

    with pytest.raises(ValueError, match="make a new commit"):
        names.update_head(address, decide)
    assert seen == [0, 1, 2]
    assert names.record_get(address)["head"] == head(3)


def test_a_commit_that_another_writer_has_stored_meanwhile_is_stored(names, address):
    def decide(stored):
        if stored == UNBORN:
            # The same commit, under a t of its own.
            names.head_push(address, {"expected": UNBORN, "new": {"id": cid("same"), "t": 2}})
        return {"id": cid("same"), "t": max(1, stored["t"])}

    assert names.update_head(address, decide) == {"id": cid("same"), "t": 2}


def test_a_decision_not_to_push_leaves_the_head(names, address):
    assert names.update_head(address, lambda stored: None) == UNBORN


def test_events_are_the_changes_in_order_across_broken_connections(names, address):
    _, position = names.snapshot()

    class Breaking(httpx.HTTPTransport):
        """Cuts every stream after some bytes."""

        def handle_request(self, request):
            response = super().handle_request(request)

            class Stream(httpx.SyncByteStream):
                def __iter__(self):
                    for number, chunk in enumerate(response.stream):
                        if number == 2:
                            raise httpx.ReadError("cut", request=request)
                        yield chunk

                def close(self):
                    response.stream.close()

            return httpx.Response(response.status_code, headers=response.headers, stream=Stream())

    for n in range(1, 10):
        names.head_push(address, {"new": head(n)})
    with through(names, Breaking()) as reader:
        seen = list(itertools.islice(reader.events(after=position, address=[address], concern=["head"]), 9))
    assert [change["watermark"] for change in seen] == list(range(1, 10))
    assert all(change["payload"]["id"] == cid(change["watermark"]) for change in seen)


def test_events_without_a_position_begin_with_what_changes_now(names, address):
    names.head_push(address, {"new": head(1)})
    events = names.events(address=[address])
    seen = []
    reader = threading.Thread(target=lambda: seen.append(next(events)))
    reader.start()
    # A generator only starts when it is read, so push until something arrives.
    for n in itertools.count(2):
        if not reader.is_alive():
            break
        names.head_push(address, {"new": head(n)})
        reader.join(0.05)
    assert seen[0]["concern"] == "head"
    assert seen[0]["watermark"] >= 2


def test_a_position_beyond_the_end_is_rejected(names):
    with pytest.raises(NameserviceError) as ahead:
        next(names.events(after=10**9))
    assert ahead.value.kind == "position-ahead"


def test_an_expired_stream_says_so(names):
    stream = b'event: expired\ndata: {"oldest": 7}\n\n'
    transport = httpx.MockTransport(
        lambda request: httpx.Response(200, content=stream, headers={"content-type": "text/event-stream"})
    )
    with pytest.raises(PositionExpired) as expired:
        next(through(names, transport).events(after=1))
    assert expired.value.oldest == 7


def test_a_read_that_asks_for_a_later_head_is_not_answered_with_an_older_one(names, address):
    with pytest.raises(NotYet):
        names.record_get(address, min_t=1)
    names.head_push(address, {"new": head(1)})
    record = names.record_get(address, min_t=1, wait=10)
    assert record["head"] == head(1)


def test_a_snapshot_has_everything_and_where_to_continue(names, address):
    records, position = names.snapshot(prefix=address)
    assert [record["address"] for record in records] == [address]
    names.head_push(address, {"new": head(1)})
    changes = names.change_list(after=position, address=[address])["changes"]
    assert [change["concern"] for change in changes] == ["head"]


def test_what_is_followed_begins_with_a_snapshot_of_what_the_filters_select(names):
    name = f"python/{uuid.uuid4().hex}"
    for address in ("a", "a:dev", "ab", "a[b]", "\U0001f600", "\U0001f601"):
        names.ledger_create({"address": f"{name}/{address}"})
    names.graph_source_publish(
        f"{name}/search", {"source_type": "f:Bm25Index", "config": {}, "dependencies": [f"{name}/a:main"]}
    )
    everything = {"a:main", "a:dev", "ab:main", "a[b]:main", "\U0001f600:main", "\U0001f601:main", "search:main"}
    for filters, expected in [
        ({"address": [f"{name}/*"]}, everything),
        ({"address": [f"{name}/a"]}, {"a:main"}),
        ({"address": f"{name}/a:*"}, {"a:main", "a:dev"}),
        ({"address": [f"{name}/a?:*"]}, {"ab:main"}),
        ({"address": [f"{name}/?:*"]}, {"a:main", "a:dev", "\U0001f600:main", "\U0001f601:main"}),
        ({"address": [f"{name}/a[b]"]}, {"a[b]:main"}),
        ({"address": [f"{name}/a[b]*"]}, {"a[b]:main"}),
        ({"address": [f"{name}/\U0001f600*", f"{name}/\U0001f601*"]}, {"\U0001f600:main", "\U0001f601:main"}),
        ({"address": [f"{name}/*d*v", f"{name}/**b:*n"]}, {"a:dev", "ab:main"}),
        ({"address": [f"{name}/a:*"], "prefix": f"{name}/a:d"}, {"a:dev"}),
        ({"address": [f"{name}/a:*"], "prefix": f"{name}/ab"}, set()),
        ({"prefix": f"{name}/a:"}, {"a:main", "a:dev"}),
        ({"prefix": f"{name}/", "kind": "graph_source"}, {"search:main"}),
        ({"prefix": f"{name}/", "source_type": "f:Bm25Index"}, {"search:main"}),
        ({"prefix": f"{name}/", "source_type": "f:Other"}, set()),
    ]:
        first = next(names.follow(**filters))
        assert isinstance(first, Snapshot)
        assert {record["address"].removeprefix(f"{name}/") for record in first.records} == expected, filters
        # The service selects the same changes.
        changes = names.change_list(after=0, limit=1000, **filters)["changes"]
        assert {change["address"].removeprefix(f"{name}/") for change in changes} == expected, filters


@pytest.mark.parametrize(
    "filters",
    [
        {"address": ["my@db"]},
        {"address": ["mydb:main:main"]},
        {"address": [""]},
        {"address": [f"*{'a' * 1000}"]},
        {"address": ["a"] * 101},
        {"prefix": ""},
        {"prefix": "a" * 1001},
        {"kind": "book"},
        {"source_type": ""},
        {"concern": ["tail"]},
    ],
    ids=str,
)
def test_filters_that_the_service_rejects_are_an_error_and_no_snapshot_of_nothing(names, filters):
    with pytest.raises(NameserviceError) as rejected:
        next(names.follow(**filters))
    assert rejected.value.status == 400


def test_no_pattern_takes_long():
    record = {"address": f"{'a' * 900}:main"}
    for pattern in (f"{'*a' * 400}b*", f"*{'a' * 600}b*", f"{'*?a' * 300}b*"):
        assert Selection([pattern]).of([record] * 20) == []


def test_records_are_listed_over_pages(names, address):
    listed = [record["address"] for record in names.records(prefix="python/", limit=1)]
    assert address in listed
    assert len(listed) == len(set(listed)) > 1


def test_a_lease_is_held_inside_the_block_and_released_after_it(names, address):
    with names.lease(address, "index_lock", "one") as lease:
        with pytest.raises(LeaseHeld) as held:
            names.lease(address, "index_lock", "two").__enter__()
        assert held.value.lease["holder"] == "one"
        assert names.index_push(address, {"new": head(1), "lease": lease.claim})["status"] == "updated"
        lease.check()
    assert names.record_get(address)["status"]["payload"]["state"] == "ready"


@pytest.mark.parametrize("shares_client", [True, False])
def test_of_many_threads_without_holders_of_their_own_one_holds_a_lease(names, address, shares_client):
    begin, end = threading.Barrier(9), threading.Barrier(9)
    tokens, rejected = [], []

    def take():
        client = names if shares_client else Nameservice(names._url)
        lease = client.lease(address, "index_lock")
        begin.wait()
        try:
            with lease:
                tokens.append(lease.token)
                end.wait()
        except LeaseHeld as held:
            rejected.append(held.lease["holder"])
            end.wait()

    threads = [threading.Thread(target=take) for _ in range(8)]
    for thread in threads:
        thread.start()
    begin.wait()
    end.wait()
    for thread in threads:
        thread.join()
    assert (len(tokens), len(rejected)) == (1, 7)
    assert len(set(rejected)) == 1


def test_default_holders_are_all_different_on_every_system(names, address, monkeypatch):
    # As on Windows, and as in two containers that have one host name and one process each.
    monkeypatch.delattr(os, "uname")
    monkeypatch.setattr("platform.node", lambda: "host")
    monkeypatch.setattr(os, "getpid", lambda: 1)
    holders = [names.lease(address, "index_lock").claim["holder"] for _ in range(100)]
    assert len(set(holders)) == 100
    assert all(holder.startswith("host-1-") for holder in holders)


def test_a_number_of_any_size_is_written_as_it_was_read(names, address):
    numbers = [2**53 - 1, 2**53, 2**53 + 1, -(2**53) - 1, 2**63 - 1, 2**63, 2**64 - 1, 8293847239847239847, 1e-7, 0]
    names.config_push(address, {"expected": {"v": 0}, "new": {"payload": {"numbers": numbers}}})
    config = names.record_get(address)["config"]
    assert config["payload"] == {"numbers": numbers}
    payload = {**config["payload"], "changed": True}
    names.config_push(address, {"expected": {"v": config["v"]}, "new": {"payload": payload}})
    assert names.record_get(address)["config"]["payload"] == {"numbers": numbers, "changed": True}


class Due(threading.Event):
    """Waits for no time, and keeps how many seconds it was to wait."""

    def __init__(self):
        super().__init__()
        self.waits = []

    def wait(self, timeout=None):
        self.waits.append(timeout)
        return super().wait(0.01)


def test_a_lease_is_refreshed_at_a_third_of_its_duration_while_the_block_runs(names, address):
    kept = names.lease(address, "index_lock", "one", ttl_seconds=60)
    kept._ended = due = Due()
    with kept as lease:
        # The first is the creation, the second the lease.
        change = next(itertools.islice(names.events(after=0, address=[address], concern=["status"]), 5, None))
        assert change["payload"]["index_lock"]["holder"] == "one"
        lease.check()
    assert set(due.waits) == {20}


def test_a_lease_that_others_take_is_lost_and_its_pushes_are_rejected(names, address):
    kept = names.lease(address, "index_lock", "one", ttl_seconds=60)
    kept._ended = Due()
    with kept as lease:
        # Another process with the same holder name takes the lease over.
        names.lease_acquire(address, {"name": "index_lock", "holder": "one", "ttl_seconds": 60})
        with pytest.raises(LeaseLost):
            names.index_push(address, {"new": head(1), "lease": lease.claim})
        lease._keeper.join()
        assert lease.is_lost
        with pytest.raises(LeaseLost):
            lease.check()


def test_a_lease_that_is_waited_for_comes_when_it_is_free(names, address):
    holder = names.lease(address, "index_lock", "one").__enter__()
    waiting = names.lease(address, "index_lock", "two", wait=20)
    waiter = threading.Thread(target=waiting.__enter__)
    waiter.start()
    holder.__exit__()
    waiter.join()
    assert waiting.token > holder.token
    waiting.check()
    waiting.__exit__()


def test_a_transaction_moves_all_or_none(names, address):
    other = names.ledger_create({"address": f"python/{uuid.uuid4().hex}"})["address"]
    operations = [
        {"op": "push_head", "address": address, "expected": UNBORN, "new": head(1)},
        {"op": "push_head", "address": other, "expected": head(9), "new": head(10)},
    ]
    with pytest.raises(TransactionRejected) as rejected:
        names.transaction_commit({"operations": operations})
    assert [result["status"] for result in rejected.value.results] == ["passed", "conflict"]
    assert names.record_get(address)["head"] == UNBORN


def test_every_operation_of_the_document_has_a_method(names):
    document = json.loads(httpx.get(f"{names._url}/v1/openapi.json").text)
    operations = [operation for item in document["paths"].values() for operation in item.values()]
    described = {operation["operationId"] for operation in operations if "operationId" in operation}
    by_hand = {"console_get", "console_file_get", "docs_get", "change_stream", "fluree_event_stream"}
    assert {name for name in described - by_hand if not hasattr(names, name)} == set()
