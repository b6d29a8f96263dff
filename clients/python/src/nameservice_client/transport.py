"""Requests: sent once, or until they are answered."""

from __future__ import annotations

import json
import random
import re
import threading
import time
import uuid
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote, unquote, urlsplit, urlunsplit

import httpx

from .errors import NameserviceError, NotYet, OutcomeUnknown, Unavailable, error_of

# What may be transient: too many requests, and failures of the service or of something in front of it.
TEMPORARY = {429, 500, 502, 503, 504}
OUTCOME_UNKNOWN = "https://nameservice.dev/problems/outcome-unknown"
# Seconds until there is a connection.
CONNECT = 5.0
# Without a connection, nothing was sent.
NOT_SENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout, httpx.ProxyError)
# Mistakes of the caller, whose texts may show what was to be sent.
UNUSABLE = (httpx.LocalProtocolError, httpx.UnsupportedProtocol, httpx.InvalidURL)

Query = list[tuple[str, "str | int | float | bool | None"]]


def place_of(url: str) -> tuple[str, tuple[str, str] | None]:
    """Returns the URL of a service without a slash at its end and without credentials, and the credentials.

    Raises `ValueError` for what is no URL of HTTP, without showing a password.
    """
    # Without what precedes the last @, as a password that is not escaped may have any character, and without the query.
    shown = re.sub(r"(?is)^([a-z][a-z0-9+.-]*://)?.*@", r"\1", url)
    shown = re.sub(r"(?s)[?#].*", "", shown)
    if not re.match(r"(?i)https?://", url):
        raise ValueError(f"`{shown}` cannot be used as a URL: it must begin with http:// or https://")
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        host, port = None, None
    if not host or re.search(r"[\x00-\x20\x7f]", url):
        raise ValueError(f"`{shown}` cannot be used as a URL: it has no host and port that can be read")
    if parts.query or parts.fragment:
        raise ValueError(f"`{shown}` cannot be used as a URL: it must not have a query or a fragment")
    name = f"[{host}]" if ":" in host else host
    location = name if port is None else f"{name}:{port}"
    credentials = None
    if parts.username is not None or parts.password is not None:
        credentials = (unquote(parts.username or ""), unquote(parts.password or ""))
    return urlunsplit((parts.scheme, location, parts.path.rstrip("/"), "", "")), credentials


def client_of(token: str | None, credentials: tuple[str, str] | None, transport: httpx.BaseTransport | None) -> httpx.Client:
    """Returns a client of HTTP that names the caller: by the token, else by the user of the URL.

    Raises `ValueError` for a token that cannot be sent, without showing it.
    """
    if token is not None and not re.fullmatch(r"[\x21-\x7e]+", token):
        raise ValueError("the token contains characters that cannot be sent")
    headers = {"authorization": f"Bearer {token}"} if token else {}
    auth = httpx.BasicAuth(*credentials) if credentials and not token else None
    return httpx.Client(headers=headers, auth=auth, transport=transport)


