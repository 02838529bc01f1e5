"""Reads server-sent events, and reconnects as often as necessary."""

from __future__ import annotations

import json
import random
import time
from collections import OrderedDict
from collections.abc import AsyncGenerator, Iterator
from dataclasses import dataclass
from typing import Any

from ._core import Call, Core, Incoming, Lost, Outgoing, no_answer, passing, refusal, remaining, unexpected
from ._core import read as read_all
from .errors import ForgeRunError

DEFAULT_RECONNECT = 2.0  # until the service sets another wait
LONGEST_RECONNECT = 30.0
LASTING = 10.0  # a connection that lasts this long, or brings an event, resets the number of failures
AFTER_END = 0.25  # wait before reconnecting if the job has probably ended; the next response confirms the end
REMEMBERED = 256  # number of ids kept to recognize duplicates
MAX_EVENT = 4 << 20
REFUSAL = 10.0  # seconds for reading the body of a refusal
ENDS = {"job-succeeded", "job-failed", "job-canceled", "job-retries-exhausted"}


@dataclass(frozen=True)
class StreamEvent:
    """An event of a stream."""

    #: Pass it as last_event_id to resume after this event. None for job-progress, which is not sent again.
    id: str | None
    #: job-running, job-succeeded, ...
    name: str
    #: An outcome document if a job or batch has ended, otherwise the event as in the list of events.
    data: Any


class Follower:
    """Reads a stream and yields each event exactly once."""

    def __init__(self, core: Core, call: Call, of_job: bool, last_event_id: str | None, silence: float) -> None:
        self._core = core
        self._call = call
        self._of_job = of_job
        self._last = last_event_id
        self._silence = silence
        self._seen: OrderedDict[str, None] = OrderedDict()
        self._reconnect = DEFAULT_RECONNECT
        self._connected = False
        self._ending = False
        self._over = False
        self._progress = False  # whether this connection has brought an event

    async def events(self) -> AsyncGenerator[StreamEvent, None]:
        """Yields events until the stream ends."""
        failures = 0
        while True:
            began = time.monotonic()
            self._ending = self._progress = False
            failure: Exception = EOFError("the stream has ended")
            connection = self._connection()
            try:
                async for event in connection:
                    yield event
                if self._over:
                    return
            except ForgeRunError as error:
                asked = passing(error, lasting=True)
                if asked is None or (not self._connected and failures + 1 >= self._core.max_tries):
                    raise
                self._reconnect = max(self._reconnect, min(asked, LONGEST_RECONNECT))
                self._ending = False
                failure = error
            finally:
                await connection.aclose()  # also if the reader has stopped
            failures = 1 if self._progress or time.monotonic() - began >= LASTING else failures + 1
            wait = min(LONGEST_RECONNECT, self._reconnect * 2 ** min(failures - 1, 8)) * random.uniform(1, 1.5)
            if self._ending:
                wait = AFTER_END
            self._check_time(wait)
            await self._core.retrying(failure, wait)

    async def _connection(self) -> AsyncGenerator[StreamEvent, None]:
        """Reads one connection to its end."""
        headers = self._core.address.headers({"Accept": "text/event-stream"})
        if self._last:
            headers["Last-Event-ID"] = self._last
        outgoing = Outgoing(self._call.method, self._core.address.prefix + self._call.path, headers, fresh=True)
        try:
            incoming = await self._core.open(outgoing, time.monotonic() + self._limit())
            try:
                if incoming.status == 204:
                    self._over = True
                    return
                await self._check(incoming)
                self._connected = True
                frames = Frames()
                while piece := await incoming.read(self._limit()):
                    for frame in frames.feed(piece):
                        if self._takes(frame):
                            yield StreamEvent(frame.id, frame.name, self._parse(frame.data or "", incoming))
                            self._check_time()
            finally:
                await incoming.close()
        except Lost as lost:
            self._check_time()
            raise no_answer(self._core.info(self._call), lost) from lost.__cause__

    def _takes(self, frame: Frame) -> bool:
        """Updates the state from a frame, and reports whether the frame is a new event."""
        if frame.retry is not None:
            self._reconnect = min(LONGEST_RECONNECT, max(0.1, frame.retry))
        if frame.id is not None:
            if frame.id in self._seen:
                return False  # a duplicate of an event from an earlier connection
            self._remember(frame.id)
        self._progress = True
        if frame.data is None or frame.name == "position":  # "position" only tells where a client's stream begins
            return False
        self._ending = self._of_job and frame.name in ENDS
        return True

    def _limit(self) -> float:
        return self._silence if self._call.deadline is None else min(self._silence, remaining(self._call.deadline))

    def _check_time(self, wait: float = 0) -> None:
        if self._call.deadline is not None and time.monotonic() + wait > self._call.deadline:
            raise TimeoutError("the time to follow is over")

    async def _check(self, incoming: Incoming) -> None:
        request = self._core.info(self._call)
        headers = incoming.headers
        if incoming.status != 200:
            try:
                body = await read_all(incoming, time.monotonic() + min(REFUSAL, self._limit()))
            except Lost:
                body = b""  # status and headers count even if the body is incomplete
            raise refusal(request, incoming.status, headers, body)
        if not headers.get("Content-Type", "").startswith("text/event-stream"):
            raise unexpected(request, incoming.status, headers, "it is not an event stream")

    def _remember(self, event_id: str) -> None:
        self._last = event_id
        self._seen[event_id] = None
        if len(self._seen) > REMEMBERED:
            self._seen.popitem(last=False)

    def _parse(self, data: str, incoming: Incoming) -> Any:
        try:
            return json.loads(data)
        except ValueError:
            why = "the data of an event is not JSON"
            raise unexpected(self._core.info(self._call), incoming.status, incoming.headers, why) from None


@dataclass
class Frame:
    """A block of an event stream, between two blank lines."""

    id: str | None = None
    name: str = "message"
    data: str | None = None
    retry: float | None = None

    def take(self, line: str) -> bool:
        """Parses a line, and reports whether it makes the frame count even without data."""
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if name == "event":
            self.name = value
            return False
        if name == "data":
            self.data = value if self.data is None else f"{self.data}\n{value}"
        elif name == "id" and value and "\0" not in value:  # an empty one would reset the position
            self.id = value
        elif name == "retry" and value.isascii() and value.isdigit():
            self.retry = int(value) / 1000
        else:
            return False
        return True


class Frames:
    """Splits the bytes of a stream into frames (HTML standard, section 9.2.6). The service sends an incomplete frame again.

    Lines end with LF or CRLF, as the service and proxies write them.
    """

    def __init__(self) -> None:
        self._rest = b""
        self._frame, self._empty = Frame(), True
        self._size = 0  # size of the incomplete frame

    def feed(self, piece: bytes) -> Iterator[Frame]:
        """Yields the frames that a piece completes."""
        *lines, self._rest = (self._rest + piece).split(b"\n")
        for line in lines:
            self._measure(len(line))
            if text := line.decode("utf-8", "replace").rstrip("\r"):
                self._empty = not self._frame.take(text) and self._empty
                continue
            frame, empty = self._frame, self._empty
            self._frame, self._empty, self._size = Frame(), True, 0
            if not empty:
                yield frame
        if len(self._rest) + self._size > MAX_EVENT:
            raise ValueError("an event of the stream is too long")

    def _measure(self, more: int) -> None:
        self._size += more
        if self._size > MAX_EVENT:
            raise ValueError("an event of the stream is too long")
