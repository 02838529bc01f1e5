"""Sends requests with http.client and reuses connections. Waiting blocks the thread."""

from __future__ import annotations

import http.client
import socket
import threading
import urllib.parse
from collections.abc import Callable
from email.message import Message

from ._core import Lost, Outgoing

MAX_IDLE = 16  # maximum number of idle connections
PIECE = 64 << 10

BROKEN = (OSError, http.client.HTTPException)


class Connection:
    """A connection. Another thread can abandon it."""

    def __init__(self, secure: bool, netloc: str) -> None:
        self.http: http.client.HTTPConnection = (http.client.HTTPSConnection if secure else http.client.HTTPConnection)(netloc)
        self._socket: socket.socket | None = None
        self._abandoned = False

    def send(self, request: Outgoing, timeout: float) -> http.client.HTTPResponse:
        """Sends a request, and returns the response when its header has arrived."""
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
        """Sets the time limit of the next read."""
        if self._socket is not None:
            self._socket.settimeout(timeout)

    def abandon(self) -> None:
        """Shuts the connection down, which ends a wait of another thread for it."""
        self._abandoned = True
        if self._socket is not None:
            try:
                self._socket.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass  # the connection has already ended

    def close(self) -> None:
        """Closes the connection. A response that still uses the socket is closed separately."""
        self.http.close()


class Pool:
    """The idle connections to one service. It is safe for concurrent use by threads."""

    def __init__(self, origin: str) -> None:
        parts = urllib.parse.urlsplit(origin)
        self._secure, self._netloc = parts.scheme == "https", parts.netloc
        self._idle: list[Connection] = []
        self._lock = threading.Lock()

    def take(self, fresh: bool) -> Connection:
        """Returns an idle connection, or a new one."""
        with self._lock:
            if self._idle and not fresh:
                return self._idle.pop()
        return Connection(self._secure, self._netloc)

    def give(self, connection: Connection) -> None:
        """Keeps a connection for reuse, or closes it if there are enough."""
        with self._lock:
            if len(self._idle) < MAX_IDLE:
                self._idle.append(connection)
                return
        connection.close()

    def close(self) -> None:
        """Closes the idle connections."""
        with self._lock:
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()


class Body:
    """A response whose header has arrived."""

    def __init__(self, pool: Pool, connection: Connection, response: http.client.HTTPResponse) -> None:
        self._pool, self._connection, self._response = pool, connection, response
        self.status: int = response.status
        self.headers: Message = response.headers
        self._complete = False

    @classmethod
    def open(cls, pool: Pool, connection: Connection, request: Outgoing, timeout: float) -> Body:
        """Sends a request, and returns the response when its header has arrived."""
        try:
            return cls(pool, connection, connection.send(request, timeout))
        except BROKEN as error:
            connection.close()
            raise Lost from error
        except BaseException:
            connection.close()
            raise

    def next(self, timeout: float) -> bytes:
        """Returns the next piece of the body, b"" at its end."""
        try:
            self._connection.limit(timeout)
            piece = self._response.read1(PIECE)
            if not piece and self._response.length:  # read1 reports no error for an incomplete body
                raise http.client.IncompleteRead(b"", self._response.length)
        except BROKEN as error:
            raise Lost from error
        self._complete = not piece
        return piece

    def end(self) -> None:
        """Returns the connection to the pool if it can be reused, and closes it otherwise."""
        self._response.close()  # unlike read, read1 does not close it at its end, and the connection could not be reused
        if self._complete and not self._response.will_close:
            self._pool.give(self._connection)
        else:
            self._connection.close()

    async def read(self, timeout: float) -> bytes:
        return self.next(timeout)

    async def close(self) -> None:
        self.end()


class Blocking:
    """A transport that blocks the caller's thread. Its coroutines are never suspended."""

    def __init__(self, origin: str, sleep: Callable[[float], None]) -> None:
        self._pool = Pool(origin)
        self._sleep = sleep

    async def open(self, request: Outgoing, timeout: float) -> Body:
        return Body.open(self._pool, self._pool.take(request.fresh), request, timeout)

    async def sleep(self, seconds: float) -> None:
        self._sleep(seconds)

    async def close(self) -> None:
        self._pool.close()