class Transport:
    """Sends requests to a service, and repeats them until they are answered or the deadline has passed.

    deadline: how many seconds a call may take with all its attempts; 0 for one attempt. timeout: of one attempt.
    """

    def __init__(self, http: httpx.Client, url: str, deadline: float, timeout: float) -> None:
        self._http, self._url, self._deadline, self._timeout = http, url, deadline, timeout

    def call(
        self,
        method: str,
        path: str,
        address: str | None,
        query: Mapping[str, Any],
        headers: Mapping[str, Any],
        body: Any,
        ended: threading.Event | None = None,
    ) -> Any:
        """Sends a request and returns the document of the answer.

        ended: once it is set, the request is not repeated.
        """
        # An address comes last in a path and may hold any character.
        url = self._url + path.replace("{address}", quote(address or "", safe=""))
        sent = {name: str(value) for name, value in headers.items() if value is not None}
        reads = method == "GET" or path == "/v1/changes/compare"
        takes_key = "Idempotency-Key" in headers
        if takes_key:
            sent.setdefault("Idempotency-Key", str(uuid.uuid4()))
        once = self._deadline == 0 or not (reads or takes_key)
        # What the service is asked to wait is added.
        wait = float(query.get("wait") or 0)
        longest = (self._timeout if once else min(self._timeout, self._deadline / 2)) + wait
        until = time.monotonic() + (self._timeout if once else self._deadline) + wait
        unknown = False
        attempt = 0
        while True:
            last: NameserviceError
            limit = max(0.001, min(until - time.monotonic(), longest))
            try:
                response = self._attempt(method, url, query, sent, body, limit)
                if response.status_code == 304:
                    return None
                if response.is_success:
                    return _document(response)
                last = error_from(response)
                if response.status_code not in TEMPORARY or isinstance(last, NotYet):
                    if unknown and not _is_decision(last):
                        break
                    raise last
                # Certainly not written. After anything else, such as the 502 of a gateway, the outcome is unknown.
                unknown = unknown or not (reads or response.status_code == 429 or last.kind == "unavailable")
            except UNUSABLE as error:
                # Not chained: it may show what was to be sent.
                raise ValueError(f"{method} {url} cannot be sent: {type(error).__name__}") from None
            except (httpx.RequestError, json.JSONDecodeError) as error:
                unknown = unknown or not (reads or isinstance(error, NOT_SENT))
                last = Unavailable(0, {"detail": f"{url} cannot be reached: {error or type(error).__name__}"})
                last.__cause__ = error
            pause = backoff(attempt)
            attempt += 1
            if once or time.monotonic() + pause >= until:
                break
            if ended is None:
                time.sleep(pause)
            elif ended.wait(pause):
                break
        if not unknown:
            raise last
        detail = str(last) if isinstance(last, OutcomeUnknown) else f"the outcome is unknown: {last}"
        problem = {"type": OUTCOME_UNKNOWN, "detail": detail, "idempotency_key": sent.get("Idempotency-Key")}
        raise OutcomeUnknown(last.status, {**last.problem, **problem}) from last

    def _attempt(
        self, method: str, url: str, query: Mapping[str, Any], headers: dict[str, str], body: Any, limit: float
    ) -> httpx.Response:
        """Sends a request once, and reads its answer to the end within this time."""
        until = time.monotonic() + limit
        # Each limit of httpx is for one step; the sum is checked after each part of the body.
        timeout = httpx.Timeout(limit, connect=min(CONNECT, limit))
        sent = self._http.stream(method, url, params=query_of(query), headers=headers, json=body, timeout=timeout)
        with sent as response:
            parts = []
            for part in response.iter_bytes():
                parts.append(part)
                if time.monotonic() > until:
                    raise httpx.ReadTimeout(f"no whole answer within {limit:.1f} s", request=response.request)
        # The body is decoded.
        kept = [pair for pair in response.headers.multi_items() if pair[0] not in ("content-encoding", "transfer-encoding")]
        return httpx.Response(response.status_code, headers=kept, content=b"".join(parts), request=response.request)


def _document(response: httpx.Response) -> Any:
    """Returns the JSON of an answer. One that is not complete is a lost answer: without a length, it breaks off silently."""
    if not response.content:
        return None
    if "json" not in response.headers.get("content-type", "json"):
        detail = f"the answer of {response.url.copy_with(query=None)} is no JSON: is it a nameservice?"
        raise NameserviceError(response.status_code, {"detail": detail})
    return response.json()


def _is_decision(error: NameserviceError) -> bool:
    """Returns whether the service has decided on the write after it looked for its key.

    Had an earlier attempt been applied, it would have answered as at first. What is answered before (a token, the size of
    a body) proves nothing about that attempt. Neither does a record that is gone, retracted, or of another kind, nor a conflict
    that shows no value: the record that remembered the attempt may have been purged since. A lease may have ended after the
    attempt, and items of a transaction may have forgotten it.
    """
    if error.kind == "conflict" and error.problem.get("actual") is None:
        return False
    forgetful = ("", "retracted", "wrong-kind", "lease-lost", "transaction-refused")
    return error.kind not in forgetful and error.status in (409, 410, 422)


def query_of(query: Mapping[str, Any]) -> Query:
    """Returns the parameters of a query, one for each value."""
    pairs: Query = []
    for name, value in query.items():
        values = [value] if isinstance(value, (str, int, float)) else (value or [])
        pairs += [(name, one) for one in values]
    return pairs


def error_from(response: httpx.Response) -> NameserviceError:
    """Returns the exception for an answer that was read, whatever its body is."""
    try:
        problem = response.json()
    except ValueError:
        problem = None
    return error_of(response.status_code, problem if isinstance(problem, dict) else {"detail": response.text[:500]})


def backoff(attempt: int) -> float:
    """Seconds to wait before the next attempt: 0.05, 0.1, 0.2, … and at most 2, of which a random half may be left out."""
    pause: float = min(2.0, 0.05 * 2 ** min(attempt, 10))
    return random.uniform(0.5, 1) * pause
