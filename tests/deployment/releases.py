"""Runs two releases of the service over one table, as an upgrade and a rollback do.

    python3 releases.py BEFORE NOW ENDPOINT

BEFORE and NOW are the program `nameservice` of each; ENDPOINT is an engine with DynamoDB's API. One of them writes first and the other second,
and in a second table the other way round. Both consume the table's stream at the same time. Each has to read what the other wrote,
accept it as the base of its own writes, and show one feed.
"""

import contextlib
import json
import pathlib
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request

sys.path.append(str(pathlib.Path(__file__).resolve().parents[2] / ".ci"))
from ports import free_port  # noqa: E402

CID = [f"bafkreihdwdcefgh4dqkjv67uzcmw7ojee6xedzdetojuzjevtenxquvyk{last}" for last in "aeimquy"]
ENVIRONMENT = {"AWS_ACCESS_KEY_ID": "local", "AWS_SECRET_ACCESS_KEY": "local", "AWS_REGION": "us-east-1", "PATH": "/usr/bin:/bin"}


def head(t):
    return {"id": CID[t], "t": t}


# How long anything may take on a busy machine.
LONG = 120


class Release:
    """A release that serves the table."""

    def __init__(self, name, program, endpoint, table, folder):
        port = free_port()
        self.name, self.url, self.log = name, f"http://127.0.0.1:{port}", folder / f"{name}.log"
        command = [program, "serve", "--endpoint-url", endpoint, "--table", table, "--listen", f"127.0.0.1:{port}"]
        self.process = subprocess.Popen(command, env=ENVIRONMENT, stdin=subprocess.DEVNULL, stdout=self.log.open("wb"), stderr=subprocess.STDOUT)
        end = time.monotonic() + LONG
        while not self.answers():
            assert self.process.poll() is None and time.monotonic() < end, f"{name} does not serve:\n{self.log.read_text()[-3000:]}"
            time.sleep(0.2)

    def answers(self):
        with contextlib.suppress(OSError):
            return self.call("GET", "/v1/health?deep=true")[0] == 200
        return False

    def call(self, method, path, body=None):
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data=data, method=method, headers={"content-type": "application/json"})
        try:
            with urllib.request.urlopen(request, timeout=LONG) as response:
                text, status = response.read(), response.status
        except urllib.error.HTTPError as error:
            text, status = error.read(), error.code
        return status, json.loads(text) if text else None

    def expect(self, status, method, path, body=None):
        found, answer = self.call(method, path, body)
        assert found == status, f"{self.name}: {method} {path}: {found} instead of {status}: {answer}"
        return answer

    def stop(self):
        self.process.terminate()
        self.process.wait(LONG)


def write(release, name):
    """Everything that a release writes."""
    release.expect(201, "POST", "/v1/ledgers", {"address": name})
    release.expect(200, "PUT", f"/v1/heads/{name}", {"expected": {"id": None, "t": 0}, "new": head(1)})
    release.expect(200, "PUT", f"/v1/indexes/{name}", {"new": head(1)})
    release.expect(200, "PUT", f"/v1/configs/{name}", {"expected": {"v": 0}, "new": {"payload": {"a": "large" * 400}}})
    release.expect(200, "PUT", f"/v1/statuses/{name}", {"expected": {"v": 1}, "new": {"payload": {"state": "syncing"}}})
    release.expect(201, "POST", "/v1/branches", {"name": name, "branch": "dev", "source": "main"})
    release.expect(201, "PUT", f"/v1/graph-sources/{name}-search", {"source_type": "f:Bm25Index", "config": {"k1": 1}, "dependencies": [name]})
    return release.expect(200, "PUT", f"/v1/leases/{name}", {"name": "index_lock", "holder": "one"})["token"]


