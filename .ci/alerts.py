"""Proves the alerts by faults: alerts.py PROGRAM FOLDER [FAULT…]

Each fault below is made for real: a service runs, is called and scraped, then something breaks, and it is scraped again. What was scraped is given to
the rules of infra/self-hosted/prometheus/alerts.yml, by `promtool test rules`: each scrape is a sample of the rules' clock, and the last difference
between two continues, as the fault does. Each alert of the fault fires within its time, with its labels and a text, none fires before the fault, and
no other at all. Every alert has a fault, and the series that it asks for were scraped in it. Some faults need a file system of their own, which root
mounts, or sudo; where neither may, they are left out.
"""

import concurrent.futures
import contextlib
import http.client
import http.server
import json
import os
import pathlib
import re
import signal
import sqlite3
import ssl
import sys
import threading
import time

import yaml
from ports import free_port
from running import LONG, backups_in, certificate, run
from scraped import COMMIT, SCRAPES, Story, Unmountable, as_root, continued, until, written

ROOT = pathlib.Path(__file__).resolve().parent.parent
RULES = ROOT / "infra/self-hosted/prometheus/alerts.yml"
MINUTE, HOUR = 60, 3600


def fill(volume):
    """Fills a file system to its last byte."""
    with open(volume / "ballast", "wb", buffering=0) as ballast, contextlib.suppress(OSError):
        for size in (65536, 4096, 1):
            with contextlib.suppress(OSError):
                while ballast.write(bytes(size)) == size:
                    pass


def flip(path, word, begin=0, end=None):
    """Flips a bit of each place in a file that holds a word, as a disk does that does not keep what was written. Returns how many there are."""
    content = path.read_bytes()
    places = [found.start() for found in re.compile(re.escape(word)).finditer(content, begin, end or len(content))]
    with open(path, "r+b") as file:
        for place in places:
            file.seek(place)
            file.write(bytes([content[place] ^ 1]))
    return len(places)


