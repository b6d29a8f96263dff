"""Services that are scraped, and what was scraped as the samples of a rules' test."""

import contextlib
import http.client
import itertools
import json
import os
import pathlib
import re
import signal

from ports import free_port
from running import LONG, process, run
from running import until as until_within

# An id as Fluree has them.
COMMIT = "bagaybqabciqgzqtsjbrqbffrm4ty533it7ddqf64mij4qin6czev43pzhuhgqky"
# How many scrapes there are before a fault, and during it.
SCRAPES = 4
# How old what is read again becomes while nothing is wrong: keys, backups, the data, and what a replica has, after the upstream's sign of life.
CYCLES = {
    "nameservice_keys_age_seconds": 300,
    "nameservice_backup_age_seconds": 3600,
    "nameservice_scrub_age_seconds": 86400,
    "nameservice_replica_age_seconds": 15,
}


def series_of(text):
    """The series of a scrape: their values by name and labels, and the kinds of the metrics."""
    kinds = dict(re.findall(r"^# TYPE (\w+) (\w+)$", text, re.M))
    values = {}
    for line in text.splitlines():
        if line and not line.startswith("#"):
            series, value = line.rsplit(" ", 1)
            values[series] = float(value)
    return values, kinds


class Service:
    """A service, which can be stopped and started again, and what was scraped of it."""

    def __init__(self, story, name, *options, preloaded=False, tls=None):
        self.story, self.name, self.options, self.tls = story, name, options, tls
        self.port, self.metrics = free_port(), free_port()
        self.scrapes, self.kinds, self.runs = [], {}, contextlib.ExitStack()
        self.environment = dict(os.environ)
        if preloaded:
            self.environment |= {"LD_PRELOAD": str(story.disk), "FAULTS": str(story.folder)}
        self.running, self.token = None, None

    def start(self, *more):
        command = [self.story.program, "serve", "--listen", f"127.0.0.1:{self.port}", "--metrics", f"127.0.0.1:{self.metrics}", *self.options, *more]
        self.running = self.runs.enter_context(process(*command, log=self.story.log(self.name), env=self.environment))
        until(lambda: self.running.poll() is not None or self.look(), f"a service {self.name}")
        assert self.running.poll() is None, self.story.log(self.name).read_text()
        return self

    def stop(self):
        self.runs.close()

    def kill(self):
        self.running.kill()
        self.running.wait()

    def ask(self, method, path, body=None, **headers):
        """The status of an answer, and its document; 0 without one."""
        if self.token:
            headers["Authorization"] = f"Bearer {self.token}"
        connection = http.client.HTTPConnection if self.tls is None else http.client.HTTPSConnection
        options = {} if self.tls is None else {"context": self.tls}
        asked = connection("127.0.0.1", self.port, timeout=LONG, **options)
        try:
            asked.request(method, path, body and json.dumps(body), {"Content-Type": "application/json", **headers})
            answer = asked.getresponse()
            text = answer.read()
            return answer.status, json.loads(text) if text else None
        except (OSError, http.client.HTTPException):
            return 0, None
        finally:
            asked.close()

    def create(self, address):
        status, answer = self.ask("POST", "/v1/ledgers", {"address": address})
        assert status == 201, (status, answer)

    def push(self, address="mydb", t=None, **headers):
        """Pushes a head that is newer than all before, and returns the status of the answer."""
        t = t or next(self.story.times)
        return self.ask("PUT", f"/v1/heads/{address}", {"new": {"id": COMMIT, "t": t}}, **headers)[0]

    def transact(self, addresses):
        """Pushes the heads of up to 48 records at a time: a change each."""
        t = next(self.story.times)
        operations = [{"op": "push_head", "address": address, "new": {"id": COMMIT, "t": t}} for address in addresses]
        status, answer = self.ask("POST", "/v1/transactions", {"operations": operations})
        assert status == 200, (status, answer)

    def look(self):
        """What a scrape shows now; `None` without an answer."""
        asked = http.client.HTTPConnection("127.0.0.1", self.metrics, timeout=LONG)
        try:
            asked.request("GET", "/metrics")
            answer = asked.getresponse()
            values, kinds = series_of(answer.read().decode())
        except (OSError, http.client.HTTPException):
            return None
        finally:
            asked.close()
        if answer.status != 200:
            return None
        self.kinds |= kinds
        return values

    def value(self, name, **labels):
        """The sum of the series of a metric now, with these labels; 0 without any."""
        wanted = [f'{label}="{value}"' for label, value in labels.items()]
        found = (self.look() or {}).items()
        return sum(value for series, value in found if series.split("{")[0] == name and all(label in series for label in wanted))

    def until(self, name, reached, **labels):
        until(lambda: reached(self.value(name, **labels)), f"{name} of {self.name}")

    def scrape(self):
        self.scrapes.append(self.look())


