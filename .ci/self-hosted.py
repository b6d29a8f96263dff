"""Tests infra/self-hosted, and docs/production.md block by block: self-hosted.py PROGRAM TOOLS [PART…]. PROGRAM is the built `nameservice`, TOOLS a
folder with traefik."""

import contextlib
import json
import os
import pathlib
import re
import shlex
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request

import helm_python
import kubernetes_validate
import yaml
from docs import Page
from ports import free_port
from running import LONG, backups_in, certificate, process, run, until, within

ROOT = pathlib.Path(__file__).resolve().parent.parent
HERE = ROOT / "infra/self-hosted"
KUBERNETES = "1.31"
COMMIT = "bafybeigdyrzt5sfp7udm7hu76uh7y26nf3efuylqabf3oclgtqy55fbzdi"
# Of 10: what systemd-analyze calls the exposure of a service. Below 2 is "OK".
EXPOSURE = 15
# The user and the group of the image and the chart, the first that systemd gives to units with one of their own, and one that OpenShift gives to
# the containers of a namespace, whose group is 0.
IMAGE_USER, DYNAMIC_USER, NAMESPACE_USER = 65532, 61184, 1_000_650_000
# The values with which OpenShift chooses.
OPENSHIFT = {"podSecurityContext": {"runAsUser": None, "runAsGroup": None, "fsGroup": None}}


class Service:
    """A service with tokens, as the files of this folder run it."""

    def __init__(self, program, folder):
        self.program, self.folder, self.port = program, folder, free_port()
        keys = ["--key", folder / "key.pem", "--jwks", folder / "jwks.json"]
        run(program, "token", "keys", *keys)
        mint = ["--key", folder / "key.pem", "--subject", "ci", "--scope", "admin", "--ttl", "1h"]
        self.token = run(program, "token", "mint", *mint).stdout.strip()
        self.running = process(
            program, "serve", "--memory", "--listen", f"0.0.0.0:{self.port}", "--jwks", folder / "jwks.json",
            "--issuer", "nameservice", "--audience", "nameservice", log=folder / "service.log",
        )

    def __enter__(self):
        self.running.__enter__()
        until(lambda: self.answers(f"http://127.0.0.1:{self.port}"), "the service")
        return self

    def __exit__(self, *failure):
        self.running.__exit__(*failure)

    def answers(self, url):
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        try:
            return urllib.request.urlopen(f"{url}/v1/health", timeout=LONG, context=context).status == 200
        except (OSError, urllib.error.URLError):
            return False

    def command(self, url, *words, ok=True):
        environment = {**os.environ, "NAMESERVICE_TOKEN": self.token, "NAMESERVICE_URL": url, "SSL_CERT_FILE": str(self.folder / "tls.crt")}
        return run(self.program, *words, ok=ok, env=environment)


def with_root(part):
    """A part of which root runs all, with its mounts in a namespace that ends with it."""
    name = part.__name__.removeprefix("part_")

    def as_root(program, tools, folder):
        if os.environ.get("SELF_HOSTED_ROOT") == name:
            return part(program, tools, folder)
        own = [f"SELF_HOSTED_ROOT={name}", f"PATH={os.environ['PATH']}", "PYTHONDONTWRITEBYTECODE=1"]
        sudo = [] if os.getuid() == 0 else ["sudo"]
        command = [*sudo, "env", *own, "unshare", "--mount", sys.executable, __file__, program, tools, name]
        if subprocess.run(command, timeout=10 * LONG).returncode != 0:
            sys.exit(f"{name} has failed")

    return as_root


def confined(user, *writable, umask="022", group=None):
    """What a command begins with that runs as this user and its group, or another one, without any right of root, where nothing but these directories
    can be written."""
    script = '''while [ "$1" != -- ]; do mount --bind "$1" "$1"; shift; done
        shift; mount -o remount,bind,ro /; umask "$UMASK"
        exec setpriv --reuid "$USER_ID" --regid "$GROUP_ID" --clear-groups --no-new-privs --bounding-set=-all --inh-caps=-all "$@"'''
    environment = ["env", f"USER_ID={user}", f"GROUP_ID={user if group is None else group}", f"UMASK={umask}"]
    return [*environment, "unshare", "--mount", "sh", "-euc", script, "sh", *writable, "--"]


class Deployed:
    """A service that runs as its files say: LINE is the whole command, URL where it answers, and BY what a command begins with that runs
    as its user."""

    def __init__(self, line, url, log, token="", by=()):
        self.line, self.url, self.log, self.by = line, url, log, by
        self.environment = {**os.environ, "NAMESERVICE_TOKEN": token, "NAMESERVICE_URL": url}

    def command(self, *words, ok=True):
        """Runs the program as its user, where a command without a place means this service."""
        return run(*self.by, self.line[0], *words, ok=ok, env=self.environment)

    @contextlib.contextmanager
    def running(self, **options):
        with process(*self.by, *self.line, log=self.log, **options) as running:
            until(lambda: self.command("health", ok=False).returncode == 0, f"the service of {self.log}")
            yield running


