"""Requests over connections that are kept, sent again where that is safe and may help."""

from __future__ import annotations

import email.utils
import http.client
import json
import random
import threading
import time
import urllib.parse
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from email.message import Message
from typing import Any

from .errors import AnswerError, ForgeRunError, NoAnswerError, ProblemError, Request, UnexpectedAnswerError

FIRST_WAIT = 0.2
LONGEST_WAIT = 10.0
LONGEST_ASKED = 90.0  # a request is not repeated if it has to wait longer; a rate limit can say 61 s
MAX_IDLE = 16  # connections that are kept
PIECE = 64 << 10

LOST = (OSError, http.client.HTTPException)


@dataclass
class Call:
    """One call, which may take several tries."""

    method: str
    path: str  # after the base address, escaped, with its query
    body: Any = None
    keyed: bool = False  # with an idempotency key: the same one in all tries
    once: bool = False  # not to be repeated
    holds: float = 0  # for how many seconds the service may hold the answer back
    headers: dict[str, str] = field(default_factory=dict)
    deadline: float | None = None  # of all tries, on the monotonic clock


@dataclass
class Answer:
    """A complete answer."""

    status: int
    headers: Message
    body: bytes


class Http:
    """Sends requests to one service. Safe for use by several threads."""

    def __init__(
        self, url: str, api_key: str | None, timeout: float, max_tries: int, on_retry: Callable[[Exception, float], None] | None,
        sleep: Callable[[float], None], session: str | None = None,
    ) -> None:
        parts = urllib.parse.urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError("the URL must begin with http:// or https:// and a host")
        if "@" in parts.netloc or parts.query or parts.fragment:
            raise ValueError("the URL must not have a user, a query or a fragment")
        if api_key is not None and not api_key.isprintable():
            raise ValueError("the key has characters that a header cannot have")
        if session is not None and not (session.isascii() and session.isprintable()):
            raise ValueError("the session has characters that a header cannot have")
        self._secure = parts.scheme == "https"
        self._netloc = parts.netloc
        self._prefix = parts.path.rstrip("/").removesuffix("/v1")
        self._base = f"{parts.scheme}://{parts.netloc}"
        self._key = api_key
        self._session = session
        self._timeout = timeout
        self.max_tries = max_tries
        self._on_retry = on_retry
        self._sleep = sleep
        self._idle: list[http.client.HTTPConnection] = []
        self._lock = threading.Lock()

    def close(self) -> None:
        """Closes the connections that are kept."""
        with self._lock:
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    def send(self, call: Call) -> Answer:
        """Sends a request until there is an answer that counts."""
        headers = self.headers(call.headers)
        if call.keyed:
            headers.setdefault("Idempotency-Key", str(uuid.uuid4()))
        body = None
        if call.body is not None:
            body = json.dumps(call.body, allow_nan=False).encode()  # once: a repetition must have the same body
            headers["Content-Type"] = "application/json"
        tries = 0
        while True:
            tries += 1
            try:
                return self._try(call, headers, body, tries)
            except ForgeRunError as error:
                asked = passing(error)
                if call.once or tries >= self.max_tries or asked is None or asked > LONGEST_ASKED:
                    raise
                wait = max(asked, backoff(tries)) + random.random() * FIRST_WAIT
                if call.deadline is not None and time.monotonic() + wait > call.deadline:
                    raise  # it says more than that the time is over
                self.retrying(error, wait)

    def _try(self, call: Call, headers: dict[str, str], body: bytes | None, tries: int) -> Answer:
        until = time.monotonic() + self._timeout + call.holds
        if call.deadline is not None:
            until = min(until, call.deadline)
        connection = self._take(fresh=call.once)
        request = self.info(call, tries)
        status = 0
        try:
            response = self.open(connection, call, headers, remaining(until), body)
            status, answered = response.status, response.headers
            data = _read(connection, response, until)
        except LOST as error:
            connection.close()
            if status < 400:
                raise NoAnswerError(request, error) from error
            data = b""  # that a request was refused is known without the rest of the answer's body
        except BaseException:
            connection.close()
            raise
        else:
            self._give(connection, response)
        if 200 <= status < 300 or (status == 304 and "If-None-Match" in headers):
            return Answer(status, answered, data)
        raise refusal(request, status, answered, data)

    def open(
        self, connection: http.client.HTTPConnection, call: Call, headers: Mapping[str, str], timeout: float, body: bytes | None = None
    ) -> http.client.HTTPResponse:
        """Sends one request and gives its answer when that begins. Redirects are not followed: they would carry the key elsewhere."""
        connection.timeout = timeout
        if connection.sock is not None:
            connection.sock.settimeout(timeout)
        connection.request(call.method, self._prefix + call.path, body, dict(headers))
        return connection.getresponse()

    def connection(self, timeout: float) -> http.client.HTTPConnection:
        """A connection of its own."""
        if self._secure:
            return http.client.HTTPSConnection(self._netloc, timeout=timeout)
        return http.client.HTTPConnection(self._netloc, timeout=timeout)

    def _take(self, fresh: bool) -> http.client.HTTPConnection:
        """A connection that was used before can have been closed meanwhile: that costs a try, which a call without repetitions has not."""
        with self._lock:
            if self._idle and not fresh:
                return self._idle.pop()
        return self.connection(self._timeout)

    def _give(self, connection: http.client.HTTPConnection, response: http.client.HTTPResponse) -> None:
        with self._lock:
            if connection.sock is not None and not response.will_close and len(self._idle) < MAX_IDLE:
                self._idle.append(connection)
                return
        connection.close()

    def headers(self, more: Mapping[str, str]) -> dict[str, str]:
        """What every request has."""
        headers = {"Accept": "application/json, application/problem+json", "User-Agent": "forgerun-python", **more}
        if self._key is not None:
            headers["Authorization"] = f"Bearer {self._key}"
        if self._session:
            headers["ForgeRun-Session"] = self._session
        return headers

    def retrying(self, error: Exception, wait: float) -> None:
        """Tells of a repetition, and waits for it."""
        if self._on_retry is not None:
            self._on_retry(error, wait)
        self._sleep(wait)

    def sleep(self, wait: float, deadline: float | None) -> None:
        """Waits, or says that the time is over."""
        if deadline is not None and time.monotonic() + wait > deadline:
            raise TimeoutError("the time to wait is over")
        self._sleep(wait)

    def info(self, call: Call, tries: int = 1) -> Request:
        """What errors say of the request."""
        return Request(call.method, self._base + self._prefix + call.path.partition("?")[0], tries)

    def json(self, call: Call, answer: Answer) -> Any:
        """Reads the JSON of an answer."""
        try:
            return json.loads(answer.body)
        except ValueError:
            raise unexpected(self.info(call), answer.status, answer.headers, "it is not JSON") from None