@contextlib.contextmanager
def issuer(story):
    """Serves a key set until the block ends, or it is closed. Gives its URL, a token, and what ends it."""
    keys = ["--key", story.folder / "key.pem", "--jwks", story.folder / "jwks.json"]
    run(story.program, "token", "keys", *keys)
    token = run(story.program, "token", "mint", *keys[:2], "--subject", "ci", "--scope", "admin", "--ttl", "1h").stdout.strip()

    class Keys(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            body = (story.folder / "jwks.json").read_bytes()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", free_port()), Keys)
    threading.Thread(target=server.serve_forever).start()
    ended = []

    def end():
        if not ended:
            ended.append(server.shutdown())
            server.server_close()

    try:
        yield f"http://127.0.0.1:{server.server_port}/jwks.json", token, end
    finally:
        end()


def unverified():
    """TLS as to a service whose certificate is its own, or expired."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


def secured(story):
    return ["--tls-cert", story.folder / "tls.crt", "--tls-key", story.folder / "tls.key"]


# Each fault: what it does, the alerts that it fires, by service, and those that it may. Its alert fires within its `for` and the longest window of its
# rule, and after the time that a gauge needs to its threshold.
FAULTS = {}


def fault(*fires, may=(), grows=None, interval=15, lasts=0):
    """`grows`: the age that grows by a second each second during the fault, and how far the threshold is away."""

    def added(story):
        FAULTS[story.__name__] = (story, fires, may, grows or {}, interval, lasts)
        return story

    return added


@fault(lasts=HOUR)
def nothing(story):
    """A service with all that it may have, a conflict, and a request that is repeated under its key."""
    certificate(story.folder, days=90)
    with issuer(story) as (url, token, _):
        service = story.service(
            "service", "--data", story.folder / "data", "--backup-to", story.folder / "backups", "--jwks", url, "--any-issuer", "--any-audience",
            *secured(story), tls=unverified(),
        )
        service.token = token
        service.start().create("mydb")

        def works():
            assert service.push() == 200 and service.ask("GET", "/v1/records/mydb")[0] == 200

        story.scrape(works)
        story.breaks()
        key = {"Idempotency-Key": "one"}
        body = {"expected": None, "new": {"id": COMMIT, "t": 1}}
        assert service.ask("PUT", "/v1/heads/mydb", body)[0] == 409
        t = next(story.times)
        assert [service.push(t=t, **key) for _ in range(2)] == [200, 200]
        story.scrape(works)


@fault(lasts=HOUR)
def restart(story):
    """A service that is started again, as for an upgrade, and its replica, which rejects one write meanwhile: it is repeated under its key."""
    upstream = story.service("upstream", "--data", story.folder / "data").start()
    replica = replica_of(story, upstream)

    def works():
        assert replica.push() == 200 and replica.ask("GET", "/v1/records/mydb")[0] == 200

    story.scrape(works)
    story.breaks()
    upstream.stop()
    t, key = next(story.times), {"Idempotency-Key": "one"}
    assert replica.push(t=t, **key) == 503
    story.scrape(lambda: None, times=1)
    upstream.start()
    until(lambda: replica.push(t=t, **key) == 200, "the repeated write")
    replica.until("nameservice_replica_age_seconds", lambda age: age < 5)
    story.scrape(works)


def replica_of(story, upstream):
    upstream.create("mydb")
    replica = story.service("replica", "--memory", "--upstream", f"http://127.0.0.1:{upstream.port}").start()
    until(lambda: replica.ask("GET", "/v1/records/mydb")[0] == 200, "the first snapshot")
    return replica


@fault(("NameserviceWritesFail", "service"), ("NameserviceUnavailable", "service"), may=["NameserviceOutcomeUnknown"])
def full_disk(story):
    """The write that finds it full may have been applied."""
    volume = story.mount("volume")
    service = story.service("service", "--data", volume / "data").start()
    service.create("mydb")
    story.scrape(service.push)
    story.breaks()
    fill(volume)
    until(lambda: service.push() == 503, "a full disk")
    story.scrape(service.push)


@fault(("NameserviceDown", "service"), may=["NameserviceOutcomeUnknown", "NameserviceWritesFail"])
def failed_sync(story):
    """The service ends, since nobody knows what the disk has."""
    service = story.service("service", "--data", story.folder / "data", preloaded=True).start()
    service.create("mydb")
    story.scrape(service.push)
    story.breaks()
    story.fault("sync-fails")
    until(lambda: service.push() != 200 and service.running.poll() is not None, "the end of the service")
    assert service.running.poll() != 0
    story.scrape(lambda: None)


@fault(("NameserviceSlow", "service"))
def slow_sync(story):
    service = story.service("service", "--data", story.folder / "data", preloaded=True).start()
    service.create("mydb")
    story.scrape(service.push)
    story.breaks()
    story.fault("sync-is-slow")
    story.scrape(service.push)


@fault(("NameserviceBackupOld", "service"), ("NameserviceBackupFails", "service"), grows={"nameservice_backup_age_seconds": 0})
def no_backup(story):
    """The volume of the backups is full, and the last one four hours old: its age is that of its name."""
    volume = story.mount("volume", size="8m")
    service = story.service("service", "--data", story.folder / "data", "--backup-to", volume / "backups", "--backup-every", "2s").start()
    service.create("mydb")
    until(lambda: backups_in(volume / "backups"), "a backup")
    story.scrape(service.push)
    service.stop()
    story.breaks()
    backups = backups_in(volume / "backups")
    old = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(time.time() - 4 * HOUR))
    for n, backup in enumerate(backups):
        backup.rename(volume / "backups" / (old if n == 0 else f"unused-{n}"))
    fill(volume)
    service.start()

    def fails():
        before = failures(service, "make")
        service.until("nameservice_backup_failures_total", lambda failures: failures > before, step="make")

    story.scrape(fails)


def failures(service, step):
    return service.value("nameservice_backup_failures_total", step=step)


@fault(("NameserviceBackupsNotRemoved", "service"))
def stuck_backup(story):
    """Another file system is mounted in an old backup."""
    story.may_mount()
    folder = story.folder / "backups"
    service = story.service("service", "--data", story.folder / "data", "--backup-to", folder, "--backup-every", "1s", "--backup-keep", "3").start()
    service.create("mydb")
    until(lambda: len(backups_in(folder)) == 3, "three backups")
    story.scrape(service.push)
    story.breaks()

    def sticks():
        place = backups_in(folder)[-1] / "mounted"
        with contextlib.suppress(OSError):
            place.mkdir(exist_ok=True)
            return run(*as_root("mount", "-t", "tmpfs", "tmpfs", place), ok=False).returncode == 0

    until(sticks, "a mount in a backup")
    service.until("nameservice_backup_leftovers", lambda leftovers: leftovers > 0)
    story.scrape(service.push)


@fault(("NameserviceDataDamaged", "service"), ("NameserviceBackupFails", "service"))
def damaged_row(story):
    """Found by the check of a backup, as another process has written the file."""
    service = damaged(story, "--backup-to", story.folder / "backups", "--backup-every", "1s")

    def found():
        before = failures(service, "check")
        until(lambda: service.push() == 200 and failures(service, "check") > before, "damage")

    story.scrape(found)


@fault(("NameserviceDataDamaged", "service"))
def scrubbed_row(story):
    """Found before the next backup: the file differs from what the service holds."""
    service = damaged(story, "--scrub-every", "1s", "--backup-to", story.folder / "backups")
    service.until("nameservice_scrub_findings", lambda findings: findings > 0)
    story.scrape(service.push)


def damaged(story, *options):
    """A service after another process has written its file."""
    data = story.folder / "data"
    service = story.service("service", "--data", data, *options).start()
    # On more than one page: what is written again is read from the write-ahead file.
    for address in ("mydb", *(f"kept/{n}" for n in range(100))):
        service.create(address)
    # The file has everything once the service has ended.
    service.stop()
    service.start()
    story.scrape(service.push)
    story.breaks()
    assert flip(data / "nameservice.log.db", b"kept/98")
    return service


@fault(("NameserviceScrubOld", "service"), grows={"nameservice_scrub_age_seconds": 3 * 24 * HOUR}, interval=4 * MINUTE)
def old_scrub(story):
    """No descriptor is left for another connection to the log."""
    data = story.folder / "data"
    service = story.service("service", "--data", data, "--scrub-every", "1s", preloaded=True).start()
    service.create("mydb")
    story.scrape(service.push)
    story.breaks()
    story.fault("open-fails")
    # One may have begun before.
    until(lambda: "was not compared with memory" in story.log(service.name).read_text(), "a scrub that fails")
    story.scrape(service.push)


@fault(("NameserviceFull", "service"))
def full(story):
    """All connections are held."""
    most = 8
    service = story.service("service", "--memory", "--max-connections", most).start()
    service.create("mydb")
    story.scrape(service.push)
    story.breaks()
    with contextlib.ExitStack() as held:

        def holds():
            if service.push() != 200:
                return True
            stream = held.enter_context(contextlib.closing(http.client.HTTPConnection("127.0.0.1", service.port, timeout=LONG)))
            stream.request("GET", "/v1/events")
            stream.getresponse()

        until(holds, "a connection too many")
        story.scrape(service.push)


@fault(
    ("NameserviceDown", "upstream"), ("NameserviceReplicaOld", "replica"), ("NameserviceUnavailable", "replica"),
    grows={"nameservice_replica_age_seconds": 60},
)
def upstream_away(story):
    upstream = story.service("upstream", "--memory").start()
    replica = replica_of(story, upstream)

    def works():
        replica.push()
        assert replica.ask("GET", "/v1/records/mydb")[0] == 200

    story.scrape(works)
    story.breaks()
    upstream.kill()
    until(lambda: replica.push() == 503, "a rejected write")
    story.scrape(works)


@fault(("NameserviceOutcomeUnknown", "replica"))
def lost_answer(story):
    """The upstream is killed between a write and its answer, once: the first request that the replica forwards."""
    upstream = story.service("upstream", "--data", story.folder / "data").start()
    replica = replica_of(story, upstream)
    story.scrape(lambda: None)
    story.breaks()
    counted = {"name": "nameservice_requests_total", "outcome": "outcome_unknown"}

    def lost():
        upstream.running.send_signal(signal.SIGSTOP)
        with concurrent.futures.ThreadPoolExecutor() as pool:
            answered = pool.submit(replica.push)
            replica.until("nameservice_requests_in_flight", lambda requests: requests > 0)
            upstream.kill()
            answered.result()
        is_lost = replica.value(**counted) > 0
        upstream.start()
        return is_lost

    until(lost, "a lost answer")
    until(lambda: replica.push() == 200, "the upstream")
    replica.until("nameservice_replica_age_seconds", lambda age: age < 5)
    story.scrape(replica.push)


@fault(("NameserviceProjectionBehind", "service"))
def projection_behind(story):
    """Another program writes records to files, and one is damaged once its change is in the feed and before the read model has read it."""
    files, feed = story.folder / "files", story.folder / "feed"
    files.mkdir()
    service = story.service("service", "--at", f"file://{files}", "--feed-data", feed, preloaded=True).start()
    for address in ("damaged", "other"):
        service.create(address)
        assert service.push(address) == 200
    query = {"query": '{ recordsByState(state: "ready") { edges { node { address } } } }'}
    status, answer = service.ask("POST", "/graphql", query)
    assert status == 200 and "errors" not in answer, answer
    story.scrape(lambda: service.push("other"))
    story.breaks()
    damaged = files / "ns@v2/damaged/main.json"
    sound = damaged.read_text()

    def replace(path, text):
        path.parent.mkdir(parents=True, exist_ok=True)
        (path.parent / "new.tmp").write_text(text)
        (path.parent / "new.tmp").rename(path)

    def sticks():
        before = service.value("nameservice_feed_position")
        story.fault("open-is-slow")
        replace(damaged, re.sub(r'"f:t": \d+', f'"f:t": {next(story.times)}', sound))
        service.until("nameservice_feed_position", lambda position: position > before)
        replace(damaged, "{")
        (story.folder / "open-is-slow").unlink()
        # If it was quicker, again.
        has_failed = lambda: service.value("nameservice_projection_failures_total") > 0
        is_complete = lambda: service.value("nameservice_projection_position") == service.value("nameservice_feed_position")
        until(lambda: has_failed() or is_complete(), "the read model")
        return has_failed()

    until(sticks, "a record that the read model cannot read")
    template = (files / "ns@v2/other/main.json").read_text()
    for n in range(5_100):
        replace(files / f"ns@v2/many/{n}/main.json", template.replace('"other', f'"many/{n}'))
    service.until("nameservice_projection_lag_changes", lambda changes: changes > 10_000)
    story.scrape(lambda: service.push("other"))


@fault(("NameserviceMaintenanceFails", "service"), interval=60)
def unremoved_changes(story):
    """The index of old changes is damaged: they are not found there. The service tries once a minute to remove them, so that its scrapes are a minute
    apart."""
    data, failures = story.folder / "data", "nameservice_log_maintenance_failures_total"
    addresses = [f"many/{n}" for n in range(48)]
    service = story.service("service", "--data", data).start()
    for address in addresses:
        service.create(address)
    # Changes get their index by the thousand.
    for _ in range(30):
        service.transact(addresses)
    story.scrape(lambda: service.transact(addresses))
    service.stop()
    story.breaks()
    log = data / "nameservice.log.db"
    with contextlib.closing(sqlite3.connect(log)) as database:
        root, = database.execute("SELECT rootpage FROM sqlite_master WHERE name = 'log_by_address'").fetchone()
        size, = database.execute("PRAGMA page_size").fetchone()
    content, at = log.read_bytes(), (root - 1) * size
    number = lambda at, width: int.from_bytes(content[at : at + width], "big")
    # The file format of SQLite: an inner page names those below it.
    assert content[at] == 2
    leaves = [number(at + 8, 4), *(number(at + number(at + 12 + 2 * n, 2), 4) for n in range(number(at + 3, 2)))]
    for leaf in leaves:
        assert flip(log, b"many/", (leaf - 1) * size, leaf * size)
    service.start("--feed-retention", "1s")

    def fails():
        service.push(addresses[0])
        before = service.scrapes[-1].get(failures, 0)
        until(lambda: service.value(failures) > before, "a change that is not removed")

    story.scrape(fails, times=2)


@fault(("NameserviceCertificateExpires", "service"))
def expired_certificate(story):
    certificate(story.folder, days=90)
    service = story.service("service", "--memory", *secured(story), tls=unverified()).start()
    service.create("mydb")
    story.scrape(service.push)
    story.breaks()
    (story.folder / "index").touch()
    (story.folder / "ca.conf").write_text(
        "[ca]\ndefault_ca = own\n[own]\ndatabase = index\nnew_certs_dir = .\ndefault_md = sha256\npolicy = any\nrand_serial = yes\nx509_extensions = leaf\n"
        "[any]\ncommonName = supplied\n[leaf]\nbasicConstraints = critical,CA:FALSE\n"
    )
    run("openssl", "req", "-new", "-key", "tls.key", "-subj", "/CN=localhost", "-out", "request", cwd=story.folder)
    run(
        "openssl", "ca", "-config", "ca.conf", "-batch", "-selfsign", "-notext", "-in", "request", "-keyfile", "tls.key",
        "-startdate", "20200101000000Z", "-enddate", "20200201000000Z", "-out", "tls.crt", cwd=story.folder,
    )
    service.until("nameservice_certificate_remaining_seconds", lambda seconds: seconds < 0)
    story.scrape(service.push)


@fault(("NameserviceKeysOld", "service"), grows={"nameservice_keys_age_seconds": HOUR})
def issuer_away(story):
    """The service is asked to read the keys again with each scrape."""
    with issuer(story) as (url, token, end):
        service = story.service("service", "--memory", "--jwks", url, "--any-issuer", "--any-audience")
        service.token = token
        service.start().create("mydb")

        def reads(succeeds):
            were_read = lambda: story.log(service.name).read_text().count("the key set was read again")
            before = were_read()
            service.running.send_signal(signal.SIGHUP)
            if succeeds:
                until(lambda: were_read() > before, "a read of the keys")
            assert service.push() == 200

        story.scrape(lambda: reads(True))
        story.breaks()
        end()
        story.scrape(lambda: reads(False))
        until(lambda: "the previous keys stay in use" in story.log(service.name).read_text(), "a read that fails")


def seconds(text):
    unit = {"s": 1, "m": MINUTE, "h": HOUR, "d": 24 * HOUR}
    return int(text[:-1]) * unit[text[-1]]


class Rule:
    def __init__(self, rule):
        self.name, self.expression, self.rule = rule["alert"], rule["expr"], rule
        windows = [seconds(window) for window in re.findall(r"\[(\d+[smhd])\]", self.expression)]
        self.time = seconds(rule.get("for", "0s")) + max(windows, default=0)
        self.metrics = set(re.findall(r"\b(?:nameservice_\w+|up)\b(?=\{|\[| [<>=])", self.expression))


def rules():
    return {rule["alert"]: Rule(rule) for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]}


def tests_of(story, known):
    """The tests of a fault: what fires when, and those whose failure shows the alerts with their texts."""
    _, fires, may, grows, interval, lasts = FAULTS[story.name]
    broken_at = (story.broken_at - 1) * interval
    # The scrapes are closer to each other than on the rules' clock: an age only grows there after them.
    growth = {alert: max((grows[metric] + SCRAPES * interval for metric in known[alert].metrics if metric in grows), default=0) for alert, _ in fires}
    times = {alert: broken_at + known[alert].time + growth[alert] + 2 * interval for alert, _ in fires}
    end = max([broken_at + lasts, *times.values()])
    is_slow = any(alert == "NameserviceSlow" for alert, _ in fires)
    series = [sample for service in story.services for sample in continued(service, interval, end, grows, is_slow)]
    for alert, name in fires:
        scraped = {series.split("{")[0] for series, _ in series if f'instance="{story.name}-{name}"' in series}
        assert known[alert].metrics <= scraped, f"{story.name}: {alert} asks for {known[alert].metrics - scraped}"
    allowed = "|".join(may)
    fired = lambda matchers, time: f'group by (alertname, instance, severity) (count_over_time(ALERTS{{alertstate="firing",{matchers}}}[{time}s]))'
    sample = lambda alert, name: {
        "labels": f'{{alertname="{alert}", instance="{story.name}-{name}", severity="{known[alert].rule["labels"]["severity"]}"}}', "value": 1,
    }
    asked = [{"expr": fired('alertname!=""', broken_at + 1), "eval_time": f"{broken_at}s"}]
    for alert, name in fires:
        own = f'alertname="{alert}"'
        asked.append({"expr": fired(own, times[alert]), "eval_time": f"{times[alert]}s", "exp_samples": [sample(alert, name)]})
    asked.append({"expr": fired(f'alertname!~"{allowed}"', end), "eval_time": f"{end}s", "exp_samples": [sample(*alert) for alert in fires]})
    test = {"name": story.name, "interval": f"{interval}s", "input_series": [{"series": name, "values": written(values)} for name, values in series]}
    shown_at = lambda end: sorted({*range(broken_at + interval, min(end, broken_at + 2 * HOUR), 4 * interval), end})
    shown = [{"eval_time": f"{time}s", "alertname": alert} for alert, _ in fires for time in shown_at(times[alert])]
    return {**test, "promql_expr_test": asked}, {**test, "alert_rule_test": shown}


def promtool(folder, name, tests):
    """Whether the tests pass, and what it says. The rules are evaluated as often as their series have samples."""
    paths = []
    for interval in {test["interval"] for test in tests}:
        paths.append(folder / f"{name}-{interval}.yml")
        own = [test for test in tests if test["interval"] == interval]
        paths[-1].write_text(json.dumps({"rule_files": [str(RULES)], "evaluation_interval": interval, "tests": own}))
    done = run("promtool", "test", "rules", *paths, ok=False)
    return done.returncode == 0, done.stdout + done.stderr


def told(story, begun):
    try:
        FAULTS[story.name][0](story)
    except Unmountable as reason:
        print(f"  {story.name} is left out: this user may not mount a file system: {reason}", flush=True)
        return None
    except BaseException:
        for log in sorted(story.folder.glob("*.log")):
            print(f"-- {story.name}: {log.name}\n{log.read_text()[-3000:]}", file=sys.stderr)
        raise
    finally:
        story.close()
    print(f"  {story.name}: {time.monotonic() - begun:.1f} s", flush=True)
    return story


def main():
    program, folder = (pathlib.Path(path).resolve() for path in sys.argv[1:3])
    chosen, known = sys.argv[3:] or list(FAULTS), rules()
    unproven = set(known) - {alert for _, fires, *_ in FAULTS.values() for alert, _ in fires}
    assert not unproven, f"no fault fires {unproven}"
    disk = folder / "disk.so"
    run("cc", "-shared", "-fPIC", "-O1", ROOT / ".ci/disk.c", "-o", disk, "-ldl")
    begun = time.monotonic()
    # Other steps of the gate run beside this one, and some wait for seconds only. So all of this waits longer: see `scraped.until`.
    os.nice(5)
    # Those that wait the longest are the first.
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        stories = [Story(name, program, disk, folder / name) for name in sorted(chosen, key=list(FAULTS).index)]
        first = sorted(stories, key=lambda story: story.name not in ("unremoved_changes", "projection_behind"))
        done = set(pool.map(lambda story: told(story, begun), first))
    stories = [story for story in stories if story in done]
    tests = [tests_of(story, known) for story in stories]
    passes, said = promtool(folder, "fired", [fires for fires, _ in tests])
    assert passes, said
    # What promtool found instead of nothing.
    _, shown = promtool(folder, "shown", [shown for _, shown in tests if shown["alert_rule_test"]])
    shape = r'Labels:\{alertname="(\w+)", instance="([\w-]+)", [^\n]*\}\s*Annotations:\{description="([^\n]*)", summary="([^\n]*)"\}'
    texts = re.findall(shape, shown)
    for story in stories:
        for alert, name in FAULTS[story.name][1]:
            instance = f"{story.name}-{name}"
            own = [(description, summary) for found, where, description, summary in texts if (found, where) == (alert, instance)]
            assert own, f"{alert} of {instance} has no text:\n{shown}"
            for description, summary in own:
                assert description and instance in summary and "<no value>" not in summary and "error" not in summary, (alert, summary, description)
    print(f"{len(stories)} faults, {len(known)} alerts")


main()