def restores(service, backups, data, restore=None):
    """A backup of a service becomes its data again, where it has its data; what it had stays beside it, or within it if it is a volume. Then
    the service starts with it. RESTORE is what the operator runs; by default the service's user does."""
    with service.running():
        service.command("create", "mydb")
        until(lambda: backups_in(backups), "a backup")
    # It may be one from before the record: the next start makes another.
    for early in backups_in(backups):
        shutil.rmtree(early)
    with service.running():
        until(lambda: backups_in(backups), "a backup")
        service.command("create", "later")
    (backup,) = backups_in(backups)
    command = restore or (lambda *options, ok=True: service.command("restore-backup", backup, "--data", data, *options, ok=ok))
    lost = command(ok=False)
    assert lost.returncode == 3 and "--accept-loss" in lost.stderr, lost
    command("--accept-loss")
    service.command("doctor", "--data", data)
    listed = [service.command("list", "--data", place, "--json").stdout for place in (data, backup)]
    assert listed[0] == listed[1], listed
    beside = list(data.parent.glob(f"{data.name}.replaced-*"))
    assert len(beside or list(data.glob("replaced-*"))) == 1 and not (beside and data.is_mount())
    with service.running():
        assert service.command("show", "mydb", ok=False).returncode == 0
        assert service.command("show", "later", ok=False).returncode == 4
        service.command("create", "again")


# systemd: the unit is valid and hardened, and its command runs under a supervisor that listens
def part_systemd(program, _tools, folder):
    unit = HERE / "systemd/nameservice.service"
    # With the program where it will be: its path is checked.
    copy = folder / "nameservice.service"
    copy.write_text(unit.read_text().replace("/usr/bin/nameservice", str(program)))
    verified = run("systemd-analyze", "verify", copy, ok=False)
    if verified.returncode != 0 or str(copy.name) in verified.stderr:
        sys.exit(f"systemd-analyze verify: {verified.stdout}{verified.stderr}")
    run("systemd-analyze", "security", "--offline=true", f"--threshold={EXPOSURE}", copy)

    settings = dict(re.findall(r"^(\w+)=(.+)$", unit.read_text(), re.M))
    # What the service needs may be away for longer than the five tries that systemd makes by default.
    assert (settings["Restart"], settings["StartLimitIntervalSec"]) == ("on-failure", "0"), settings
    service = of_unit(unit, HERE / "debian/default", folder, {"/usr/bin/nameservice": str(program), "/var/lib/nameservice": f"{folder}/state"})
    (folder / "state").mkdir(mode=0o700)
    notify = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    notify.bind(str(folder / "notify"))
    notify.settimeout(LONG)
    usec = str(int(settings["WatchdogSec"]) * 1_000_000)
    environment = {**os.environ, "NOTIFY_SOCKET": str(folder / "notify"), "WATCHDOG_USEC": usec}
    with service.running(env=environment, umask=0o077) as running:
        assert notify.recv(256).strip() == b"READY=1"
        assert notify.recv(256).strip() == b"WATCHDOG=1"
        running.send_signal(signal.SIGHUP)
        running.terminate()
        # On a busy machine it has shown more than once that it lives.
        while (said := notify.recv(256).strip()) == b"WATCHDOG=1":
            pass
        assert said == b"STOPPING=1", said
        assert running.wait(LONG) == 0
    restores(service, folder / "state/backups", folder / "state/data")


def of_unit(unit, defaults, folder, places, by=()):
    """The service of a unit with its options, on a free port, with some of its paths elsewhere."""
    started = re.search(r"^ExecStart=(.+)$", unit.read_text(), re.M)[1]
    options = re.search(r'^NAMESERVICE_OPTIONS="(.*)"$', defaults.read_text(), re.M)[1].replace("8080", str(port := free_port()))
    for path, place in places.items():
        started = started.replace(path, place)
    line = shlex.split(started.replace("$NAMESERVICE_OPTIONS", options))
    return Deployed(line, f"http://127.0.0.1:{port}", folder / "unit.log", by=by)


def dpkg(*words):
    """Runs dpkg once nobody else does."""
    command = ["dpkg", *words]

    def done():
        tried = run(*command, ok=False)
        if tried.returncode != 0 and " lock" not in tried.stderr:
            sys.exit(f"{shlex.join(map(str, command))} exits with {tried.returncode}:\n{tried.stdout}{tried.stderr}")
        return tried.returncode == 0

    until(done, "the lock of dpkg")


# Where systemd has the directories of a unit whose user is its own, and what leads there.
STATE, STATE_LINK = pathlib.Path("/var/lib/private/nameservice"), pathlib.Path("/var/lib/nameservice")