def _read(connection: http.client.HTTPConnection, response: http.client.HTTPResponse, until: float) -> bytes:
    """Reads the body. The time limit of a socket is about each piece, that of a try about all."""
    pieces = []
    while True:
        if connection.sock is not None:
            connection.sock.settimeout(remaining(until))
        elif time.monotonic() > until:
            raise TimeoutError("timed out")
        piece = response.read1(PIECE)
        if not piece:
            break
        pieces.append(piece)
    if response.length:  # read1 does not complain
        raise http.client.IncompleteRead(b"", response.length)
    response.close()  # read1 does not, and the connection could not be used again
    return b"".join(pieces)


def remaining(until: float) -> float:
    """The seconds until then; 0 would mean that nothing is ever waited for."""
    return max(0.001, until - time.monotonic())


def refusal(request: Request, status: int, headers: Message, body: bytes) -> AnswerError:
    """Makes an error of an answer that is not 2xx."""
    if status >= 400 and "json" in headers.get("Content-Type", ""):
        try:
            document = json.loads(body)
        except ValueError:
            document = {}  # cut off: the status is known
        if isinstance(document, dict):
            return ProblemError(request, status, headers, retry_after(headers), document)
    return unexpected(request, status, headers, "redirects are not followed" if status < 400 else "it is not a problem document")


def unexpected(request: Request, status: int, headers: Message, why: str) -> UnexpectedAnswerError:
    """Makes the error of an answer that ForgeRun does not give."""
    return UnexpectedAnswerError(f"unexpected answer {status}: {why}", request, status, headers, retry_after(headers))


def retry_after(headers: Message) -> float | None:
    """Reads Retry-After, seconds or a date."""
    value = headers.get("Retry-After", "")
    if value.isascii() and value.isdigit():
        return float(value)
    try:
        return max(0.0, email.utils.parsedate_to_datetime(value).timestamp() - time.time())
    except (ValueError, TypeError):
        return None


def passing(error: ForgeRunError, lasting: bool = False) -> float | None:
    """The wait that is asked for, 0 without one, if the same request may be answered otherwise soon.

    lasting is for those who outlast a failure of the service, a 500, too.
    """
    if isinstance(error, NoAnswerError):
        return 0
    if not isinstance(error, AnswerError):
        return None
    wrong_setup = isinstance(error, ProblemError) and error.code == "RFA_CONFIG_INVALID"  # only the operator can change that
    if error.status in (429, 502, 503, 504) and not wrong_setup or lasting and error.status == 500:
        return error.retry_after or 0
    return None


def backoff(tries: int) -> float:
    """Between a half and the whole of 0.2 s, doubled with each try, up to 10 s."""
    return min(LONGEST_WAIT, FIRST_WAIT * 2.0 ** min(tries - 1, 16)) * random.uniform(0.5, 1)
