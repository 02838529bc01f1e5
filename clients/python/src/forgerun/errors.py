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
    """Which request an error is about. The URL is without its query, which can have what a log must not."""

    method: str
    url: str
    #: How many requests were sent for the call. With more than one, an earlier one may have had an effect.
    tries: int = 1

    def __str__(self) -> str:
        return f"{self.method} {self.url}"


class ForgeRunError(Exception):
    """What all errors of this library have in common, but for those of wrong arguments."""

    #: Whether the same request, with the same idempotency key, may be answered otherwise later. It was sent as often as max_tries says.
    retryable = False

    def __init__(self, message: str, request: Request) -> None:
        super().__init__(_printable(f"{message} ({request})"))
        self.request = request


class NoAnswerError(ForgeRunError):
    """No complete answer came: what the request was to do may have been done or not."""

    retryable = True

    def __init__(self, request: Request, cause: BaseException) -> None:
        tries = "1 try" if request.tries == 1 else f"{request.tries} tries"
        super().__init__(f"no answer after {tries}: {cause or type(cause).__name__}", request)


class AnswerError(ForgeRunError):
    """The answer is not the one that was hoped for."""

    def __init__(self, message: str, request: Request, status: int, headers: Message, retry_after: float | None) -> None:
        super().__init__(message, request)
        self.status = status
        self.retryable = status in (302, 307, 429, 502, 503, 504)
        #: The header Retry-After in seconds, if there is one.
        self.retry_after = retry_after
        #: To be told to the operator.
        self.request_id: str | None = headers.get("X-Request-Id")


class UnexpectedAnswerError(AnswerError):
    """An answer that ForgeRun does not give: of something between it and the client, or of another service."""


class ProblemError(AnswerError):
    """The service refused the request (RFC 9457). The failure of a job is no error: it is ``job["failure"]``."""

    def __init__(
        self, request: Request, status: int, headers: Message, retry_after: float | None, document: Mapping[str, Any]
    ) -> None:
        def text(name: str) -> str:  # a member of the wrong type is absent (RFC 9457, section 3.1)
            return value if isinstance(value := document.get(name), str) else ""

        #: RFA_...; "" if the document has none. The service may have codes one day that are not known here.
        self.code = text("code")
        self.title = text("title")
        self.detail = text("detail")
        violations = document.get("violations")
        #: All that is wrong with the request.
        self.violations = cast(list[Violation], violations if isinstance(violations, list) else [])
        #: The whole document, with members that have no attribute here, such as job_id of a conflict.
        self.document = document
        parts = [f"ForgeRun answered {status}", self.code, self.title, self.detail]
        super().__init__(": ".join(part for part in parts if part), request, status, headers, retry_after)
        self.retryable = self.retryable and self.code != "RFA_CONFIG_INVALID"  # which only the operator can change


def _printable(text: str) -> str:
    """Control characters would break or colour a log or terminal."""
    return re.sub(r"[\x00-\x1f\x7f-\x9f]", " ", text)