def until(holds, what):
    """Waits longer than others: these services have what the steps beside them leave of the processors."""
    return until_within(holds, what, 5 * LONG)


class Unmountable(Exception):
    """This user may not mount file systems."""


class Story:
    """A fault: its services, and what is scraped of them before it and during it."""

    def __init__(self, name, program, disk, folder):
        self.name, self.program, self.disk, self.folder = name, program, disk, folder
        self.services, self.times, self.broken_at = [], itertools.count(1), None
        folder.mkdir()

    def log(self, name):
        return self.folder / f"{name}.log"

    def service(self, name, *options, **settings):
        self.services.append(Service(self, f"{self.name}-{name}", *options, **settings))
        return self.services[-1]

    def scrape(self, traffic, times=SCRAPES):
        """Scrapes each service some times, each after some traffic."""
        for _ in range(times):
            traffic()
            for service in self.services:
                service.scrape()

    def breaks(self):
        """Notes that what follows is the fault."""
        self.broken_at = len(self.services[0].scrapes)

    def fault(self, name):
        """Asks the preloaded library for a fault until it is asked for none."""
        (self.folder / name).touch()

    def mount(self, name, size="3m"):
        """A file system of its own."""
        folder = self.folder / name
        folder.mkdir(exist_ok=True)
        try:
            mounted = run(*as_root("mount", "-t", "tmpfs", "-o", f"size={size},uid={os.getuid()}", "tmpfs", folder), ok=False)
        except OSError as missing:
            raise Unmountable(missing) from None
        if mounted.returncode != 0:
            raise Unmountable(mounted.stderr)
        return folder

    def may_mount(self):
        """Fails where this user may not."""
        run(*as_root("umount", self.mount("tried")))

    def close(self):
        for service in self.services:
            if service.running:
                service.running.send_signal(signal.SIGCONT)
            service.stop()
        mounted = pathlib.Path("/proc/self/mounts").read_text().splitlines()
        for line in reversed(mounted):
            place = line.split(" ")[1]
            if pathlib.Path(place).is_relative_to(self.folder):
                run(*as_root("umount", "--lazy", place))


def as_root(*command):
    return [*([] if os.getuid() == 0 else ["sudo", "--non-interactive"]), *command]


def quick(series):
    """Of a bucket of durations, the one that has all."""
    return re.sub(r'le="[^"]*"', 'le="+Inf"', series) if "_duration_seconds_bucket{" in series else series


def difference(scrapes, series):
    """Between the last two scrapes."""
    before, last = ((scrape or {}).get(series) for scrape in scrapes[-2:])
    return last - before if None not in (before, last) else 0


def continued(service, interval, until_second, grows, is_slow):
    """The samples of a service on the rules' clock: as scraped, and then by the last difference. Unless the fault is slowness, a request that a busy
    machine has delayed is not repeated for hours: all that follow are as quick as can be."""
    names = sorted({series for scrape in service.scrapes if scrape for series in scrape})
    count = until_second // interval + 1
    labels = f'instance="{service.name}",job="nameservice"'
    up = [0 if scrape is None else 1 for scrape in service.scrapes]
    yield f"up{{{labels}}}", up + up[-1:] * (count - len(up))
    for series in names:
        metric = series.split("{")[0]
        own = series.split("{", 1)[1].rstrip("}") if "{" in series else ""
        kind = service.kinds.get(metric) or service.kinds.get(re.sub(r"_(bucket|sum|count)$", "", metric))
        values = [None if scrape is None else scrape.get(series) for scrape in service.scrapes]
        last = values[-1]
        if last is not None:
            if kind in ("counter", "histogram"):
                step = difference(service.scrapes, series if is_slow else quick(series))
            elif metric.endswith("_age_seconds"):
                step = interval
                ages = values[-SCRAPES:]
                assert metric not in grows or ages == sorted(set(ages)), f"{metric} of {service.name} does not grow: {ages}"
            elif metric.endswith("_remaining_seconds"):
                step = -interval
            else:
                step = 0
            further = [last + step * n for n in range(1, count - len(values) + 1)]
            if metric in CYCLES and metric not in grows:
                further = [value % CYCLES[metric] for value in further]
            values += further
        yield f"{metric}{{{','.join(filter(None, [own, labels]))}}}", values


def written(values):
    """Samples as promtool reads them. A series that ends does so immediately, as Prometheus marks it."""
    words, had = [], False
    for value in values:
        if value is None:
            words.append("stale" if had else "_")
        else:
            words.append(f"{value:.6f}".rstrip("0").rstrip("."))
        had = value is not None
    return " ".join(words)
