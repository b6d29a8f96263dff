"""Runs Fluree's own engine beside the service, in every place that the two can share.

    python3 beside.py PROGRAM DYNAMODB S3 [PLACE…]

PROGRAM is the built `nameservice`; DYNAMODB and S3 are the URLs of a DynamoDB and of an S3. The places are `directory`, `bucket`
and `table`; all by default. Python needs the package `fluree`. At most three processes of Fluree run at the same time. What they do
together is judged by Fluree (`verify()`, its queries, its log) and by the service (records, feed, doctor, compare).
"""

import atexit
import contextlib
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request

import fluree

sys.path.append(str(pathlib.Path(__file__).resolve().parents[2] / ".ci"))
from ports import free_port  # noqa: E402

REGION = "us-east-1"
BUCKET = "beside-fluree"
# Whoever may read the bucket and the table.
CREDENTIALS = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test", "AWS_REGION": REGION, "AWS_DEFAULT_REGION": REGION}
VALUE = "http://example.org/value"
# How many commits each of three processes makes.
COMMITS = 12
# The one deadline of what is waited for, in seconds.
LONG = 120
# What is no commit and no index root of Fluree's.
FOREIGN = "bafkreihdwdcefgh4dqkjv67uzcmw7ojee6xedzdetojuzjevtenxquvyku"


def step(text):
    print(f"   {time.monotonic() - STARTED:5.1f} s  {text}", flush=True)


def attempts(what):
    """One attempt after the other, as long as there is time."""
    deadline = time.monotonic() + LONG
    while time.monotonic() < deadline:
        yield
    raise AssertionError(f"{what} within {LONG} s")


def node(name):
    return f"http://example.org/{name}"


def thing(name, value):
    return {"@id": node(name), VALUE: value}


class Place:
    """Where Fluree keeps its nameservice and its data."""

    def __init__(self, kind, program, dynamodb, s3):
        self.kind, self.program = kind, program
        self.folder = tempfile.TemporaryDirectory()
        name = f"{kind}-{os.getpid()}"
        at_s3 = {"s3Bucket": BUCKET, "s3Endpoint": s3, "s3ForcePathStyle": True}
        storage = {"@id": "s3", "@type": "Storage", "s3Prefix": name, **at_s3}
        publisher = {"@id": "ns", "@type": "Publisher", "storage": {"@id": "s3"}}
        if kind == "directory":
            self.data = f"{self.folder.name}/fluree"
            self.at = f"file://{self.data}"
            return
        self.data = None
        self.at = f"s3://{BUCKET}/{name}?region={REGION}&endpoint={s3}"
        if kind == "table":
            self.at = f"dynamodb://{name}?endpoint={dynamodb}"
            publisher = {
                "@id": "ns", "@type": "Publisher", "dynamodbTable": name, "dynamodbEndpoint": dynamodb, "dynamodbRegion": REGION,
                "dynamodbTimeoutMs": 5000,
            }
        self.graph = [storage, publisher]

    def connect(self, indexing=True):
        if self.data:
            return fluree.connect(self.data, indexing=indexing)
        connection = {
            "@id": "connection", "@type": "Connection", "indexStorage": {"@id": "s3"}, "commitStorage": {"@id": "s3"},
            "primaryPublisher": {"@id": "ns"}, "defaults": {"indexing": {"indexingEnabled": indexing}},
        }
        return fluree.connect(config={"@context": {"@vocab": "https://ns.flur.ee/system#"}, "@graph": [*self.graph, connection]})

    def nameservice(self, *arguments, code=0):
        """Runs a command of the program on this place, without a service, and returns what it prints."""
        done = subprocess.run(
            [self.program, "--at", self.at, *arguments], capture_output=True, text=True, timeout=LONG, cwd=self.folder.name
        )
        assert done.returncode == code, f"{arguments} exits with {done.returncode}: {done.stdout}{done.stderr}"
        return done.stdout + done.stderr

    def show(self, address):
        return json.loads(self.nameservice("show", address, "--json"))

    def doctor(self):
        done = subprocess.run(
            [self.program, "--at", self.at, "doctor", "--json"], capture_output=True, text=True, timeout=LONG, cwd=self.folder.name
        )
        findings = [finding for finding in json.loads(done.stdout)["findings"] if finding["severity"] != "note"]
        assert findings == [], findings

    def is_healthy(self, ledger):
        """Asks Fluree, and compares what it has with what the service shows."""
        report = ledger.verify()
        assert report.severity == "healthy", report
        record, log = self.show(ledger.id), ledger.log(limit=1)
        assert record["head"] == {"id": log[0].id, "t": log[0].t}, (record, log)