@contextlib.contextmanager
def installation(tools):
    """The package may be installed until the end of the block, which purges it with its data."""
    # What a run that was killed has left is removed; what somebody has installed is theirs.
    ours = tools.parent / "installed"

    def purge():
        dpkg("--purge", "nameservice")
        shutil.rmtree(STATE, ignore_errors=True)
        STATE_LINK.unlink(missing_ok=True)

    if ours.exists():
        purge()
    # dpkg keeps an entry of a package that is purged until it next writes its database anew.
    state = run("dpkg-query", "--show", "--showformat=${db:Status-Status}", "nameservice", ok=False).stdout
    assert state in ("", "not-installed"), f"the package is there already: {state}"
    assert not STATE.exists(), f"{STATE} is somebody's data"
    ours.touch()
    try:
        yield
    finally:
        purge()
        ours.unlink()
    left = [path for path in ("/etc/default/nameservice", "/usr/bin/nameservice", "/etc/systemd/system/nameservice.service") if os.path.lexists(path)]
    assert not left, left


# debian: the package is built, installed and purged, and is what it says; root restores a backup for its user
@with_root
def part_debian(program, tools, folder):
    package = run(HERE / "debian/build", program, folder).stdout.strip()
    listed = run("dpkg-deb", "--contents", package).stdout
    assert not re.search(r"^.{10} (?!root/root)", listed, re.M), listed
    with installation(tools):
        dpkg("--install", package)
        assert run("nameservice", "--version").stdout == run(program, "--version").stdout
        assert run("dpkg", "--verify", "nameservice").stdout == ""
        assert "/etc/default/nameservice" in run("dpkg-query", "--show", "--showformat=${Conffiles}", "nameservice").stdout
        for path in ("/lib/systemd/system/nameservice.service", "/usr/share/man/man1/nameservice-serve.1.gz",
                     "/usr/share/bash-completion/completions/nameservice", "/usr/share/nameservice/prometheus-alerts.yml"):
            assert pathlib.Path(path).exists(), path
        verified = run("systemd-analyze", "verify", "/lib/systemd/system/nameservice.service", ok=False)
        assert verified.returncode == 0 and "nameservice.service" not in verified.stderr, verified.stderr
        # The same version again is an upgrade. It, and a package that is removed and installed again, is enabled unless its administrator
        # has disabled it.
        unit = lambda: run("systemctl", "is-enabled", "nameservice", ok=False).stdout.strip()
        assert unit() == "enabled", unit()
        dpkg("--install", package)
        assert unit() == "enabled", unit()
        dpkg("--remove", "nameservice")
        assert unit() == "masked", unit()
        dpkg("--install", package)
        assert unit() == "enabled", unit()
        restores_installed(folder)
        run("systemctl", "disable", "nameservice")
        for step in ("--install", package), ("--remove", "nameservice"), ("--install", package):
            dpkg(*step)
        assert unit() == "disabled", unit()


def restores_installed(folder):
    """The service of the installed unit, as the user and with the directories that systemd gives it."""
    if pathlib.Path("/run/systemd/system").exists():
        run("systemctl", "stop", "nameservice")
    else:
        STATE.mkdir(parents=True)
        STATE.parent.chmod(0o700)
        os.chown(STATE, DYNAMIC_USER, DYNAMIC_USER)
        STATE.chmod(0o700)
        STATE_LINK.symlink_to("private/nameservice")
    user = STATE.stat().st_uid
    # systemd mounts it where its user can pass.
    below = folder / "state"
    below.mkdir()
    run("mount", "--bind", STATE, below)
    unit = pathlib.Path("/lib/systemd/system/nameservice.service")
    by = confined(user, below, umask="077")
    service = of_unit(unit, pathlib.Path("/etc/default/nameservice"), folder, {"/var/lib/nameservice": str(below)}, by)

    def root_restores(*options, ok=True):
        latest = STATE_LINK / "backups" / backups_in(below / "backups")[-1].name
        return run("/usr/bin/nameservice", "restore-backup", latest, "--data", STATE_LINK / "data", *options, ok=ok)

    restores(service, below / "backups", below / "data", root_restores)
    run("umount", below)


# compose: the file and the image's command run the program, and let nobody in without a token
def part_compose(program, _tools, folder):
    document = yaml.safe_load((HERE / "compose/compose.yaml").read_text())
    assert set(document) <= {"name", "services", "networks", "volumes"}
    for name, service in document["services"].items():
        for volume in service.get("volumes", []):
            source = volume.split(":")[0]
            local = HERE / "compose" / source
            assert source in document["volumes"] or source == "./keys" or local.exists(), f"{name}: {source}"
        assert set(service.get("networks", [])) <= set(document["networks"]), name
        assert set(service.get("depends_on", {})) <= set(document["services"]), name
    service = document["services"]["nameservice"]
    assert "ports" not in service and (HERE / "compose" / service["build"] / "Dockerfile").exists()
    images = re.search(r"^CMD (\[.*\])$", (ROOT / "Dockerfile").read_text(), re.M)
    for name, words in (("compose", service["command"]), ("image", json.loads(images[1]))):
        own = folder / name
        own.mkdir()
        assert "--insecure" not in words, name
        # Without keys it says what is missing.
        refused = run(*in_container(program, words, own).line, ok=False)
        assert refused.returncode == 2 and "jwks.json" in refused.stderr, refused.stderr
        container = in_container(program, words, own, with_keys(program, own))
        with container.running():
            is_healthy(container, service)
            assert run(program, "list", "--url", container.url, ok=False).returncode == 5
        if f"--backup-to={own}/backups" in container.line:
            restores(container, own / "backups", own / "data")


