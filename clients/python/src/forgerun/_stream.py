"""Server-sent events over as many connections as it takes."""

from __future__ import annotations

import json
import random
import time
from collections import OrderedDict
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from http.client import HTTPResponse
from typing import Any

from ._http import LOST, Call, Http, passing, refusal, remaining, unexpected
from .errors import ForgeRunError, NoAnswerError

DEFAULT_RECONNECT = 2.0  # until the service says otherwise
LONGEST_RECONNECT = 30.0
LASTING = 10.0  # a connection that lasts so long, or brings something, ends a series of failures
AFTER_END = 0.25  # when the job has probably ended: the next answer will say so
REMEMBERED = 256  # ids of which repetitions are recognized
MAX_EVENT = 4 << 20
ENDS = {"job-succeeded", "job-failed", "job-canceled", "job-retries-exhausted"}


@dataclass(frozen=True)
class StreamEvent:
    """An event of a stream."""

    #: Resumes after it; None for job-progress, which is not repeated.
    id: str | None
    #: job-running, job-succeeded, ...
    name: str
    #: An outcome document for the ends of jobs and batches, otherwise the event as in the list.
    data: Any


@dataclass
class _Frame:
    """The lines between two empty ones."""

    id: str | None = None
    name: str = "message"
    data: str | None = None
    retry: float | None = None


class Follower:
    """Reads a stream: each event once, and none left out."""

    def __init__(self, http: Http, call: Call, of_job: bool, last_event_id: str | None, silence: float) -> None:
        self._http = http
        self._call = call
        self._of_job = of_job
        self._last = last_event_id
        self._silence = silence
        self._seen: OrderedDict[str, None] = OrderedDict()
        self._reconnect = DEFAULT_RECONNECT
        self._connected = False
        self._ending = False
        self._progress = False  # this connection has brought something

    def events(self) -> Iterator[StreamEvent]:
        """Yields events until there are no more."""
        failures = 0
        while True:
            began = time.monotonic()
            self._ending = self._progress = False
            failure: Exception = EOFError("the stream has ended")
            try:
                over = yield from self._connection()
                if over:
                    return
            except ForgeRunError as error:
                asked = passing(error, lasting=True)
                if asked is None or (not self._connected and failures + 1 >= self._http.max_tries):
                    raise
                self._reconnect = max(self._reconnect, min(asked, LONGEST_RECONNECT))
                self._ending = False
                failure = error
            failures = 1 if self._progress or time.monotonic() - began >= LASTING else failures + 1
            wait = min(LONGEST_RECONNECT, self._reconnect * 2 ** min(failures - 1, 8)) * random.uniform(1, 1.5)
            if self._ending:
                wait = AFTER_END
            if self._call.deadline is not None and time.monotonic() + wait > self._call.deadline:
                raise TimeoutError("the time to follow is over")
            self._http.retrying(failure, wait)

    def _connection(self) -> Generator[StreamEvent, None, bool]:
        """Reads one connection to its end, and says whether there is no more."""
        headers = self._http.headers({"Accept": "text/event-stream"})
        if self._last:
            headers["Last-Event-ID"] = self._last
        request = self._http.info(self._call)
        connection = self._http.connection(self._limit())
        try:
            response = self._http.open(connection, self._call, headers, self._limit())
            if response.status == 204:
                return True
            self._check(response)
            self._connected = True
            for frame in _frames(response):
                if frame.retry is not None:
                    self._reconnect = min(LONGEST_RECONNECT, max(0.1, frame.retry))
                if frame.id is not None and frame.id in self._seen:
                    continue  # it came before the stream was opened again
                if frame.id is not None:
                    self._remember(frame.id)
                self._progress = True
                if frame.data is None or frame.name == "position":
                    continue  # at which the stream of a client begins
                self._ending = self._of_job and frame.name in ENDS
                yield StreamEvent(frame.id, frame.name, self._parse(frame.data, response))
                if self._call.deadline is not None and time.monotonic() > self._call.deadline:
                    raise TimeoutError("the time to follow is over")
            return False
        except TimeoutError as error:
            if self._call.deadline is not None and time.monotonic() >= self._call.deadline:
                raise
            raise NoAnswerError(request, error) from error
        except LOST as error:
            raise NoAnswerError(request, error) from error
        finally:
            connection.close()

    def _limit(self) -> float:
        return self._silence if self._call.deadline is None else min(self._silence, remaining(self._call.deadline))

    def _check(self, response: HTTPResponse) -> None:
        request = self._http.info(self._call)
        headers = response.headers
        if response.status != 200:
            try:
                body = response.read()
            except LOST:
                body = b""  # status and headers count
            raise refusal(request, response.status, headers, body)
        if not headers.get("Content-Type", "").startswith("text/event-stream"):
            raise unexpected(request, response.status, headers, "it is not an event stream")

    def _remember(self, event_id: str) -> None:
        self._last = event_id
        self._seen[event_id] = None
        if len(self._seen) > REMEMBERED:
            self._seen.popitem(last=False)

    def _parse(self, data: str, response: HTTPResponse) -> Any:
        try:
            return json.loads(data)
        except ValueError:
            why = "the data of an event is not JSON"
            raise unexpected(self._http.info(self._call), response.status, response.headers, why) from None


def _frames(response: HTTPResponse) -> Iterator[_Frame]:
    """The complete frames of a stream (HTML standard, section 9.2.6). What a lost connection cut off is sent again.

    Lines end with LF or CRLF, as the service and proxies write them.
    """
    frame, empty, size = _Frame(), True, 0
    while line := response.readline(MAX_EVENT + 1):
        size += len(line)
        if size > MAX_EVENT:
            raise ValueError("an event of the stream is too long")
        if not line.endswith(b"\n"):
            return  # the end, in the middle of a line
        text = line.decode("utf-8", "replace").rstrip("\r\n")
        if text:
            empty = _field(frame, text) and empty
            continue
        if not empty:
            yield frame
        frame, empty, size = _Frame(), True, 0


def _field(frame: _Frame, line: str) -> bool:
    """Takes a line, and says whether the frame has nothing by it."""
    name, _, value = line.partition(":")
    value = value.removeprefix(" ")
    if name == "event":
        frame.name = value
        return True
    if name == "data":
        frame.data = value if frame.data is None else f"{frame.data}\n{value}"
        return False
    if name == "id" and value and "\0" not in value:  # an empty one would reset the position
        frame.id = value
        return False
    if name == "retry" and value.isascii() and value.isdigit():
        frame.retry = int(value) / 1000
        return False
    return True
