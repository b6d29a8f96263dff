"""Runs programs for tests, and waits for what they do."""

import contextlib
import re
import shlex
import subprocess
import sys
import time

# How long anything may take on a busy machine: what has to happen is polled until then.
LONG = 120


def run(*command, ok=True, **options):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=10 * LONG, **options)
    if ok and done.returncode != 0:
        sys.exit(f"{shlex.join(map(str, command))} exits with {done.returncode}:\n{done.stdout}{done.stderr}")
    return done


def within(seconds, holds):
    """The first true result of `holds`, or its last one after so many seconds."""
    end = time.monotonic() + seconds
    while not (found := holds()) and time.monotonic() < end:
        time.sleep(0.05)
    return found


def until(holds, what, seconds=LONG):
    return within(seconds, holds) or sys.exit(f"{what} did not come about within {seconds} s")


@contextlib.contextmanager
def process(*command, log, **options):
    """Runs a program until the end of the block."""
    with open(log, "w") as output:
        started = subprocess.Popen(
            [str(word) for word in command], stdout=output, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, **options
        )
    try:
        yield started
    finally:
        started.terminate()
        try:
            started.wait(15)
        except subprocess.TimeoutExpired:
            started.kill()
            started.wait()


def certificate(folder, days=2):
    """A certificate for localhost, and its key."""
    run(
        "openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", days,
        "-subj", "/CN=localhost", "-addext", "basicConstraints=critical,CA:FALSE", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1",
        "-keyout", folder / "tls.key", "-out", folder / "tls.crt",
    )


def backups_in(directory):
    """The backups that have their final names, the oldest first."""
    return sorted(path for path in directory.glob("*") if re.fullmatch(r"\d{8}T\d{6}Z", path.name))
