"""Requests over http.client, whose connections are kept; what waits, blocks its thread."""

from __future__ import annotations

import http.client
import socket
import threading
import urllib.parse
from collections.abc import Callable
from email.message import Message

from ._core import Lost, Outgoing

MAX_IDLE = 16  # connections that are kept
PIECE = 64 << 10

BROKEN = (OSError, http.client.HTTPException)


class Connection:
    """A connection, and whether it was given up by another thread."""

    def __init__(self, secure: bool, netloc: str) -> None:
        self.http: http.client.HTTPConnection = (http.client.HTTPSConnection if secure else http.client.HTTPConnection)(netloc)
        self._socket: socket.socket | None = None
        self._abandoned = False

    def send(self, request: Outgoing, timeout: float) -> http.client.HTTPResponse:
        """Sends a request, and gives its answer when that begins."""
        self.http.timeout = timeout
        if self.http.sock is None:
            self.http.connect()
        self._socket = self.http.sock
        self.limit(timeout)
        if self._abandoned:
            raise ConnectionAbortedError("nobody waits any more")
        self.http.request(request.method, request.target, request.body, dict(request.headers))
        return self.http.getresponse()

    def limit(self, timeout: float) -> None:
        """Sets the time limit of what is read next."""
        if self._socket is not None:
            self._socket.settimeout(timeout)

    def abandon(self) -> None:
        """Ends what another thread waits for."""
        self._abandoned = True
        if self._socket is not None:
            try:
                self._socket.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass  # it has ended

    def close(self) -> None:
        """Closes it, also under an answer that has the socket for itself."""
        self.http.close()


class Pool:
    """The connections to one service, for any number of threads."""

    def __init__(self, origin: str) -> None:
        parts = urllib.parse.urlsplit(origin)
        self._secure, self._netloc = parts.scheme == "https", parts.netloc
        self._idle: list[Connection] = []
        self._lock = threading.Lock()

    def take(self, fresh: bool) -> Connection:
        """A connection that is kept, or a new one."""
        with self._lock:
            if self._idle and not fresh:
                return self._idle.pop()
        return Connection(self._secure, self._netloc)

    def give(self, connection: Connection) -> None:
        """Keeps a connection."""
        with self._lock:
            if len(self._idle) < MAX_IDLE:
                self._idle.append(connection)
                return
        connection.close()

    def close(self) -> None:
        """Closes the connections that are kept."""
        with self._lock:
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()


class Body:
    """An answer whose head has come."""

    def __init__(self, pool: Pool, connection: Connection, response: http.client.HTTPResponse) -> None:
        self._pool, self._connection, self._response = pool, connection, response
        self.status: int = response.status
        self.headers: Message = response.headers
        self._complete = False

    @classmethod
    def open(cls, pool: Pool, connection: Connection, request: Outgoing, timeout: float) -> Body:
        """Sends a request."""
        try:
            return cls(pool, connection, connection.send(request, timeout))
        except BROKEN as error:
            connection.close()
            raise Lost from error
        except BaseException:
            connection.close()
            raise

    def next(self, timeout: float) -> bytes:
        """The next piece."""
        try:
            self._connection.limit(timeout)
            piece = self._response.read1(PIECE)
            if not piece and self._response.length:  # read1 does not complain
                raise http.client.IncompleteRead(b"", self._response.length)
        except BROKEN as error:
            raise Lost from error
        self._complete = not piece
        return piece

    def end(self) -> None:
        """Gives the connection back if it can be used again."""
        self._response.close()  # read1 does not, and the connection could not be used again
        if self._complete and not self._response.will_close:
            self._pool.give(self._connection)
        else:
            self._connection.close()

    async def read(self, timeout: float) -> bytes:
        return self.next(timeout)

    async def close(self) -> None:
        self.end()


class Blocking:
    """The transport of callers that wait: none of its coroutines is ever suspended."""

    def __init__(self, origin: str, sleep: Callable[[float], None]) -> None:
        self._pool = Pool(origin)
        self._sleep = sleep

    async def open(self, request: Outgoing, timeout: float) -> Body:
        return Body.open(self._pool, self._pool.take(request.fresh), request, timeout)

    async def sleep(self, seconds: float) -> None:
        self._sleep(seconds)

    async def close(self) -> None:
        self._pool.close()