def with_keys(program, own):
    """Makes the keys as the Compose file says, and returns a token."""
    commands = re.search(r"^#   (mkdir -p keys && nameservice .*)$", (HERE / "compose/compose.yaml").read_text(), re.M)[1]
    run("bash", "-ec", commands, cwd=own, env={**os.environ, "PATH": f"{program.parent}:{os.environ['PATH']}"})
    return run(program, "token", "mint", "--key", own / "key.pem", "--subject", "ci", "--scope", "write").stdout.strip()


def in_container(program, words, own, token="", by=()):
    """The service of a container: its volumes are in a folder, and its ports are free ones."""
    line = re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", " ".join(words))
    for path in ("/data", "/backups", "/keys"):
        line = re.sub(rf"(?<=[= ]){path}", f"{own}{path}", line)
    port, metrics = free_port(), free_port()
    line = line.replace("0.0.0.0:8080", f"0.0.0.0:{port}").replace("0.0.0.0:9180", f"0.0.0.0:{metrics}")
    return Deployed([str(program), *line.split()], f"http://127.0.0.1:{port}", own.parent / f"{own.name}.log", token, by)


def is_healthy(container, service):
    """The health check of the Compose file passes."""
    check = [word.replace("http://127.0.0.1:8080", container.url) for word in service["healthcheck"]["test"][2:]]
    until(lambda: container.command(*check, ok=False).returncode == 0, "the health check")


# helm: the chart passes its lint and renders objects that Kubernetes knows, for each of its settings
def part_helm(program, _tools, folder):
    chart = HERE / "helm/nameservice"
    helm_python.disable_logging()
    keys = {"auth": {"jwksUrl": "https://id.example.com/jwks.json"}}
    settings = {
        "url": keys,
        "secret": {"auth": {"jwksSecret": "keys"}, "tls": {"secret": "tls"}, "persistence": {"storageClass": "fast"}},
        "configmap": {"auth": {"jwksConfigMap": "keys"}, "backup": {"enabled": False}, "persistence": {"existingClaim": "mine"}},
        "certificates": {"tls": {"secret": "tls", "clientCaSecret": "ca"}},
        "everything": {
            **keys,
            "imagePullSecrets": [{"name": "registry"}],
            "extraArgs": ["--cors-origin=https://app.example.com"],
            "ingress": {"enabled": True, "className": "nginx", "tlsSecret": "site", "annotations": {"nginx.ingress.kubernetes.io/proxy-buffering": "off"}},
            "metrics": {"serviceMonitor": {"enabled": True, "labels": {"release": "prometheus"}}, "alerts": {"enabled": True}},
            "securityContext": {"readOnlyRootFilesystem": False},
            "podAnnotations": {"a": "b"}, "podLabels": {"c": "d"}, "nodeSelector": {"kubernetes.io/arch": "arm64"},
            "tolerations": [{"key": "only", "operator": "Exists"}], "priorityClassName": "high",
            "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
                {"matchExpressions": [{"key": "disk", "operator": "In", "values": ["ssd"]}]}]}}},
        },
        # What the book says of OpenShift, and a platform that chooses everything.
        "openshift": {**keys, **OPENSHIFT},
        "platform": {**keys, "podSecurityContext": None, "securityContext": None},
    }
    for name, values in settings.items():
        report = helm_python.lint(chart, values, strict=True)
        # An icon is recommended, at severity 1.
        assert not report["errors"] and all(message["severity"] <= 1 for message in report["messages"]), (name, report)
    with helm_python.Chart.load(chart) as loaded:
        for values, words in (({}, "who may call"), ({"tls": {"clientCaSecret": "ca"}}, "needs tls.secret")):
            try:
                loaded.render(values, name="x")
                sys.exit(f"the chart is rendered with {values}")
            except helm_python.HelmRenderError as error:
                assert words in str(error), error
        wrong = ({**keys, "replicas": 2}, {**keys, "backup": {"every": "often"}}, {"auth": {"jwksUrl": "keys"}}, {**keys, "securityContext": "none"})
        for values in wrong:
            try:
                loaded.validate_schema(values)
                sys.exit(f"the schema allows {values}")
            except helm_python.HelmValuesError:
                pass
        for name, values in settings.items():
            objects = rendered(loaded, values)
            kinds = sorted(item["kind"] for item in objects)
            wanted = ["Service", "Service", "StatefulSet"]
            if name == "everything":
                wanted = sorted(wanted + ["Ingress", "ServiceMonitor", "PrometheusRule"])
                rules = next(item for item in objects if item["kind"] == "PrometheusRule")
                assert rules["spec"] == yaml.safe_load((HERE / "prometheus/alerts.yml").read_text())
            assert kinds == wanted, (name, kinds)
            pod = pod_of(objects)
            container = pod["containers"][0]
            known = re.findall(r"--[\w-]+", run(program, "serve", "--help").stdout)
            for argument in container["args"][1:]:
                assert argument.split("=")[0] in known, f"serve has no option {argument}"
                assert "insecure" not in argument
            mounted = {mount["name"] for mount in container["volumeMounts"]}
            claimed = set() if name == "configmap" else {"data"}
            assert mounted == {volume["name"] for volume in pod.get("volumes") or []} | claimed, (name, mounted)
            contexts = [pod.get("securityContext"), container.get("securityContext")]
            if name == "platform":
                assert contexts == [None, None], contexts
            else:
                assert contexts[0]["runAsNonRoot"] and contexts[1]["capabilities"] == {"drop": ["ALL"]}, (name, contexts)
                users = [contexts[0].get(field) for field in ("runAsUser", "runAsGroup", "fsGroup")]
                assert users == [None if name == "openshift" else IMAGE_USER] * 3, (name, users)
            scheme = container["readinessProbe"].get("httpGet", {}).get("scheme")
            assert scheme == {"secret": "HTTPS", "certificates": None}.get(name, "HTTP"), (name, scheme)
        loaded.save(folder)


