"""The client for programs with an event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from types import TracebackType

from ._async import transport
from ._calls import Calls, Registration
from ._core import Address, Core


class AsyncClient(Calls):
    """A Client for an event loop. Its calls are awaited, or read with ``async for``. Canceling a call ends its request.

    It uses httpx if that is installed, and threads otherwise. use_httpx selects one of them. sleep is for tests.
    """

    def __init__(
        self, url: str, api_key: str | None = None, *, timeout: float = 30, max_tries: int = 10,
        on_retry: Callable[[Exception, float], None] | None = None, sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        session: str | None = None, use_httpx: bool | None = None,
    ) -> None:
        address = Address.parse(url, api_key, session)
        self._transport = transport(address.origin, sleep, use_httpx)
        super().__init__(Core(address, self._transport, timeout, max_tries, on_retry))

    @classmethod
    async def register(cls, url: str) -> Registration:
        """Creates a client and its first key, like Client.register."""
        async with cls(url) as anybody:
            return await anybody._register()

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Closes the idle connections."""
        await self._transport.close()
