"""Client of ForgeRun: submits jobs, waits for them, follows them, with nothing but the standard library.

What verifies deliveries is in forgerun.webhooks, the shapes of requests and answers in forgerun.schemas.
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
