"""Tests infra/self-hosted: self-hosted.py PROGRAM TOOLS [PART…]. PROGRAM is the built `nameservice`, TOOLS a folder with traefik."""

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
from ports import free_port
from running import LONG, backups_in, certificate, process, run, until, within

ROOT = pathlib.Path(__file__).resolve().parent.parent
HERE = ROOT / "infra/self-hosted"
KUBERNETES = "1.31"
COMMIT = "bafybeigdyrzt5sfp7udm7hu76uh7y26nf3efuylqabf3oclgtqy55fbzdi"
# Of 10: what systemd-analyze calls the exposure of a service. Below 2 is "OK".
EXPOSURE = 15


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


def restored(program, backups, data):
    """The latest backup becomes the data of a service that was stopped, where it has its data; what it had stays beside it."""
    backup = backups_in(backups)[-1]
    lost = run(program, "restore-backup", backup, "--data", data, ok=False)
    assert lost.returncode == 3 and "--accept-loss" in lost.stderr, lost
    run(program, "restore-backup", backup, "--data", data, "--accept-loss")
    run(program, "doctor", "--data", data)
    assert run(program, "list", "--data", data, "--json").stdout == run(program, "list", "--data", backup, "--json").stdout
    assert list(data.parent.glob(f"{data.name}.replaced-*")) or list(data.glob("replaced-*"))


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
    options = dict(re.findall(r'^(\w+)="(.*)"$', (HERE / "debian/default").read_text(), re.M))
    line = settings["ExecStart"].replace("/usr/bin/nameservice", str(program)).replace("/var/lib/nameservice", str(folder / "state"))
    line = line.replace("$NAMESERVICE_OPTIONS", options["NAMESERVICE_OPTIONS"].replace("8080", str(port := free_port())))
    (folder / "state").mkdir(mode=0o700)
    notify = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    notify.bind(str(folder / "notify"))
    notify.settimeout(LONG)
    usec = str(int(settings["WatchdogSec"]) * 1_000_000)
    environment = {**os.environ, "NOTIFY_SOCKET": str(folder / "notify"), "WATCHDOG_USEC": usec}
    with process(*shlex.split(line), log=folder / "unit.log", env=environment, umask=0o077) as running:
        assert notify.recv(256).strip() == b"READY=1"
        assert notify.recv(256).strip() == b"WATCHDOG=1"
        run(program, "create", "mydb", "--url", f"http://127.0.0.1:{port}")
        until(lambda: backups_in(folder / "state/backups"), "a backup")
        run(program, "create", "later", "--url", f"http://127.0.0.1:{port}")
        running.send_signal(signal.SIGHUP)
        running.terminate()
        # On a busy machine it has shown more than once that it lives.
        while (said := notify.recv(256).strip()) == b"WATCHDOG=1":
            pass
        assert said == b"STOPPING=1", said
        assert running.wait(LONG) == 0
    restored(program, folder / "state/backups", folder / "state/data")


def dpkg(*words):
    """Runs dpkg as root, once nobody else does."""
    command = [*([] if os.getuid() == 0 else ["sudo"]), "dpkg", *words]

    def done():
        tried = run(*command, ok=False)
        if tried.returncode != 0 and " lock" not in tried.stderr:
            sys.exit(f"{shlex.join(map(str, command))} exits with {tried.returncode}:\n{tried.stdout}{tried.stderr}")
        return tried.returncode == 0

    until(done, "the lock of dpkg")


