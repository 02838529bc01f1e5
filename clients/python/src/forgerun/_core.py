"""Builds requests, retries them and interprets the responses, for every transport.

Both clients use these coroutines. The blocking client can, too, because a blocking transport never suspends them.
"""

from __future__ import annotations

import email.utils
import json
import random
import time
import urllib.parse
import uuid
from collections.abc import AsyncGenerator, Callable, Mapping
from dataclasses import dataclass, field, replace
from email.message import Message
from typing import Any, Protocol

from .errors import AnswerError, ForgeRunError, NoAnswerError, ProblemError, Request, UnexpectedAnswerError

FIRST_WAIT = 0.2
LONGEST_WAIT = 10.0
LONGEST_ASKED = 90.0  # no retry after a longer wait; a rate limit can ask for 61 s
LONG_POLL = 20  # seconds that the service may delay its response to a poll
DEFAULT_POLL = 1.0  # seconds between polls if the service does not advise an interval
LONGEST_POLL = 3600.0
EARLY_POLLS = 3  # a new job may not be found by the first polls
MAX_REDIRECTS = 10  # maximum number of redirects in one try


@dataclass
class Call:
    """One call, which may take several tries."""

    method: str
    path: str  # after the base address, escaped, with its query
    body: Any = None
    keyed: bool = False  # has an idempotency key, the same one in all tries
    once: bool = False  # is not retried
    holds: float = 0  # seconds that the service may delay the response
    headers: dict[str, str] = field(default_factory=dict)
    deadline: float | None = None  # of all tries, on the monotonic clock


@dataclass
class Answer:
    """A complete response."""

    status: int
    headers: Message
    body: bytes


@dataclass
class Outgoing:
    """One request for a transport. Transports follow no redirects."""

    method: str
    target: str  # path and query
    headers: Mapping[str, str]
    body: bytes | None = None
    fresh: bool = False  # use a new connection: the server may have closed an idle one, which costs a try


class Lost(Exception):
    """The connection failed or timed out. The exception's cause has the details."""


class Incoming(Protocol):
    """A response whose header has arrived."""

    status: int
    headers: Message

    async def read(self, timeout: float) -> bytes:
        """Returns the next piece of the body, b"" at its end. Raises Lost if nothing arrives within timeout seconds."""

    async def close(self) -> None:
        """Keeps the connection for reuse if the whole body was read, and closes it otherwise."""


class Transport(Protocol):
    """Sends requests to one service."""

    async def open(self, request: Outgoing, timeout: float) -> Incoming:
        """Sends a request, and returns the response when its header has arrived. Raises Lost if that takes over timeout seconds."""

    async def sleep(self, seconds: float) -> None:
        """Waits."""

    async def close(self) -> None:
        """Closes the idle connections."""


@dataclass(frozen=True)
class Address:
    """The address of a service, and the key and session for all requests to it."""

    origin: str
    prefix: str
    key: str | None = field(repr=False)
    session: str | None

    @classmethod
    def parse(cls, url: str, api_key: str | None, session: str | None) -> Address:
        """Checks the caller's values."""
        parts = urllib.parse.urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError("the URL must begin with http:// or https:// and a host")
        if "@" in parts.netloc or parts.query or parts.fragment:
            raise ValueError("the URL must not have a user, a query or a fragment")
        if api_key is not None and not (api_key.isascii() and api_key.isprintable()):
            raise ValueError("the key has characters that a header cannot have")
        if session is not None and not (session.isascii() and session.isprintable()):
            raise ValueError("the session has characters that a header cannot have")
        return cls(f"{parts.scheme}://{parts.netloc}", parts.path.rstrip("/").removesuffix("/v1"), api_key, session)

    def headers(self, more: Mapping[str, str]) -> dict[str, str]:
        """Returns the headers of every request, and the given ones."""
        headers = {
            "Accept": "application/json, application/problem+json", "Accept-Encoding": "identity", "User-Agent": "forgerun-python", **more,
        }
        if self.key is not None:
            headers["Authorization"] = f"Bearer {self.key}"
        if self.session:
            headers["ForgeRun-Session"] = self.session
        return headers