def rendered(chart, values, name="names"):
    """What a chart makes of values: objects that Kubernetes knows."""
    files = chart.render(values, name=name, namespace="default")
    objects = [item for path, text in files.items() if path.endswith(".yaml") for item in yaml.safe_load_all(text) if item]
    for item in objects:
        if not item["apiVersion"].startswith("monitoring.coreos.com/"):
            kubernetes_validate.validate(item, KUBERNETES, strict=True)
    return objects


def pod_of(objects):
    return next(item for item in objects if item["kind"] == "StatefulSet")["spec"]["template"]["spec"]


def restore_pod():
    """The pod that the book restores with."""
    block = next(block for block in Page(ROOT / "docs/production.md").blocks if block.file == "restore.yaml")
    return yaml.safe_load(block.text)


# volumes: a backup is restored where the chart has data and backups, also by a user that OpenShift chooses, and where each has a volume of its
# own, which cannot be renamed
@with_root
def part_volumes(program, _tools, folder):
    # Where the user of the chart can run it.
    (folder / "program").touch()
    run("mount", "--bind", program, folder / "program")
    with helm_python.Chart.load(HERE / "helm/nameservice") as chart:
        values = {"auth": {"jwksSecret": "keys"}}
        pod = pod_of(rendered(chart, values))
    assert pod["securityContext"]["runAsUser"] == pod["securityContext"]["fsGroup"] == IMAGE_USER
    words = pod["containers"][0]["args"]
    own_volumes = [word.replace("/data/data", "/data").replace("/data/backups", "/backups") for word in words]
    for name, words, volumes, user, group in (
        ("chart", words, ["data"], IMAGE_USER, IMAGE_USER),
        ("openshift", words, ["data"], NAMESPACE_USER, 0),
        ("apart", own_volumes, ["data", "backups"], IMAGE_USER, IMAGE_USER),
    ):
        own = folder / name
        own.mkdir()
        for volume in (own / volume for volume in volumes):
            mounted(volume, group)
        token = with_keys(program, own)
        by = confined(user, *(own / volume for volume in volumes), group=group)
        for path, code in ((own / "new", 1), (own / volumes[0] / "new", 0)):
            assert run(*by, "touch", path, ok=False).returncode == code, path
        service = in_container(folder / "program", words, own, token, by)
        places = {option: pathlib.Path(place) for option, _, place in (word.partition("=") for word in service.line)}

        def pod_restores(*options, ok=True):
            words = restore_pod()["spec"]["containers"][0]["args"]
            latest = backups_in(places["--backup-to"])[-1].name
            words = [re.sub(r"\d{8}T\d{6}Z", latest, word) for word in words]
            return run(*by, *in_container(folder / "program", words, own).line, *options, ok=ok)

        restores(service, places["--backup-to"], places["--data"], None if name == "apart" else pod_restores)
        if name == "apart":
            # It is a mount: it has no other name, and what was replaced is within.
            assert places["--data"].is_mount() and (places["--data"] / "lost+found").exists()


def mounted(directory, group):
    """A volume as a node of Kubernetes mounts it for a group: root's, writable for the group, and with what mkfs leaves in it."""
    directory.mkdir()
    run("mount", "-t", "tmpfs", "-o", "size=256m,mode=2775", "tmpfs", directory)
    os.chown(directory, 0, group)
    directory.chmod(0o2775)
    (directory / "lost+found").mkdir(mode=0o700)


# prometheus: the alerts are valid, fire when they should, and ask for metrics that there are
def part_prometheus(program, _tools, folder):
    run("promtool", "check", "rules", HERE / "prometheus/alerts.yml")
    run("promtool", "test", "rules", "alerts-test.yml", cwd=HERE / "prometheus")
    # With those that are left out.
    print(run(sys.executable, ROOT / ".ci/alerts.py", program, folder).stdout, end="", flush=True)
    measured = set(re.findall(r"^\| `(nameservice_\w+)`", (ROOT / "docs/metrics.md").read_text(), re.M))
    asked = set(re.findall(r"\bnameservice_\w+", (HERE / "prometheus/alerts.yml").read_text()))
    unknown = {name for name in asked if re.sub(r"_(bucket|sum|count)$", "", name) not in measured and name not in measured}
    assert not unknown, f"nothing measures {unknown}"