class Service:
    """`nameservice serve` over a place."""

    def __init__(self, place):
        self.place, self.process = place, None
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"

    def __enter__(self):
        arguments = ["--at", self.place.at, "serve", "--listen", f"127.0.0.1:{self.port}"]
        if self.place.kind == "table":
            arguments.append("--fluree")
        else:
            arguments += ["--feed-data", f"{self.place.folder.name}/feed"]
        self.log = open(f"{self.place.folder.name}/service.log", "a")
        self.process = subprocess.Popen([self.place.program, *arguments], stdout=self.log, stderr=self.log, cwd=self.place.folder.name)
        # Also when a check fails.
        atexit.register(self.process.kill)
        deadline = time.monotonic() + LONG
        while time.monotonic() < deadline and self.process.poll() is None:
            with contextlib.suppress(OSError):
                self.get("/v1/health?deep=true")
                return self
            time.sleep(0.05)
        raise AssertionError(f"the service did not start: {pathlib.Path(self.log.name).read_text()}")

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait(LONG)
        self.log.close()

    def kill(self):
        self.process.kill()
        self.process.wait()
        self.log.close()

    def get(self, path):
        with urllib.request.urlopen(self.url + path, timeout=LONG) as answer:
            return json.load(answer)

    def heads(self, address):
        """The heads of a ledger in the feed: (previous t, t)."""
        heads, after = [], 0
        while True:
            page = self.get(f"/v1/changes?after={after}&limit=1000")
            changes = page["changes"]
            if not changes:
                return heads
            after = changes[-1]["position"]
            heads += [
                (change.get("previous"), change["watermark"])
                for change in changes if change["address"] == address and change["concern"] == "head"
            ]

    def caught_up(self, address, t):
        """Waits until the feed shows a head, and returns all of them."""
        deadline = time.monotonic() + LONG
        while True:
            heads = self.heads(address)
            if heads and heads[-1][1] == t:
                return heads
            assert time.monotonic() < deadline, f"the feed of {address} is at {heads[-1:]}, not at {t}"
            time.sleep(0.1)


class Worker:
    """Another process of Fluree's, which commits."""

    def __init__(self, place, ledger, name, commits, indexing=False):
        task = {"kind": place.kind, "data": place.data, "graph": getattr(place, "graph", None), "ledger": ledger, "name": name,
                "commits": commits, "indexing": indexing}
        self.process = subprocess.Popen(
            [sys.executable, __file__, "--commit", json.dumps(task)], stdout=subprocess.PIPE, text=True, env={**os.environ, **CREDENTIALS}
        )
        self.acknowledged = []

    def read(self, at_most=None):
        """Reads what it reports until it ends, or until it has made so many commits."""
        for line in self.process.stdout:
            self.acknowledged.append(line.strip())
            if at_most is not None and len(self.acknowledged) >= at_most:
                return self.acknowledged
        assert self.process.wait() in (0, -signal.SIGKILL), f"a process of Fluree's exited with {self.process.returncode}"
        return self.acknowledged

    def kill(self):
        self.process.kill()
        return self.read()


def insert(ledger, data):
    """Commits, also if another process commits first: then Fluree reports a conflict, and has written nothing."""
    for attempt, _ in enumerate(attempts("no commit succeeded")):
        try:
            return ledger.insert(data)
        except fluree.ConflictError:
            time.sleep(0.01 * min(attempt + 1, 10))


def commit(task):
    """What a worker does: commits, with an index in between if it indexes, and reports each commit that was acknowledged."""
    place = Place.__new__(Place)
    place.kind, place.data, place.graph = task["kind"], task["data"], task["graph"]
    connection = place.connect(indexing=task["indexing"])
    ledger = connection.ledger(task["ledger"])
    for n in range(task["commits"]):
        name = f"{task['name']}-{n}"
        insert(ledger, thing(name, n))
        print(name, flush=True)
        if task["indexing"] and n % 5 == 4:
            ledger.index(timeout=LONG)
    connection.close()


