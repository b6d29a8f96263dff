#!/usr/bin/env python3
"""A service behind a proxy with faults, for the tests of all clients: faults.py PROGRAM

Runs `PROGRAM serve` on a directory of its own, and prints the URL of the proxy. A client that is given URL/NAME/PLAN meets the
faults of the plan, one for each of its requests, `-` for none; after the plan, none. `*` after the last goes on for ever.
URL/NAME is `requests`: what was requested under that name, as JSON.

| fault | the service gets the request | the client gets |
|---|---|---|
| `lost` | no | a closed connection |
| `cut-headers` | yes | a part of the headers |
| `cut-body` | yes | a part of the body; of a stream, three blocks and a half |
| `cut-silently` | yes | a part of the body, without a length that would show it |
| `hang` | yes | nothing, until it closes the connection |
| `hang-body` | yes | a part of the body, and then nothing, until it closes the connection |
| `unavailable` | no | 503 `unavailable` |
| `gateway` | yes | a page with 502 |
| `outcome-unknown` | yes | 503 `outcome-unknown` |
| `restart` | yes | a closed connection, and for the next four seconds, too: the service is killed and started again |
| `cut-after-beginning`, `cut-after-change`, `cut-after-heartbeat` | yes | of a stream, everything up to the first block of this kind |
| `stop` | yes | all of a stream, which ends: the service is stopped and started again |
| `forbidden` | no | 403 `insufficient-scope` |
| `trimmed`, `other-history` | no | 410 `expired` with this reason |
| `expires` | no | a stream that ends with `expired` |

The cases are those of `clients/typescript/test/faults.test.ts` and `clients/python/tests/test_faults.py`, under the same names. The
Rust client has them in `shared/client/src/tests.rs`:

| case | test in Rust |
|---|---|
| a write is applied once through every fault | `a_write_whose_answer_was_lost_is_repeated_under_its_key` |
| a write that is lost is known again after a restart | `a_request_on_a_connection_that_has_died_is_repeated_within_the_deadline` |
| a call ends with its deadline | `a_service_that_accepts_and_says_nothing_holds_a_call_no_longer_than_its_deadline` |
| a write that the service never decides on is unknown, with its key | `a_write_that_is_never_answered_is_unknown_and_one_that_was_never_sent_is_unavailable` |
| a service that is unavailable has written nothing | `a_write_that_is_never_answered_is_unknown_and_one_that_was_never_sent_is_unavailable` |
| events are complete through every fault | `a_follower_resumes_after_the_last_event_that_it_returned` |
| a stream that falls silent is opened again | `a_stream_that_falls_silent_is_opened_again_within_a_minute` |
| a URL or a token that cannot be used is an error at once, and is not shown | `credentials_of_a_url_are_in_no_message` (`transport.rs`) |

Libraries of others, which know only the standard of server-sent events, are beside each client, too.
"""

import http.client
import http.server
import json
import re
import subprocess
import sys
import tempfile
import threading

PROBLEMS = "https://nameservice.dev/problems/"
ANSWERS = {
    "unavailable": (503, "unavailable", {}),
    "outcome-unknown": (503, "outcome-unknown", {}),
    "forbidden": (403, "insufficient-scope", {}),
    "trimmed": (410, "expired", {"oldest": 1, "reason": "trimmed"}),
    "other-history": (410, "expired", {"oldest": 1, "reason": "other-history"}),
}
# Lines of the blocks after which a stream is cut.
CUT_AFTER = {
    "cut-after-beginning": b": stream begins\n",
    "cut-after-change": b"event: change\n",
    "cut-after-heartbeat": b": still here\n",
}
NOT_FORWARDED = {"lost", "unavailable", "forbidden", "trimmed", "other-history", "expires"}
KNOWN = NOT_FORWARDED | {"cut-headers", "cut-body", "cut-silently", "hang", "hang-body", "gateway", "outcome-unknown", "restart", "stop", "-"}
KNOWN |= set(CUT_AFTER)
# Seconds for what takes less than one on a machine that does nothing else.
LONG = 120


class Service:
    """The service, which can be killed and started again on its directory."""

    def __init__(self, program, directory):
        self.command = [program, "serve", "--data", directory, "--listen", "127.0.0.1:0"]
        self.start()

    def start(self):
        self.process = subprocess.Popen(self.command, stdout=subprocess.PIPE, text=True)
        late = threading.Timer(LONG, self.process.kill)
        late.start()
        for line in self.process.stdout:
            if found := re.search(r"Listening on http://127\.0\.0\.1:(\d+)", line):
                late.cancel()
                self.port = int(found[1])
                threading.Thread(target=self.process.stdout.read, daemon=True).start()
                return
        late.cancel()
        sys.exit("the service does not listen")

    def stop(self, end=subprocess.Popen.kill):
        # Another program may get its port.
        self.port = None
        end(self.process)
        self.process.wait()

    def restart(self, seconds):
        self.stop()
        threading.Timer(seconds, self.start).start()

    def restart_orderly(self):
        self.stop(subprocess.Popen.terminate)
        self.start()


