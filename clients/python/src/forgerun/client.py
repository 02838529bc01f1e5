"""The client for programs without an event loop. Its calls block."""

from __future__ import annotations

import functools
import time
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, TypeVar

from ._blocking import Blocking
from ._calls import Calls, Registration
from ._core import Address, Core

P = ParamSpec("P")
T = TypeVar("T")


def _now(work: Coroutine[Any, Any, T]) -> T:
    """Runs a coroutine without an event loop. Its transport blocks, so the coroutine is never suspended."""
    try:
        work.send(None)
    except StopIteration as done:
        result: T = done.value
        return result
    raise RuntimeError("a blocking transport has suspended a coroutine")


def _each(items: AsyncGenerator[T, None]) -> Iterator[T]:
    async def following() -> T:
        return await anext(items)

    try:
        while True:
            try:
                item = _now(following())
            except StopAsyncIteration:
                return
            yield item
    finally:
        _now(_closed(items))


async def _closed(items: AsyncGenerator[Any, None]) -> None:
    await items.aclose()


def _waiting(call: Callable[Concatenate[Calls, P], Coroutine[Any, Any, T]]) -> Callable[Concatenate[Client, P], T]:
    """Makes a blocking method from an asynchronous call."""

    @functools.wraps(call)
    def blocking(client: Client, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return _now(call(client._calls, *args, **kwargs))

    return blocking


def _iterating(call: Callable[Concatenate[Calls, P], AsyncGenerator[T, None]]) -> Callable[Concatenate[Client, P], Iterator[T]]:
    """Makes a method with a plain iterator from an asynchronous call."""

    @functools.wraps(call)
    def blocking(client: Client, /, *args: P.args, **kwargs: P.kwargs) -> Iterator[T]:
        return _each(call(client._calls, *args, **kwargs))

    return blocking


class Client:
    """A client of one ForgeRun service. It is safe for concurrent use by threads. Create it once, so that connections are reused.

    url is the base address. timeout is the time limit of one try in seconds, plus the time of Prefer: wait. max_tries limits how many
    times one request is sent. on_retry is called before each retry, for logging. sleep is for tests. session is the label of the test
    bed's session for the requests, such as the name of a test; the default is the session without a label.
    """

    def __init__(
        self, url: str, api_key: str | None = None, *, timeout: float = 30, max_tries: int = 10,
        on_retry: Callable[[Exception, float], None] | None = None, sleep: Callable[[float], None] = time.sleep,
        session: str | None = None,
    ) -> None:
        address = Address.parse(url, api_key, session)
        self._transport = Blocking(address.origin, sleep)
        self._calls = Calls(Core(address, self._transport, timeout, max_tries, on_retry))

    @classmethod
    def register(cls, url: str) -> Registration:
        """Creates a client and its first key, for tests. It needs a service with open registration, such as ``forgerun dev``.

        Only this response has the key. If the response is lost, register again.
        """
        with cls(url) as anybody:
            return _now(anybody._calls._register())

    def __enter__(self) -> Client:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Closes the idle connections."""
        _now(self._transport.close())

    submit = _waiting(Calls.submit)
    run = _waiting(Calls.run)
    get = _waiting(Calls.get)
    wait = _waiting(Calls.wait)
    jobs = _iterating(Calls.jobs)
    cancel = _waiting(Calls.cancel)
    retry = _waiting(Calls.retry)
    delete = _waiting(Calls.delete)

    report = _waiting(Calls.report)
    attempts = _iterating(Calls.attempts)
    result = _waiting(Calls.result)

    events = _iterating(Calls.events)
    stream = _iterating(Calls.stream)
    stream_all = _iterating(Calls.stream_all)

    submit_batch = _waiting(Calls.submit_batch)
    batch = _waiting(Calls.batch)
    wait_batch = _waiting(Calls.wait_batch)
    batch_jobs = _iterating(Calls.batch_jobs)
    cancel_batch = _waiting(Calls.cancel_batch)

    create_webhook = _waiting(Calls.create_webhook)
    rotate_secret = _waiting(Calls.rotate_secret)
    delete_webhook = _waiting(Calls.delete_webhook)
    signing_keys = _waiting(Calls.signing_keys)