def commits_of_three_processes(place):
    """Three processes commit to one ledger, and each commit is in the feed; two are killed, of Fluree and of the service."""
    service = Service(place).__enter__()
    with place.connect(indexing=False) as connection:
        ledger = connection.create("books")
        ledger.insert(thing("first", 0))
        service.caught_up("books:main", 1)
        workers = [Worker(place, "books", f"w{n}", COMMITS) for n in range(2)]
        acknowledged = {"first"}
        for n in range(COMMITS):
            insert(ledger, thing(f"here-{n}", n))
            acknowledged.add(f"here-{n}")
        for worker in workers:
            acknowledged.update(worker.read())
        assert len(acknowledged) == 1 + 3 * COMMITS
        t = ledger.log(limit=1)[0].t
        assert t == 1 + 3 * COMMITS, t
        heads = service.caught_up("books:main", t)
        # What a change covers begins after its `previous`.
        assert all(later[0] == earlier[1] for earlier, later in zip(heads, heads[1:])), heads
        shown = [head for _, head in heads if head > 0]
        # Over files, commits that were made between two looks of the feed may be one change, whose `previous` says so.
        if place.kind == "table":
            assert shown == list(range(1, t + 1)), shown
        else:
            assert shown == sorted(set(shown)) and shown[-1] == t, shown
        step(f"{t} commits of three processes are {len(shown)} heads in the feed")

        victim = Worker(place, "books", "victim", 1000)
        victim.read(at_most=5)
        service.kill()
        victim.read(at_most=8)
        acknowledged.update(victim.kill())
        service = Service(place).__enter__()
    # A connection may still show what it has read: another reads it again.
    with place.connect(indexing=False) as connection:
        ledger = connection.ledger("books")
        found = {str(row[0]) for row in rows(ledger)}
        missing = {node(name) for name in acknowledged} - found
        assert not missing, f"acknowledged and lost: {missing}"
        # A commit that was not acknowledged may have been made.
        assert len(found) - len(acknowledged) in (0, 1), (len(found), len(acknowledged))
        ledger.insert(thing("after", 1))
        service.caught_up("books:main", ledger.log(limit=1)[0].t)
        place.is_healthy(ledger)
    service.__exit__()
    place.doctor()
    step(f"{len(acknowledged)} acknowledged commits outlive a kill -9 of Fluree and one of the service")


def rows(ledger):
    return list(ledger.select(f"SELECT ?s ?v WHERE {{ ?s <{VALUE}> ?v }}"))


def indexes_of_several_processes(place):
    """Three processes commit and index the same ledger."""
    with Service(place) as service:
        with place.connect() as connection:
            ledger = connection.ledger("books")
            before = len(rows(ledger))
            workers = [Worker(place, "books", f"indexing-{n}", 10, indexing=True) for n in range(2)]
            ledger.index(timeout=LONG)
            for worker in workers:
                worker.read()
        with place.connect() as connection:
            ledger = connection.ledger("books")
            t = ledger.index(timeout=LONG)
            assert len(rows(ledger)) == before + 20, (len(rows(ledger)), before)
            place.is_healthy(ledger)
        record = place.show("books")
        assert record["index"]["t"] == t == record["head"]["t"], (record, t)
        heads = service.caught_up("books:main", t)
        assert all(later[0] == earlier[1] for earlier, later in zip(heads, heads[1:])), heads
    place.doctor()
    step(f"indexes of three processes, the last at t {t}")


def branches(place):
    """Branches, merges and drops of Fluree's."""
    with Service(place) as service, place.connect() as connection:
        ledger = connection.ledger("books")
        dev = ledger.branch("dev")
        assert place.show("books:dev")["head"] == place.show("books")["head"]
        dev.insert(thing("on-dev", 1))
        merged = ledger.merge("dev")
        assert place.show("books")["head"] == {"id": merged.id, "t": merged.t}
        ledger.insert(thing("on-main", 1))
        dev.insert(thing("on-dev-again", 2))
        merged = ledger.merge("dev")
        place.is_healthy(ledger)
        place.is_healthy(dev)
        names = {str(row[0]) for row in rows(ledger)}
        assert {node("on-dev"), node("on-main"), node("on-dev-again")} <= names
        listed = [record["address"] for record in service.get("/v1/branches/books")["branches"]]
        assert sorted(listed) == ["books:dev", "books:main"], listed
        place.doctor()
        connection.drop("books:dev")
        assert sorted(connection.ledgers()) == ["books:main"]
        assert live(place) == ["books:main"], live(place)
        place.is_healthy(ledger)
    place.doctor()
    step("a branch, two merges and a drop")


