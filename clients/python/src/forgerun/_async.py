"""Sends requests from an event loop: with httpx if it is installed, otherwise with http.client in threads."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from concurrent.futures import Future, ThreadPoolExecutor
from email.message import Message
from typing import Any, TypeVar

from ._blocking import MAX_IDLE, Body, Connection, Pool
from ._core import Lost, Outgoing, Transport

try:
    import httpx
except ImportError:
    HAS_HTTPX = False
else:
    HAS_HTTPX = True

MAX_THREADS = 256  # maximum number of concurrent requests; others wait
T = TypeVar("T")
Sleep = Callable[[float], Awaitable[None]]


def transport(origin: str, sleep: Sleep, use_httpx: bool | None) -> Transport:
    """Returns the transport: httpx if it is installed, unless use_httpx decides otherwise."""
    if use_httpx and not HAS_HTTPX:
        raise RuntimeError("the package httpx is not installed: pip install forgerun-client[httpx]")
    if HAS_HTTPX and use_httpx is not False:
        return OverHttpx(origin, sleep)
    return InThreads(origin, sleep)


class InThreads:
    """A transport that sends each request in a thread. Canceling the caller closes the connection, which ends the thread's work."""

    def __init__(self, origin: str, sleep: Sleep) -> None:
        self._pool = Pool(origin)
        self.sleep = sleep
        self._threads = ThreadPoolExecutor(MAX_THREADS, "forgerun")

    async def open(self, request: Outgoing, timeout: float) -> ThreadBody:
        connection = self._pool.take(request.fresh)
        work = self._threads.submit(Body.open, self._pool, connection, request, timeout)
        try:
            return ThreadBody(self._threads, connection, await asyncio.wrap_future(work))
        except asyncio.CancelledError:
            connection.abandon()
            work.add_done_callback(lambda work: _drop(work, connection))
            raise

    async def close(self) -> None:
        self._pool.close()
        self._threads.shutdown(wait=False, cancel_futures=True)


def _drop(work: Future[Body], connection: Connection) -> None:
    """Closes a response and its connection after the caller was canceled."""
    if not work.cancelled() and work.exception() is None:
        work.result().end()
    connection.close()


class ThreadBody:
    """A response whose body is read in threads."""

    def __init__(self, threads: ThreadPoolExecutor, connection: Connection, body: Body) -> None:
        self._threads, self._connection, self._body = threads, connection, body
        self.status, self.headers = body.status, body.headers

    async def read(self, timeout: float) -> bytes:
        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, self._body.next, timeout)
        except asyncio.CancelledError:
            self._connection.abandon()
            raise

    async def close(self) -> None:
        self._body.end()


class OverHttpx:
    """A transport that uses httpx."""

    def __init__(self, origin: str, sleep: Sleep) -> None:
        self._origin = origin
        self.sleep = sleep
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=MAX_IDLE)
        # Ignore the environment, as http.client does: a .netrc file would replace the key.
        self._client = httpx.AsyncClient(limits=limits, timeout=None, follow_redirects=False, trust_env=False)

    async def open(self, request: Outgoing, timeout: float) -> HttpxBody:
        outgoing = self._client.build_request(
            request.method, self._origin + request.target, headers=dict(request.headers), content=request.body
        )
        return HttpxBody(await limited(timeout, self._client.send(outgoing, stream=True)))

    async def close(self) -> None:
        await self._client.aclose()


class HttpxBody:
    """A response of httpx."""

    def __init__(self, response: Any) -> None:
        self._response = response
        self._pieces: AsyncIterator[bytes] = response.aiter_raw()
        self.status: int = response.status_code
        self.headers = Message()
        for name, value in response.headers.multi_items():
            self.headers[name] = value

    async def read(self, timeout: float) -> bytes:
        return await limited(timeout, self._next())

    async def _next(self) -> bytes:
        try:
            return await anext(self._pieces)
        except StopAsyncIteration:
            return b""

    async def close(self) -> None:
        await self._response.aclose()


async def limited(timeout: float, work: Coroutine[Any, Any, T]) -> T:
    """Waits for work, at most timeout seconds.

    The work runs in its own task. httpx uses anyio, whose versions before 4 leave their cancellations counted in the task, and an
    asyncio.timeout of the caller would mistake these for its own.
    """
    task = asyncio.create_task(work)
    try:
        await asyncio.wait({task}, timeout=timeout)
        if not task.done():
            raise TimeoutError("timed out")
        return task.result()
    except (TimeoutError, httpx.HTTPError, httpx.StreamError) as error:
        raise Lost from error
    finally:
        if not task.done():
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