class Proxy(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    service = None
    requests = {}
    lock = threading.Lock()

    def log_message(self, *_):
        pass

    def fault_of(self, name, plan, path):
        """Notes a request, and returns its fault."""
        plan = plan.split(",")
        with self.lock:
            seen = self.requests.setdefault(name, [])
            last = plan[-1].endswith("*")
            fault = plan[min(len(seen), len(plan) - 1)].rstrip("*") if last or len(seen) < len(plan) else "-"
            seen.append({"method": self.command, "path": path, "key": self.headers.get("idempotency-key"), "fault": fault})
        return fault

    def handle_all(self):
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        _, name, *rest = self.path.split("/", 3)
        if name == "requests":
            return self.send(200, json.dumps(self.requests.get(rest[0], [])).encode(), "application/json")
        plan, path = rest[0], "/" + rest[1]
        fault = self.fault_of(name, plan, path)
        if fault not in KNOWN:
            return self.send(500, f"there is no fault {fault}".encode(), "text/plain")
        answer = None
        if fault not in NOT_FORWARDED:
            port = self.service.port
            if port is None:
                # The service is down: so is its connection.
                return self.cut()
            try:
                connection = http.client.HTTPConnection("127.0.0.1", port, timeout=LONG)
                left_out = ("host", "connection", "accept-encoding", "content-length")
                headers = {name: value for name, value in self.headers.items() if name.lower() not in left_out}
                connection.request(self.command, path, body or None, headers)
                answer = connection.getresponse()
            except OSError:
                # It went down meanwhile.
                return self.cut()
        try:
            self.answer(fault, answer)
        except OSError:
            # The client has gone.
            self.close_connection = True
        finally:
            if answer:
                connection.close()

    do_GET = do_PUT = do_POST = do_DELETE = handle_all

    def answer(self, fault, answer):
        if fault == "expires":
            self.send(200, b'event: expired\ndata: {"oldest": 1, "reason": "other-history"}\n\n', "text/event-stream")
        elif fault == "gateway":
            self.send(502, b"<h1>Bad Gateway</h1>", "text/html")
        elif fault in ANSWERS:
            status, slug, members = ANSWERS[fault]
            problem = {"type": PROBLEMS + slug, "title": slug, "status": status, "detail": f"by plan: {slug}", **members}
            self.send(status, json.dumps(problem).encode(), "application/problem+json")
        elif fault in ("lost", "hang", "restart", "cut-headers"):
            if fault == "restart":
                self.service.restart(4)
            if fault == "cut-headers":
                self.wfile.write(b"HTTP/1.1 200 OK\r\ncontent-type: application/j")
            if fault == "hang":
                self.wait_until_the_client_has_gone()
            self.cut()
        elif answer.getheader("content-type", "").startswith("text/event-stream"):
            self.relay(fault, answer)
        else:
            body = answer.read()
            if fault == "-":
                return self.send(answer.status, body, answer.getheader("content-type"))
            self.begin(answer.status, answer.getheader("content-type"), None if fault == "cut-silently" else len(body))
            self.wfile.write(body[: len(body) // 2])
            if fault == "hang-body":
                self.wait_until_the_client_has_gone()
            self.cut()

    def relay(self, fault, answer):
        """Passes a stream of events on, block by block."""
        self.begin(answer.status, "text/event-stream", None)
        blocks, block = 0, b""
        while line := answer.readline():
            block += line
            if line != b"\n":
                continue
            blocks += 1
            if fault == "stop" and blocks == 1:
                threading.Thread(target=self.service.restart_orderly).start()
            if fault in CUT_AFTER:
                self.wfile.write(block)
                if CUT_AFTER[fault] in block:
                    break
            elif fault in ("-", "stop") or blocks <= 3:
                self.wfile.write(block)
            elif fault == "hang-body":
                self.wait_until_the_client_has_gone()
                break
            else:
                self.wfile.write(block[: len(block) // 2])
                break
            block = b""
        self.cut()

    def begin(self, status, content_type, length):
        self.send_response(status)
        if content_type:
            self.send_header("content-type", content_type)
        if length is None:
            self.send_header("connection", "close")
        else:
            self.send_header("content-length", str(length))
        self.end_headers()

    def send(self, status, body, content_type):
        self.begin(status, content_type if body else None, len(body))
        self.wfile.write(body)

    def wait_until_the_client_has_gone(self):
        self.wfile.flush()
        self.rfile.read()

    def cut(self):
        self.wfile.flush()
        self.close_connection = True


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True


def main():
    with tempfile.TemporaryDirectory() as directory:
        service = Proxy.service = Service(sys.argv[1], f"{directory}/data")
        try:
            server = Server(("127.0.0.1", 0), Proxy)
            print(f"http://127.0.0.1:{server.server_port}", flush=True)
            threading.Thread(target=server.serve_forever, daemon=True).start()
            # Ends with the program that started it, which keeps the other end open.
            sys.stdin.read()
        finally:
            service.stop()


main()