def live(place):
    listed = json.loads(place.nameservice("list", "--json"))["records"]
    return sorted(record["address"] for record in listed if not record.get("retracted"))


def resets(place):
    """The service resets a ledger: Fluree continues from there, and indexes nothing of what was taken back."""
    with place.connect() as connection:
        ledger = connection.ledger("books")
        ledger.insert(thing("kept", 1))
        ledger.index(timeout=LONG)
        then, index = ledger.log(limit=1)[0], place.show("books")["index"]
        kept = len(rows(ledger))
        for n in range(5):
            ledger.insert(thing(f"taken-back-{n}", n))
    place.nameservice("reset", "books", "--head", f"{then.id}@{then.t}", "--index", f"{index['id']}@{index['t']}", "--yes")
    with place.connect() as connection:
        ledger = connection.ledger("books")
        assert ledger.log(limit=1)[0].id == then.id
        assert len(rows(ledger)) == kept
        for n in range(3):
            ledger.insert(thing(f"since-{n}", n))
        ledger.index(timeout=LONG)
        place.is_healthy(ledger)
        names = {str(row[0]) for row in rows(ledger)}
        assert not any("taken-back" in name for name in names) and len(names) == kept + 3, names
    place.doctor()
    step(f"a reset to t {then.t}, and three commits from there")


def retractions(place):
    """What the service retracts is gone for Fluree, and back after a restoration."""
    with place.connect() as connection:
        before = len(rows(connection.ledger("books")))
    place.nameservice("retract", "books")
    with place.connect() as connection:
        assert connection.ledgers() == []
        try:
            connection.ledger("books")
            raise AssertionError("a retracted ledger is there")
        except fluree.NotFoundError:
            pass
    place.nameservice("restore", "books")
    with place.connect() as connection:
        ledger = connection.ledger("books")
        assert len(rows(ledger)) == before
        ledger.insert(thing("after-restoration", 1))
        place.is_healthy(ledger)
    place.doctor()
    step("a retraction and a restoration")


def lost_pointers(place):
    """The pointers are lost, and restored from a copy: the data was there all the time."""
    dump, mirror = f"{place.folder.name}/pointers.jsonl", f"embedded:{place.folder.name}/mirror"
    with place.connect() as connection:
        ledger = connection.ledger("books")
        before, t = len(rows(ledger)), ledger.log(limit=1)[0].t
    place.nameservice("export", dump)
    run(place, "copy", place.at, mirror)
    run(place, "compare", place.at, mirror)
    place.nameservice("purge", "books", "--yes")
    with place.connect() as connection:
        assert connection.ledgers() == []
    place.nameservice("import", dump)
    with place.connect() as connection:
        ledger = connection.ledger("books")
        assert (len(rows(ledger)), ledger.log(limit=1)[0].t) == (before, t)
        ledger.insert(thing("after-import", 1))
        ledger.index(timeout=LONG)
        place.is_healthy(ledger)
    place.doctor()
    step("pointers lost, and restored from a copy")


def run(place, *arguments):
    done = subprocess.run([place.program, *arguments], capture_output=True, text=True, timeout=LONG, cwd=place.folder.name)
    assert done.returncode == 0, f"{arguments}: {done.stdout}{done.stderr}"
    return done.stdout


def moved(place):
    """The data moves in an archive of Fluree's: the pointers elsewhere are those that were here."""
    archive, elsewhere = f"{place.folder.name}/books.flpack", f"{place.folder.name}/elsewhere"
    with place.connect() as connection, fluree.connect(elsewhere) as other:
        ledger = connection.ledger("books")
        ledger.archive(archive)
        restored = other.restore(archive, "books")
        assert len(rows(restored)) == len(rows(ledger))
        assert restored.verify().severity == "healthy"
        shown = json.loads(run(place, "--at", f"file://{elsewhere}", "show", "books", "--json"))
        assert shown["head"] == place.show("books")["head"]
    step("an archive restored elsewhere has the same head")


