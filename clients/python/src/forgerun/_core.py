"""What is sent, when it is sent again, and what an answer means, whatever carries it.

It is written once, for callers that wait and for those that do not: a transport that blocks never suspends these coroutines.
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
LONGEST_ASKED = 90.0  # a request is not repeated if it has to wait longer; a rate limit can say 61 s
LONG_POLL = 20  # seconds for which the service may hold the answer to a poll back
DEFAULT_POLL = 1.0  # seconds between polls when the service names none
LONGEST_POLL = 3600.0
EARLY_POLLS = 3  # that may find nothing yet
MAX_REDIRECTS = 10  # that are followed in one try


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


@dataclass
class Outgoing:
    """One request as a transport sends it, which follows no redirect."""

    method: str
    target: str  # path and query
    headers: Mapping[str, str]
    body: bytes | None = None
    fresh: bool = False  # on a connection of its own: one that was used before can have been closed meanwhile, which costs a try


class Lost(Exception):
    """The connection failed, or time ran out; the cause says how."""


class Incoming(Protocol):
    """An answer whose head has come."""

    status: int
    headers: Message

    async def read(self, timeout: float) -> bytes:
        """The next piece of the body, b"" at its end. Lost if nothing came for so many seconds."""

    async def close(self) -> None:
        """Keeps the connection if the body was read to its end, and closes it otherwise."""


class Transport(Protocol):
    """Carries requests to one service."""

    async def open(self, request: Outgoing, timeout: float) -> Incoming:
        """Sends a request, and gives its answer when that begins. Lost if it has not begun after so many seconds."""

    async def sleep(self, seconds: float) -> None:
        """Waits."""

    async def close(self) -> None:
        """Closes the connections that are kept."""


@dataclass(frozen=True)
class Address:
    """Where a service is, and what all requests to it have."""

    origin: str
    prefix: str
    key: str | None = field(repr=False)
    session: str | None

    @classmethod
    def parse(cls, url: str, api_key: str | None, session: str | None) -> Address:
        """Checks what the caller gave."""
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
        """What every request has."""
        headers = {
            "Accept": "application/json, application/problem+json", "Accept-Encoding": "identity", "User-Agent": "forgerun-python", **more,
        }
        if self.key is not None:
            headers["Authorization"] = f"Bearer {self.key}"
        if self.session:
            headers["ForgeRun-Session"] = self.session
        return headers


class Core:
    """Sends requests to one service, again where that is safe and may help."""

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
        """Sends a request until there is an answer that counts."""
        headers = self.address.headers(call.headers)
        if call.keyed:
            headers.setdefault("Idempotency-Key", str(uuid.uuid4()))
        body = None
        if call.body is not None:
            body = json.dumps(call.body, allow_nan=False).encode()  # once: a repetition must have the same body
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
                    asked = 0  # a new key may not be known everywhere
                if call.once or tries >= self.max_tries or asked is None or asked > LONGEST_ASKED:
                    raise
                wait = max(asked, backoff(tries)) + random.random() * FIRST_WAIT
                if call.deadline is not None and time.monotonic() + wait > call.deadline:
                    raise  # it says more than that the time is over
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
            body = b""  # that a request was refused is known without the rest of the answer's body
        finally:
            await incoming.close()
        if 200 <= incoming.status < 300 or (incoming.status == 304 and "If-None-Match" in outgoing.headers):
            return Answer(incoming.status, incoming.headers, body)
        raise refusal(request, incoming.status, incoming.headers, body)

    async def open(self, outgoing: Outgoing, until: float) -> Incoming:
        """Sends a request, and again to where it is redirected at the same origin: another one would get the key."""
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
        """Sends a request, and reads the JSON of its answer."""
        return self.parse(call, await self.send(call))

    async def poll(self, path: str, final: Callable[[Any], bool], deadline: float | None) -> Any:
        """Asks until the resource is final: with its tag, so that what is unchanged is a 304, and held back until it changes."""
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
            wait = min(LONGEST_POLL, _pause(answer, began)) * random.uniform(1, 1.1)  # polls of many jobs drift apart
            if deadline is not None and time.monotonic() + wait > deadline:
                raise TimeoutError("the time to wait is over")
            await self.transport.sleep(wait)

    async def list(self, path: str, filters: Mapping[str, str | int | None]) -> AsyncGenerator[Any, None]:
        """Reads a list to its end. A page may be short or empty before that."""
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
        """Tells of a repetition, and waits for it."""
        if self._on_retry is not None:
            self._on_retry(error, wait)
        await self.transport.sleep(wait)

    def info(self, call: Call, tries: int = 1) -> Request:
        """What errors say of the request."""
        return Request(call.method, self.address.origin + self.address.prefix + call.path.partition("?")[0], tries)

    def parse(self, call: Call, answer: Answer) -> Any:
        """Reads the JSON of an answer."""
        try:
            return json.loads(answer.body)
        except ValueError:
            raise unexpected(self.info(call), answer.status, answer.headers, "it is not JSON") from None


async def read(incoming: Incoming, until: float) -> bytes:
    """Reads the body. The time limit of a transport is about each piece, that of a try about all."""
    pieces = []
    while piece := await incoming.read(remaining(until)):
        pieces.append(piece)
        if time.monotonic() > until:
            raise Lost from TimeoutError("timed out")
    return b"".join(pieces)


def query(values: Mapping[str, str | int | None]) -> str:
    """The query of what is given."""
    given = {name: value for name, value in values.items() if value is not None}
    return "?" + urllib.parse.urlencode(given) if given else ""


def _pause(answer: Answer, began: float) -> float:
    """The wait until the next poll."""
    advised = retry_after(answer.headers)
    wait = DEFAULT_POLL if advised is None else advised
    if answer.status == 304:
        wait -= time.monotonic() - began  # the answer was held back meanwhile
    return max(0.0, wait)


def remaining(until: float) -> float:
    """The seconds until then; 0 would mean that nothing is ever waited for."""
    return max(0.001, until - time.monotonic())


def no_answer(request: Request, lost: Lost) -> NoAnswerError:
    """Makes the error of a connection that failed."""
    return NoAnswerError(request, lost.__cause__ or lost)


def refusal(request: Request, status: int, headers: Message, body: bytes) -> AnswerError:
    """Makes an error of an answer that is not 2xx."""
    if status >= 400 and "json" in headers.get("Content-Type", ""):
        try:
            document = json.loads(body)
        except ValueError:
            document = {}  # cut off: the status is known
        if isinstance(document, dict):
            return ProblemError(request, status, headers, retry_after(headers), document)
    elsewhere = "it redirects in a loop, or to another origin, which must not get the key"
    return unexpected(request, status, headers, elsewhere if status < 400 else "it is not a problem document")


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
    if not isinstance(error, AnswerError):
        return 0 if error.retryable else None
    limit = error.status == 403 and error.retry_after is not None
    return error.retry_after or 0 if error.retryable or limit or lasting and error.status == 500 else None


def backoff(tries: int) -> float:
    """Between a half and the whole of 0.2 s, doubled with each try, up to 10 s."""
    return min(LONGEST_WAIT, FIRST_WAIT * 2.0 ** min(tries - 1, 16)) * random.uniform(0.5, 1)