# proxies: events pass nginx, Caddy and Traefik immediately, over TLS, and so do WebSockets' upgrades and long polls
def part_proxies(program, tools, folder):
    certificate(folder)
    with Service(program, folder) as service:
        url = f"http://127.0.0.1:{service.port}"
        service.command(url, "create", "mydb")
        for proxy, started in (("nginx", nginx), ("Caddy", caddy), ("Traefik", traefik)):
            port = free_port()
            with started(folder, tools, port, service.port):
                site = f"https://localhost:{port}"
                until(lambda: service.answers(site), proxy)
                passes_events(service, site, proxy)
                switched = switches(service, site)
                assert switched.startswith("HTTP/1.1 101"), f"{proxy}: {switched}"


def switches(service, site):
    """The answer to a WebSocket's upgrade. The connection stays open, so curl ends by its limit: a longer one, if nothing came."""
    for seconds in (2, 10, LONG):
        headers = {
            "Authorization": f"Bearer {service.token}", "Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13",
            "Sec-WebSocket-Protocol": "graphql-transport-ws", "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
        }
        words = [word for name, value in headers.items() for word in ("--header", f"{name}: {value}")]
        command = ["curl", "--silent", "--insecure", "--http1.1", "--include", "--max-time", seconds, *words, f"{site}/graphql"]
        if answer := run(*command, ok=False).stdout:
            return answer
    return "nothing"