class Core:
    """Sends requests to one service, and retries them if that is safe and may help."""

    def __init__(
        self, address: Address, transport: Transport, timeout: float, max_tries: int,
        on_retry: Callable[[Exception, float], None] | None,
    ) -> None:
        self.address = address
        self.transport = transport
        self.max_tries = max_tries
        self._timeout = timeout
        self._on_retry = on_retry

    async def send(self, call: Call) -> Answer:
        """Sends a request and retries it after temporary failures."""
        headers = self.address.headers(call.headers)
        if call.keyed:
            headers.setdefault("Idempotency-Key", str(uuid.uuid4()))
        body = None
        if call.body is not None:
            body = json.dumps(call.body, allow_nan=False).encode()  # encoded once, because a retry must have the same body
            headers["Content-Type"] = "application/json"
        outgoing = Outgoing(call.method, self.address.prefix + call.path, headers, body, fresh=call.once)
        tries = 0
        while True:
            tries += 1
            try:
                return await self._try(call, outgoing, tries)
            except ForgeRunError as error:
                asked = passing(error)
                if tries == 1 and isinstance(error, AnswerError) and error.status == 401:
                    asked = 0  # retry one 401: a new key may not be known everywhere yet
                if call.once or tries >= self.max_tries or asked is None or asked > LONGEST_ASKED:
                    raise
                wait = max(asked, backoff(tries)) + random.random() * FIRST_WAIT
                if call.deadline is not None and time.monotonic() + wait > call.deadline:
                    raise  # this error is more useful than a TimeoutError
                await self.retrying(error, wait)

    async def _try(self, call: Call, outgoing: Outgoing, tries: int) -> Answer:
        until = time.monotonic() + self._timeout + call.holds
        if call.deadline is not None:
            until = min(until, call.deadline)
        request = self.info(call, tries)
        try:
            incoming = await self.open(outgoing, until)
        except Lost as lost:
            raise no_answer(request, lost) from lost.__cause__
        try:
            body = await read(incoming, until)
        except Lost as lost:
            if incoming.status < 400:
                raise no_answer(request, lost) from lost.__cause__
            body = b""  # a refusal is valid even if its body is incomplete
        finally:
            await incoming.close()
        if 200 <= incoming.status < 300 or (incoming.status == 304 and "If-None-Match" in outgoing.headers):
            return Answer(incoming.status, incoming.headers, body)
        raise refusal(request, incoming.status, incoming.headers, body)

    async def open(self, outgoing: Outgoing, until: float) -> Incoming:
        """Sends a request and follows redirects to the same origin. It follows none to another origin, which would get the key."""
        incoming = await self.transport.open(outgoing, remaining(until))
        for _ in range(MAX_REDIRECTS):
            kept = incoming.status in (307, 308) or outgoing.method == "GET" and incoming.status in (301, 302, 303)
            base = self.address.origin + outgoing.target
            to = urllib.parse.urlsplit(urllib.parse.urljoin(base, incoming.headers.get("Location", "")))
            if not kept or f"{to.scheme}://{to.netloc}" != self.address.origin or "Location" not in incoming.headers:
                break
            await read(incoming, until)
            await incoming.close()
            outgoing = replace(outgoing, target=urllib.parse.urlunsplit(("", "", to.path, to.query, "")))
            incoming = await self.transport.open(outgoing, remaining(until))
        return incoming

    async def json(self, call: Call) -> Any:
        """Sends a request and parses the JSON of the response."""
        return self.parse(call, await self.send(call))

    async def poll(self, path: str, final: Callable[[Any], bool], deadline: float | None) -> Any:
        """Polls a resource until it is final. The service delays each response until a change. An unchanged resource is a 304."""
        tag, failures, seen = "", 0, False
        while True:
            holds = LONG_POLL
            if deadline is not None:
                holds = max(0, min(holds, int(deadline - time.monotonic()) - 1))
            headers = {"Prefer": f"wait={holds}"} if holds else {}
            if tag:
                headers["If-None-Match"] = tag
            call = Call("GET", path, holds=holds, headers=headers, deadline=deadline)
            began = time.monotonic()
            try:
                answer = await self.send(call)
            except ForgeRunError as error:
                asked = passing(error, lasting=True)
                if not seen and failures < EARLY_POLLS and isinstance(error, AnswerError) and error.status == 404:
                    asked = 0
                failures += 1
                wait = min(LONGEST_POLL, max(asked or 0, backoff(failures)))
                if asked is None or deadline is not None and time.monotonic() + wait > deadline:
                    raise
                await self.retrying(error, wait)
                continue
            failures, seen = 0, True
            if answer.status != 304:
                resource = self.parse(call, answer)
                if final(resource):
                    return resource
                tag = answer.headers.get("ETag", "")
            wait = min(LONGEST_POLL, _pause(answer, began)) * random.uniform(1, 1.1)  # spreads polls of many jobs out
            if deadline is not None and time.monotonic() + wait > deadline:
                raise TimeoutError("the time to wait is over")
            await self.transport.sleep(wait)

    async def list(self, path: str, filters: Mapping[str, str | int | None]) -> AsyncGenerator[Any, None]:
        """Reads all pages of a list. Pages before the last one may be short or empty."""
        cursor: str | None = None
        while True:
            page = await self.json(Call("GET", path + query({**filters, "cursor": cursor})))
            for item in page["data"]:
                yield item
            following = page["page"]["next_cursor"]
            if following is None:
                return
            if following == cursor:
                raise RuntimeError("the list has no end: its cursor leads to itself")
            cursor = following

    async def retrying(self, error: Exception, wait: float) -> None:
        """Calls on_retry, and waits before the retry."""
        if self._on_retry is not None:
            self._on_retry(error, wait)
        await self.transport.sleep(wait)

    def info(self, call: Call, tries: int = 1) -> Request:
        """Returns the description of the request for errors."""
        return Request(call.method, self.address.origin + self.address.prefix + call.path.partition("?")[0], tries)

    def parse(self, call: Call, answer: Answer) -> Any:
        """Parses the JSON of a response."""
        try:
            return json.loads(answer.body)
        except ValueError:
            raise unexpected(self.info(call), answer.status, answer.headers, "it is not JSON") from None