def foreign_ids(place):
    """Ids that Fluree's engine cannot read are rejected, and found if an administrator forces them."""
    with place.connect() as connection:
        ledger = connection.ledger("books")
        record = place.show("books")
        with Service(place) as service:
            body = json.dumps({"new": {"id": FOREIGN, "t": record["head"]["t"] + 1}}).encode()
            for path in ["heads", "indexes"]:
                request = urllib.request.Request(
                    f"{service.url}/v1/{path}/books", data=body, method="PUT", headers={"content-type": "application/json"}
                )
                try:
                    urllib.request.urlopen(request, timeout=LONG)
                    raise AssertionError(f"{path} takes {FOREIGN}")
                except urllib.error.HTTPError as error:
                    assert (error.code, json.load(error)["type"].rsplit("/", 1)[1]) == (422, "not-fluree")
        ledger.insert(thing("before-foreign", 1))
        place.is_healthy(ledger)
        record = place.show("books")
        place.nameservice("push", "index", "books", FOREIGN, str(record["head"]["t"]), "--allow-foreign", "--allow-equal")
        done = subprocess.run([place.program, "--at", place.at, "doctor", "--json"], capture_output=True, text=True, timeout=LONG)
        assert [finding["code"] for finding in json.loads(done.stdout)["findings"]] == ["id-foreign"], done.stdout
    head, index = (f"{record[concern]['id']}@{record[concern]['t']}" for concern in ("head", "index"))
    place.nameservice("reset", "books", "--head", head, "--index", index, "--yes")
    with place.connect() as connection:
        place.is_healthy(connection.ledger("books"))
    place.doctor()
    step("ids that Fluree cannot read are rejected, found and mended")


def drops(place):
    """What Fluree drops is gone here, and its name is free."""
    with Service(place) as service, place.connect() as connection:
        connection.drop("books")
        assert live(place) == []
        deadline = time.monotonic() + LONG
        while any(record["address"] == "books:main" and not record["retracted"] for record in service.get("/v1/snapshot")["records"]):
            assert time.monotonic() < deadline, "the service still shows what was dropped"
            time.sleep(0.1)
    step("a drop")


def open_connections(place):
    """What docs/fluree.md says of a connection of Fluree's that stays open while others write, retract and purge its ledger."""
    if place.kind != "directory":
        # A connection keeps in memory what it has read, wherever that is from.
        return
    with place.connect(indexing=False) as connection:
        ledger = connection.create("open")
        ledger.insert(thing("first", 1))
        assert len(rows(ledger)) == 1
        Worker(place, "open", "elsewhere", 1).read()
        assert place.show("open")["head"]["t"] == 2
        assert (len(rows(ledger)), ledger.log(limit=1)[0].t) == (1, 2)
        insert(ledger, thing("second", 2))
        assert len(rows(ledger)) == 3

        head = place.show("open")["head"]
        assert head["t"] == 3, head
        place.nameservice("retract", "open")
        try:
            ledger.insert(thing("after-retraction", 3))
            raise AssertionError("Fluree writes to a retracted ledger")
        except fluree.FlureeError as error:
            assert error.status == 400, error
        place.nameservice("restore", "open")
        assert place.show("open")["head"] == head

        # After an insert that was rejected, a connection has forgotten the ledger.
        insert(ledger, thing("restored", 4))
        place.nameservice("purge", "open", "--yes")
        insert(ledger, thing("after-purge", 5))
        assert place.show("open")["head"]["t"] == 1
    step("a connection that stays open")


SCENARIOS = [
    commits_of_three_processes, indexes_of_several_processes, branches, resets, retractions, lost_pointers, moved, foreign_ids, drops,
    open_connections,
]


def main():
    program, dynamodb, s3, *kinds = sys.argv[1:]
    os.environ.update(CREDENTIALS)
    program = str(pathlib.Path(program).resolve())
    with contextlib.suppress(urllib.error.HTTPError):
        urllib.request.urlopen(urllib.request.Request(f"{s3}/{BUCKET}", method="PUT"), timeout=LONG)
    print(f"Fluree {fluree.__version__}", flush=True)
    for kind in kinds or ["directory", "bucket", "table"]:
        print(f"{kind}", flush=True)
        place = Place(kind, program, dynamodb, s3)
        with place.folder:
            if kind == "table":
                place.nameservice("init")
            for scenario in SCENARIOS:
                scenario(place)


STARTED = time.monotonic()
if __name__ == "__main__":
    if sys.argv[1] == "--commit":
        commit(json.loads(sys.argv[2]))
    else:
        main()