def passes_events(service, site, proxy):
    """Changes are seen over an event stream at once, while it stays open. A proxy that holds them back does so with each of them; a busy machine
    may be late with some."""
    head = run(service.program, "show", "mydb", "--json", "--url", site, env={**os.environ, "NAMESERVICE_TOKEN": service.token, "SSL_CERT_FILE": str(service.folder / "tls.crt")})
    t = (json.loads(head.stdout)["head"] or {}).get("t", 0)
    command = ["curl", "--silent", "--no-buffer", "--cacert", service.folder / "tls.crt", "--header", f"Authorization: Bearer {service.token}", f"{site}/v1/events"]
    events = subprocess.Popen([str(word) for word in command], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    try:
        os.set_blocking(events.stdout.fileno(), False)
        seen = ""

        def shows(words):
            nonlocal seen
            with contextlib.suppress(BlockingIOError):
                seen += os.read(events.stdout.fileno(), 65536).decode()
            return words in seen

        # The head of the stream comes before any change.
        until(lambda: shows("\n"), f"{proxy}: the stream's beginning")
        prompt = 0
        for _ in range(10):
            t += 1
            service.command(site, "push", "head", "mydb", COMMIT, str(t), "--monotonic")
            # Before the next sign of life, which might push it out: that comes after fifteen seconds.
            prompt += within(10, lambda: shows(f'"t":{t}') or shows(f'"t": {t}'))
            if prompt == 3:
                break
        assert prompt == 3, f"{proxy}: of {t} changes, {prompt} were seen at once"
        assert events.poll() is None, f"{proxy}: the stream has ended"
    finally:
        events.kill()
        events.wait()


def nginx(folder, _tools, port, upstream):
    site = (HERE / "proxies/nginx.conf").read_text()
    for old, new in (("server 127.0.0.1:8080", f"server 127.0.0.1:{upstream}"), ("listen 443", f"listen {port}"),
                     ("/etc/nginx/tls", f"{folder}/tls"), ("names.example.com", "localhost")):
        assert old in site, old
        site = site.replace(old, new)
    (folder / "site.conf").write_text(site)
    (folder / "nginx.conf").write_text(
        f"daemon off; pid {folder}/nginx.pid; error_log stderr; worker_processes 1;\n"
        f"events {{}}\nhttp {{ access_log off; client_body_temp_path {folder}/b; proxy_temp_path {folder}/p; fastcgi_temp_path {folder}/f;\n"
        f"uwsgi_temp_path {folder}/u; scgi_temp_path {folder}/s; include {folder}/site.conf; }}\n"
    )
    run("nginx", "-t", "-e", "stderr", "-c", folder / "nginx.conf")
    return process("nginx", "-e", "stderr", "-c", folder / "nginx.conf", log=folder / "nginx.log")


def caddy(folder, _tools, port, upstream):
    own = {"XDG_DATA_HOME": str(folder / "caddy"), "XDG_CONFIG_HOME": str(folder / "caddy"), "HOME": str(folder)}
    environment = {**os.environ, **own, "SITE": f"https://localhost:{port}", "UPSTREAM": f"127.0.0.1:{upstream}"}
    # With this certificate, where a site has one of its own authority.
    text = (HERE / "proxies/Caddyfile").read_text()
    text = "{\n\tadmin off\n\tauto_https disable_redirects\n}\n" + text.replace("} {\n", f"}} {{\n\ttls {folder}/tls.crt {folder}/tls.key\n", 1)
    (folder / "Caddyfile").write_text(text)
    run("caddy", "validate", "--adapter", "caddyfile", "--config", HERE / "proxies/Caddyfile", env={**os.environ, **own})
    return process("caddy", "run", "--adapter", "caddyfile", "--config", folder / "Caddyfile", log=folder / "caddy.log", env=environment)


def traefik(folder, tools, port, upstream):
    static = (HERE / "proxies/traefik.yml").read_text()
    dynamic = (HERE / "proxies/traefik-nameservice.yml").read_text()
    static = static.replace('":443"', f'"127.0.0.1:{port}"').replace("/etc/traefik/nameservice.yml", str(folder / "routes.yml"))
    dynamic = dynamic.replace("127.0.0.1:8080", f"127.0.0.1:{upstream}").replace("/etc/traefik/tls", f"{folder}/tls").replace("names.example.com", "localhost")
    (folder / "traefik.yml").write_text(static + "global: {checkNewVersion: false, sendAnonymousUsage: false}\n")
    (folder / "routes.yml").write_text(dynamic)
    return process(tools / "traefik", f"--configFile={folder}/traefik.yml", log=folder / "traefik.log")


# page: every block of docs/production.md in its order, in one checkout
@with_root
def part_page(program, tools, folder):
    page = "docs/production.md"
    for name in ("docker", "helm", "kubectl", "systemctl"):
        script = folder / name
        script.write_text(f"#!/bin/sh\nexec {shlex.join([sys.executable, __file__, str(program), str(tools), 'stand-in', name])} \"$@\"\n")
        script.chmod(0o755)
    (folder / "state.json").write_text("{}")
    own = {"DOCS_HAS": "self-hosted", "PATH": f"{folder}:{os.environ['PATH']}", "STAND_INS": str(folder), "DEBIAN_FRONTEND": "noninteractive",
           "APT_CONFIG": str(folder / "apt.conf")}
    (folder / "apt.conf").write_text('DPkg::Lock::Timeout "300";')
    # git asks whose the files are.
    own |= {"GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": "safe.directory", "GIT_CONFIG_VALUE_0": "*"}
    with installation(tools):
        print(run(sys.executable, ROOT / ".ci/docs.py", program, page, env={**os.environ, **own}).stdout, end="")
    state = json.loads((folder / "state.json").read_text())
    assert state.get("up") and state.get("replicas") == 1 and not state.get("pod"), state


class StandIn:
    """Programs that the book calls and a machine of CI has not, or without what they work on. Each knows the commands of the book alone, and
    checks what it is given as far as it can be checked here."""

    def __init__(self, program, folder):
        self.program, self.file = program, folder / "state.json"
        self.state = json.loads(self.file.read_text())

    def run(self, name, words):
        getattr(self, name)(words)
        self.file.write_text(json.dumps(self.state))

    def systemctl(self, words):
        if words != ["status", "nameservice"] or pathlib.Path("/run/systemd/system").exists():
            os.execv("/usr/bin/systemctl", ["systemctl", *words])
        run("systemd-analyze", "verify", "/lib/systemd/system/nameservice.service")
        assert run("/usr/bin/systemctl", "is-enabled", "nameservice").stdout.strip() == "enabled"

    def docker(self, words):
        match words:
            case ["build", "--tag", tag, "."]:
                copied = re.findall(r"^COPY (?!--from)(\S+) ", pathlib.Path("Dockerfile").read_text(), re.M)
                assert copied and all(os.path.exists(source) for source in copied), copied
                self.state["built"] = tag
            case ["push", tag]:
                assert tag == self.state["built"], f"{tag} was not built"
                self.state["pushed"] = tag
            case ["compose", "--file", file, "up", "--detach", "--wait"]:
                self.compose_up(pathlib.Path(file))
            case _:
                sys.exit(f"no stand-in for docker {shlex.join(words)}")

    def compose_up(self, file):
        document = yaml.safe_load(file.read_text())
        service = document["services"]["nameservice"]
        sources = [volume.split(":")[0] for one in document["services"].values() for volume in one.get("volumes", [])]
        missing = [source for source in sources if source not in document["volumes"] and not (file.parent / source).exists()]
        assert not missing, f"Docker makes empty directories for {missing}"
        assert (file.parent / service["build"] / "Dockerfile").exists() and os.environ["SITE"]
        own = pathlib.Path(tempfile.mkdtemp(dir=self.file.parent))
        (own / "keys").symlink_to((file.parent / "keys").resolve())
        container = in_container(self.program, service["command"], own, os.environ["NAMESERVICE_TOKEN"])
        with container.running():
            is_healthy(container, service)
            # The token of the page is valid here, too.
            container.command("list")
        self.state["up"] = True

    def helm(self, words):
        command, name, chart, *options = words
        assert command == "install" and options[::2] == ["--set"] * (len(options) // 2), words
        values = {}
        for option in options[1::2]:
            path, value = option.split("=", 1)
            *parents, last = path.split(".")
            place = values
            for parent in parents:
                place = place.setdefault(parent, {})
            place[last] = {"true": True, "false": False}.get(value, value)
        helm_python.disable_logging()
        with helm_python.Chart.load(pathlib.Path(chart)) as loaded:
            loaded.validate_schema(values)
            objects = rendered(loaded, values, name)
        pod = pod_of(objects)
        image = pod["containers"][0]["image"]
        assert image == self.state.get("pushed"), f"nobody has pushed {image}"
        used_by = {volume["secret"]["secretName"]: volume["name"] for volume in pod["volumes"] if "secret" in volume}
        assert set(used_by) == set(self.state["secrets"]), f"secrets: {used_by}"
        for secret, volume in used_by.items():
            folder = next(mount["mountPath"] for mount in pod["containers"][0]["volumeMounts"] if mount["name"] == volume)
            used = re.findall(rf"{folder}/(\S+)", " ".join(pod["containers"][0]["args"]))
            assert used and set(used) <= set(self.state["secrets"][secret]), (secret, used)
        stateful = next(item for item in objects if item["kind"] == "StatefulSet")
        self.state |= {"stateful": stateful, "replicas": stateful["spec"]["replicas"]}

    def kubectl(self, words):
        name = self.state.get("stateful", {}).get("metadata", {}).get("name")
        secrets = self.state.setdefault("secrets", {})
        match words:
            case ["create", "secret", "generic", secret, file] if file.startswith("--from-file="):
                path = pathlib.Path(file.removeprefix("--from-file="))
                assert path.is_file(), f"there is no {path}"
                secrets[secret] = [path.name]
            case ["create", "secret", "tls", secret, certificate, key]:
                files = [word.removeprefix(option) for word, option in ((certificate, "--cert="), (key, "--key="))]
                ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(*files)
                secrets[secret] = ["tls.crt", "tls.key"]
            case ["scale", what, replicas] if what == f"statefulset/{name}":
                assert not self.state.get("pod"), "the volume is in use"
                self.state["replicas"] = int(replicas.removeprefix("--replicas="))
            case ["wait", "--for=delete", what] if what == f"pod/{name}-0":
                assert self.state["replicas"] == 0, "it would wait for ever"
            case ["create", "--filename", file]:
                pod = yaml.safe_load(pathlib.Path(file).read_text())
                kubernetes_validate.validate(pod, KUBERNETES, strict=True)
                self.is_of_chart(pod)
                self.state["pod"] = f"pod/{pod['metadata']['name']}"
            case ["wait", "--for=jsonpath={.status.phase}=Succeeded", "--timeout=10m", what] if what == self.state.get("pod"):
                # The part of the volumes runs it.
                pass
            case ["delete", what] if what == self.state.get("pod"):
                self.state["pod"] = None
            case _:
                sys.exit(f"no stand-in for kubectl {shlex.join(words)}")

    def is_of_chart(self, pod):
        """It runs the image of the chart, as its user, on its volume, which no other pod has."""
        assert self.state["replicas"] == 0, "the volume is in use"
        spec, of_chart = pod["spec"], self.state["stateful"]["spec"]["template"]["spec"]
        assert spec["securityContext"] == of_chart["securityContext"]
        (container,), (chart,) = spec["containers"], of_chart["containers"]
        for attribute in ("image", "securityContext"):
            assert container[attribute] == chart[attribute], attribute
        assert all(mount in chart["volumeMounts"] for mount in container["volumeMounts"])
        claims = [volume["persistentVolumeClaim"]["claimName"] for volume in spec["volumes"]]
        templates = self.state["stateful"]["spec"]["volumeClaimTemplates"]
        assert claims == [f"{template['metadata']['name']}-{self.state['stateful']['metadata']['name']}-0" for template in templates], claims
        data = next(word for word in chart["args"] if word.startswith("--data="))
        assert data in container["args"] and container["args"][0] == "restore-backup"


def main():
    program, tools = (pathlib.Path(path).resolve() for path in sys.argv[1:3])
    if sys.argv[3:4] == ["stand-in"]:
        return StandIn(program, pathlib.Path(os.environ["STAND_INS"])).run(sys.argv[4], sys.argv[5:])
    parts = {name.removeprefix("part_"): part for name, part in globals().items() if name.startswith("part_")}
    chosen, is_within = sys.argv[3:] or list(parts), "SELF_HOSTED_ROOT" in os.environ
    for name in chosen:
        begun = time.monotonic()
        folder = pathlib.Path(tempfile.mkdtemp(prefix="nameservice-"))
        # A workers' user of a proxy that root starts must read it.
        folder.chmod(0o755)
        try:
            parts[name](program, tools, folder)
        except BaseException:
            for log in sorted(folder.glob("*.log")):
                print(f"-- {log.name}\n{log.read_text()[-3000:]}", file=sys.stderr)
            raise
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        if not is_within:
            print(f"{name}: {time.monotonic() - begun:.1f} s", flush=True)
    if not is_within:
        print(f"{len(chosen)} passed, 0 failed")


main()