# debian: the package is built, installed and purged, and is what it says
def part_debian(program, tools, folder):
    package = run(HERE / "debian/build", program, folder).stdout.strip()
    listed = run("dpkg-deb", "--contents", package).stdout
    assert not re.search(r"^.{10} (?!root/root)", listed, re.M), listed
    # What a run that was killed has left is removed; what somebody has installed is theirs.
    ours = tools.parent / "installed"
    if ours.exists():
        dpkg("--purge", "nameservice")
    assert run("dpkg-query", "--show", "nameservice", ok=False).returncode != 0, "the package is installed already"
    ours.touch()
    try:
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
        run(*([] if os.getuid() == 0 else ["sudo"]), "systemctl", "disable", "nameservice")
        for step in ("--install", package), ("--remove", "nameservice"), ("--install", package):
            dpkg(*step)
        assert unit() == "disabled", unit()
        with process("/usr/bin/nameservice", "serve", "--memory", "--listen", f"127.0.0.1:{(port := free_port())}", log=folder / "log"):
            until(lambda: run("nameservice", "health", "--url", f"http://127.0.0.1:{port}", ok=False).returncode == 0, "the service")
    finally:
        dpkg("--purge", "nameservice")
        ours.unlink()
    left = [path for path in ("/etc/default/nameservice", "/usr/bin/nameservice", "/etc/systemd/system/nameservice.service") if os.path.lexists(path)]
    assert not left, left


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
    default = lambda text: re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", text)
    images = re.search(r"^CMD (\[.*\])$", (ROOT / "Dockerfile").read_text(), re.M)
    for name, words in (("compose", service["command"]), ("image", json.loads(images[1]))):
        own = folder / name
        own.mkdir()
        line = " ".join(map(default, words))
        assert "--insecure" not in line, name
        port, metrics = free_port(), free_port()
        for path in ("/data", "/backups", "/keys"):
            line = re.sub(rf"(?<=[= ]){path}", f"{own}{path}", line)
        line = line.replace("0.0.0.0:8080", f"0.0.0.0:{port}").replace("0.0.0.0:9180", f"0.0.0.0:{metrics}")
        # Without keys it says what is missing.
        refused = run(program, *line.split(), ok=False)
        assert refused.returncode == 2 and "jwks.json" in refused.stderr, refused.stderr
        # What the book says before `docker compose`, in a fresh directory.
        page = (ROOT / "docs/production.md").read_text()
        block = re.search(r"^cd infra/self-hosted/compose\n(.*?)^SITE=", page, re.M | re.S)
        path = f"{program.parent}:{os.environ['PATH']}"
        run("bash", "-ec", block[1], cwd=own, env={**os.environ, "PATH": path})
        token = run(program, "token", "mint", "--key", own / "key.pem", "--subject", "ci", "--scope", "write").stdout.strip()
        with process(program, *line.split(), log=own / "log"):
            url = f"http://127.0.0.1:{port}"
            check = [str(program), *service["healthcheck"]["test"][2:]]
            check = [word.replace("http://127.0.0.1:8080", url) for word in check]
            until(lambda: run(*check, ok=False).returncode == 0, f"the service of the {name}")
            assert run(program, "list", "--url", url, ok=False).returncode == 5
            run(program, "create", "mydb", "--url", url, env={**os.environ, "NAMESERVICE_TOKEN": token})
            if has_backups := "--backup-to" in line:
                until(lambda: backups_in(own / "backups"), "a backup")
                run(program, "create", "later", "--url", url, env={**os.environ, "NAMESERVICE_TOKEN": token})
        if has_backups:
            restored(program, own / "backups", own / "data")


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
            "podAnnotations": {"a": "b"}, "podLabels": {"c": "d"}, "nodeSelector": {"kubernetes.io/arch": "arm64"},
            "tolerations": [{"key": "only", "operator": "Exists"}], "priorityClassName": "high",
            "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
                {"matchExpressions": [{"key": "disk", "operator": "In", "values": ["ssd"]}]}]}}},
        },
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
        for values in ({**keys, "replicas": 2}, {**keys, "backup": {"every": "often"}}, {"auth": {"jwksUrl": "keys"}}):
            try:
                loaded.validate_schema(values)
                sys.exit(f"the schema allows {values}")
            except helm_python.HelmValuesError:
                pass
        for name, values in settings.items():
            rendered = loaded.render(values, name="names", namespace="default")
            objects = [item for path, text in rendered.items() if path.endswith(".yaml") for item in yaml.safe_load_all(text) if item]
            kinds = sorted(item["kind"] for item in objects)
            wanted = ["Service", "Service", "StatefulSet"]
            if name == "everything":
                wanted = sorted(wanted + ["Ingress", "ServiceMonitor", "PrometheusRule"])
                rules = next(item for item in objects if item["kind"] == "PrometheusRule")
                assert rules["spec"] == yaml.safe_load((HERE / "prometheus/alerts.yml").read_text())
            assert kinds == wanted, (name, kinds)
            for item in objects:
                if not item["apiVersion"].startswith("monitoring.coreos.com/"):
                    kubernetes_validate.validate(item, KUBERNETES, strict=True)
            pod = next(item for item in objects if item["kind"] == "StatefulSet")["spec"]["template"]["spec"]
            container = pod["containers"][0]
            known = re.findall(r"--[\w-]+", run(program, "serve", "--help").stdout)
            for argument in container["args"][1:]:
                assert argument.split("=")[0] in known, f"serve has no option {argument}"
                assert "insecure" not in argument
            mounted = {mount["name"] for mount in container["volumeMounts"]}
            claimed = set() if name == "configmap" else {"data"}
            assert mounted == {volume["name"] for volume in pod.get("volumes") or []} | claimed, (name, mounted)
            scheme = container["readinessProbe"].get("httpGet", {}).get("scheme")
            assert scheme == {"secret": "HTTPS", "certificates": None}.get(name, "HTTP"), (name, scheme)
        loaded.save(folder)


# prometheus: the alerts are valid, fire when they should, and ask for metrics that there are
def part_prometheus(program, _tools, folder):
    run("promtool", "check", "rules", HERE / "prometheus/alerts.yml")
    run("promtool", "test", "rules", "alerts-test.yml", cwd=HERE / "prometheus")
    run(sys.executable, ROOT / ".ci/alerts.py", program, folder)
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
            service.command(site, "push", "head", "mydb", COMMIT, str(t))
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


def main():
    program, tools = (pathlib.Path(path).resolve() for path in sys.argv[1:3])
    parts = {name.removeprefix("part_"): part for name, part in globals().items() if name.startswith("part_")}
    chosen = sys.argv[3:] or list(parts)
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
        print(f"{name}: {time.monotonic() - begun:.1f} s", flush=True)
    print(f"{len(chosen)} passed, 0 failed")


main()
