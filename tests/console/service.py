"""The service under test, tokens for it, and a proxy before it."""

import contextlib
import http.client
import http.server
import json
import os
import pathlib
import re
import shutil
import signal
import socketserver
import subprocess
import threading
import urllib.error
import urllib.parse
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parents[2]
# Seconds for what takes less than one on a machine that does nothing else.
LONG = 120


def own_address():
    """Returns a loopback address that only this process uses: no other program gets a port of a service that is down for a moment."""
    number = os.getpid()
    return f"127.{64 + (number >> 16) % 64}.{(number >> 8) % 256}.{number % 256}"


def line_of(process, pattern):
    """Returns the match of the line for which one waits at the beginning of what a process prints."""
    late = threading.Timer(LONG, process.kill)
    late.start()
    try:
        for line in process.stdout:
            if found := re.search(pattern, line):
                threading.Thread(target=process.stdout.read, daemon=True).start()
                return found
    finally:
        late.cancel()
    raise AssertionError(f"{process.args[0]} did not start")


def commit(number):
    """Returns the content id of an n-th commit: CIDv1, raw, SHA-256."""
    import base64
    import hashlib

    digest = bytes([1, 0x55, 0x12, 32]) + hashlib.sha256(str(number).encode()).digest()
    return "b" + base64.b32encode(digest).decode().lower().rstrip("=")


class Answer:
    def __init__(self, status, body):
        self.status, self.body = status, body


class Service:
    """`nameservice serve` over a directory. It can be killed and started again at the same address."""

    def __init__(self, program, folder, *arguments, host=None):
        self.program, self.folder, self.arguments = program, pathlib.Path(folder), arguments
        self.host, self.process, self.port, self.token = host or own_address(), None, 0, None
        self.folder.mkdir(parents=True, exist_ok=True)
        self.log = (self.folder.parent / f"{self.folder.name}.log").open("a")
        self.start()

    def start(self):
        command = [self.program, "serve", "--listen", f"{self.host}:{self.port}", "--data", str(self.folder), *self.arguments]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=self.log, text=True)
        self.port = int(line_of(self.process, r"Listening on http://[\d.]+:(\d+)")[1])

    def kill(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def stop(self):
        self.process.terminate()
        self.process.wait(timeout=60)
        shutil.rmtree(self.folder, ignore_errors=True)

    @property
    def url(self):
        return f"http://{self.host}:{self.port}"

    def call(self, method, path, body=None):
        headers = {"content-type": "application/json"}
        if self.token:
            headers["authorization"] = f"Bearer {self.token}"
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.url + "/v1/" + path, data, headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=60) as response:
                text = response.read()
                return Answer(response.status, json.loads(text) if text else None)
        except urllib.error.HTTPError as error:
            return Answer(error.code, json.loads(error.read() or b"null"))

    def must(self, method, path, body=None):
        answer = self.call(method, path, body)
        assert answer.status < 300, (method, path, answer.status, answer.body)
        return answer.body

    def record(self, address):
        return self.must("GET", "records/" + urllib.parse.quote(address))

    def ledger(self, address, t=0):
        head = {"head": {"id": commit(t), "t": t}} if t else {}
        return self.must("POST", "ledgers", {"address": address, **head})

    def push_head(self, address, t):
        body = {"new": {"id": commit(f"{address} {t}"), "t": t}}
        return self.must("PUT", "heads/" + urllib.parse.quote(address), body)


class Issuer:
    """A key, its JWKS file, and tokens."""

    def __init__(self, folder):
        import jwt
        from cryptography.hazmat.primitives.asymmetric import ec

        self.jwt, self.key = jwt, ec.generate_private_key(ec.SECP256R1())
        public = json.loads(jwt.algorithms.ECAlgorithm.to_jwk(self.key.public_key()))
        self.file = pathlib.Path(folder) / "jwks.json"
        self.file.write_text(json.dumps({"keys": [{**public, "kid": "k", "use": "sig", "alg": "ES256"}]}))

    def token(self, scope, **claims):
        import time

        payload = {"sub": "console-test", "scope": scope, "exp": int(time.time()) + 600, **claims}
        return self.jwt.encode(payload, self.key, "ES256", {"kid": "k"})


class Provider:
    """An OpenID provider, for which everyone is who they say they are. Its keys are in `keys`."""

    def __init__(self, folder, redirect):
        self.keys = pathlib.Path(folder) / "provider.json"
        program = ROOT / "tests/console/provider/provider.mjs"
        command = ["node", str(program), str(self.keys), redirect]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        self.url = line_of(self.process, r"^issuer (\S+)")[1]

    def stop(self):
        self.process.kill()
        self.process.wait()


class Proxy:
    """Serves the service under `/stage`, as a gateway does: whole answers only, and no events."""

    def __init__(self, service, prefix="/stage"):
        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def forward(self):
                if not self.path.startswith(prefix + "/") or self.path.startswith(prefix + "/v1/events"):
                    self.send_response(404)
                    self.send_header("content-length", "0")
                    self.end_headers()
                    return
                length = int(self.headers.get("content-length") or 0)
                connection = http.client.HTTPConnection(service.host, service.port, timeout=60)
                headers = {k: v for k, v in self.headers.items() if k.lower() not in ("host", "connection")}
                connection.request(self.command, self.path[len(prefix):], self.rfile.read(length), headers)
                response = connection.getresponse()
                body = response.read()
                self.send_response(response.status)
                for name, value in response.getheaders():
                    if name.lower() not in ("transfer-encoding", "content-length", "connection"):
                        self.send_header(name, value)
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                # A page that was left no longer reads its answer.
                with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                    self.wfile.write(body)

            do_GET = do_PUT = do_POST = do_DELETE = forward

            def log_message(self, *_):
                pass

        class Server(socketserver.ThreadingMixIn, http.server.HTTPServer):
            daemon_threads = True

        self.server = Server(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}{prefix}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def stop(self):
        self.server.shutdown()
