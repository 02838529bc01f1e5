"""The errors of this library."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from email.message import Message
from typing import Any, cast

from .schemas import Violation


@dataclass(frozen=True)
class Request:
    """The request that an error is about. The URL has no query, because a query may have private values."""

    method: str
    url: str
    #: Number of requests sent for the call. If there were several, an earlier one may have had an effect.
    tries: int = 1

    def __str__(self) -> str:
        return f"{self.method} {self.url}"


class ForgeRunError(Exception):
    """The base class of all errors of this library, except errors of invalid arguments."""

    #: Whether the same request, with the same idempotency key, may succeed later. It was already retried, up to max_tries.
    retryable = False

    def __init__(self, message: str, request: Request) -> None:
        super().__init__(_printable(f"{message} ({request})"))
        self.request = request


class NoAnswerError(ForgeRunError):
    """No complete response arrived. The request may have had its effect."""

    retryable = True

    def __init__(self, request: Request, cause: BaseException) -> None:
        tries = "1 try" if request.tries == 1 else f"{request.tries} tries"
        super().__init__(f"no answer after {tries}: {cause or type(cause).__name__}", request)


class AnswerError(ForgeRunError):
    """The base class of errors with a response."""

    def __init__(self, message: str, request: Request, status: int, headers: Message, retry_after: float | None) -> None:
        super().__init__(message, request)
        self.status = status
        self.retryable = status in (302, 307, 429, 502, 503, 504)
        #: The header Retry-After in seconds, if there is one.
        self.retry_after = retry_after
        #: Give this id to the operator when you report a problem.
        self.request_id: str | None = headers.get("X-Request-Id")


class UnexpectedAnswerError(AnswerError):
    """A response that ForgeRun does not send: from a proxy, or from another service."""


class ProblemError(AnswerError):
    """The service refused the request (RFC 9457). The failure of a job is not an error but ``job["failure"]``."""

    def __init__(
        self, request: Request, status: int, headers: Message, retry_after: float | None, document: Mapping[str, Any]
    ) -> None:
        def text(name: str) -> str:  # a member of the wrong type is ignored (RFC 9457, section 3.1)
            return value if isinstance(value := document.get(name), str) else ""

        #: RFA_...; "" if the document has none. Later versions of the service may add codes.
        self.code = text("code")
        self.title = text("title")
        self.detail = text("detail")
        violations = document.get("violations")
        #: All violations in the request.
        self.violations = cast(list[Violation], violations if isinstance(violations, list) else [])
        #: The whole document, including members without an attribute here, such as the job_id of a conflict.
        self.document = document
        parts = [f"ForgeRun answered {status}", self.code, self.title, self.detail]
        super().__init__(": ".join(part for part in parts if part), request, status, headers, retry_after)
        self.retryable = self.retryable and self.code != "RFA_CONFIG_INVALID"  # only the operator can fix that


def _printable(text: str) -> str:
    """Replaces control characters, which could break or colour a log or terminal."""
    return re.sub(r"[\x00-\x1f\x7f-\x9f]", " ", text)