async def read(incoming: Incoming, until: float) -> bytes:
    """Reads the whole body within the time limit of a try. A transport only limits the time of each piece."""
    pieces = []
    while piece := await incoming.read(remaining(until)):
        pieces.append(piece)
        if time.monotonic() > until:
            raise Lost from TimeoutError("timed out")
    return b"".join(pieces)


def query(values: Mapping[str, str | int | None]) -> str:
    """Encodes the given values as a query."""
    given = {name: value for name, value in values.items() if value is not None}
    return "?" + urllib.parse.urlencode(given) if given else ""


def _pause(answer: Answer, began: float) -> float:
    """Returns the wait until the next poll."""
    advised = retry_after(answer.headers)
    wait = DEFAULT_POLL if advised is None else advised
    if answer.status == 304:
        wait -= time.monotonic() - began  # subtract the time that the service delayed the response
    return max(0.0, wait)


def remaining(until: float) -> float:
    """Returns the seconds until a deadline, but never 0, which would make sockets non-blocking."""
    return max(0.001, until - time.monotonic())


def no_answer(request: Request, lost: Lost) -> NoAnswerError:
    """Returns the error for a failed connection."""
    return NoAnswerError(request, lost.__cause__ or lost)


def refusal(request: Request, status: int, headers: Message, body: bytes) -> AnswerError:
    """Returns the error for a response that is not 2xx."""
    if status >= 400 and "json" in headers.get("Content-Type", ""):
        try:
            document = json.loads(body)
        except ValueError:
            document = {}  # the body is incomplete, but the status is known
        if isinstance(document, dict):
            return ProblemError(request, status, headers, retry_after(headers), document)
    elsewhere = "it redirects in a loop, or to another origin, which must not get the key"
    return unexpected(request, status, headers, elsewhere if status < 400 else "it is not a problem document")


def unexpected(request: Request, status: int, headers: Message, why: str) -> UnexpectedAnswerError:
    """Returns the error for a response that ForgeRun does not send."""
    return UnexpectedAnswerError(f"unexpected answer {status}: {why}", request, status, headers, retry_after(headers))


def retry_after(headers: Message) -> float | None:
    """Parses Retry-After: seconds or a date."""
    value = headers.get("Retry-After", "")
    if value.isascii() and value.isdigit():
        return float(value)
    try:
        return max(0.0, email.utils.parsedate_to_datetime(value).timestamp() - time.time())
    except (ValueError, TypeError):
        return None


def passing(error: ForgeRunError, lasting: bool = False) -> float | None:
    """Returns the wait of Retry-After, or 0, if the same request may succeed soon, otherwise None.

    With lasting, a 500 also counts as a failure that passes.
    """
    if not isinstance(error, AnswerError):
        return 0 if error.retryable else None
    limit = error.status == 403 and error.retry_after is not None
    return error.retry_after or 0 if error.retryable or limit or lasting and error.status == 500 else None


def backoff(tries: int) -> float:
    """Returns a random wait between half and all of a limit, which is 0.2 s, doubles with each try, and is at most 10 s."""
    return min(LONGEST_WAIT, FIRST_WAIT * 2.0 ** min(tries - 1, 16)) * random.uniform(0.5, 1)
