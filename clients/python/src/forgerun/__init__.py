"""Client of ForgeRun: submits jobs, waits for them and follows them. It needs only the standard library.

The module forgerun.webhooks verifies deliveries. The types of requests and responses are in forgerun.schemas.
"""

from ._calls import Registration, Result, is_complete, is_final
from ._stream import StreamEvent
from .async_client import AsyncClient
from .client import Client
from .errors import AnswerError, ForgeRunError, NoAnswerError, ProblemError, Request, UnexpectedAnswerError

__all__ = [
    "AnswerError",
    "AsyncClient",
    "Client",
    "ForgeRunError",
    "NoAnswerError",
    "ProblemError",
    "Registration",
    "Request",
    "Result",
    "StreamEvent",
    "UnexpectedAnswerError",
    "is_complete",
    "is_final",
]