def continue_(release, name, token):
    """Writes over what the other release wrote, and undoes it."""
    release.expect(409, "PUT", f"/v1/heads/{name}", {"expected": {"id": None, "t": 0}, "new": head(2)})
    release.expect(409, "PUT", f"/v1/leases/{name}", {"name": "index_lock", "holder": "two"})
    release.expect(200, "PUT", f"/v1/heads/{name}", {"expected": head(1), "new": head(2)})
    push = {"op": "push_index", "address": name, "expected": head(1), "new": head(2)}
    release.expect(200, "POST", "/v1/transactions", {"operations": [push, {"op": "check", "address": name, "concern": "head", "expected": head(2)}]})
    release.expect(204, "DELETE", f"/v1/leases/{name}?name=index_lock&holder=one&token={token}")
    release.expect(409, "DELETE", f"/v1/records/{name}")
    release.expect(200, "POST", f"/v1/retractions/{name}-search", {"reason": "done"})
    release.expect(200, "POST", f"/v1/restorations/{name}-search")
    release.expect(200, "DELETE", f"/v1/branches/{name}:dev")
    release.expect(200, "POST", f"/v1/retractions/{name}-search", {"reason": "done"})
    release.expect(204, "DELETE", f"/v1/records/{name}-search")
    return release.expect(200, "GET", f"/v1/records/{name}")


def feed(release, addresses):
    """All changes of the feed, once those of the addresses' heads are there."""
    end = time.monotonic() + LONG
    while True:
        changes, position = [], 0
        while True:
            page = release.expect(200, "GET", f"/v1/changes?after={position}&limit=1000")
            changes += page["changes"]
            if not page["changes"]:
                break
            position = page["position"]
        there = {change["address"] for change in changes if change["concern"] == "head" and change["watermark"] == 2}
        if set(addresses) <= there:
            return changes
        assert time.monotonic() < end, f"{release.name}: the feed lacks changes: {there}"
        time.sleep(0.2)


def alike(first, second):
    """Two readings of the same changes. A release before large payloads had rows of their own reads such a payload as omitted."""
    def without(change):
        return {name: value for name, value in change.items() if name not in ("payload", "payload_omitted")}

    def is_alike(one, other):
        omitted = one.get("payload_omitted") or other.get("payload_omitted")
        return without(one) == without(other) if omitted else one == other

    return len(first) == len(second) and all(map(is_alike, first, second))


def both(first, second):
    """Each writes what the other continues."""
    names = {"one": (first, second), "two": (second, first)}
    for name, (writer, other) in names.items():
        token = write(writer, name)
        mine, theirs = (release.expect(200, "GET", f"/v1/records/{name}") for release in (writer, other))
        assert mine == theirs, f"{writer.name} and {other.name} show {name} differently:\n{mine}\n{theirs}"
        continue_(other, name, token)
    records = [release.expect(200, "GET", "/v1/records?view=full") for release in (first, second)]
    assert records[0] == records[1], f"the lists differ:\n{records[0]}\n{records[1]}"
    feeds = [feed(release, ["one:main", "two:main"]) for release in (first, second)]
    positions = [change["position"] for change in feeds[0]]
    assert positions == list(range(1, len(positions) + 1)), f"the feed has gaps, or changes twice: {positions}"
    assert alike(*feeds), "the two releases show different feeds"
    for name in names:
        histories = [release.expect(200, "GET", f"/v1/history/{name}")["changes"] for release in (first, second)]
        assert histories[0] and alike(*histories), f"the histories of {name} differ"
    return len(positions)


def main():
    before, now, endpoint = sys.argv[1:]
    programs = {"before": before, "now": now}
    with tempfile.TemporaryDirectory() as folder:
        for first, second in (("before", "now"), ("now", "before")):
            table = f"{first}-first"
            # The release that is deployed first has made the tables.
            subprocess.run([programs[first], "init", "--endpoint-url", endpoint, "--table", table], env=ENVIRONMENT, check=True, stdout=subprocess.DEVNULL)
            releases = [Release(name, programs[name], endpoint, table, pathlib.Path(folder)) for name in (first, second)]
            try:
                changes = both(*releases)
            finally:
                for release in releases:
                    release.stop()
            print(f"   {first} first: both releases read and continue what the other wrote; {changes} changes in one feed", flush=True)


if __name__ == "__main__":
    main()
