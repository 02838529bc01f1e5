"""The calls of the API, for both clients."""

from __future__ import annotations

import base64
import hashlib
import re
import time
import urllib.parse
from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from . import schemas as s
from ._core import Call, Core, query, unexpected
from ._stream import Follower, StreamEvent

FINAL = frozenset({"SUCCEEDED", "FAILED", "CANCELED"})
COMPLETE = frozenset({"COMPLETED", "COMPLETED_WITH_ERRORS", "FAILED", "CANCELLED", "TIMED_OUT"})


def is_final(job: s.Job | s.JobSummary | s.BatchJob) -> bool:
    """Whether a job has ended. Unknown states are not final."""
    return job.get("state") in FINAL


def is_complete(batch: s.Batch) -> bool:
    """Whether a batch is complete. Unknown statuses are not final."""
    return batch.get("status") in COMPLETE


@dataclass(frozen=True)
class Result:
    """The output of a job."""

    content_type: str
    data: bytes


@dataclass(frozen=True)
class Registration:
    """A new client and its key. No later response has the key."""

    client_id: str
    api_key: str = field(repr=False)


class Calls:
    """The calls to one service."""

    def __init__(self, core: Core) -> None:
        self._core = core

    async def _register(self) -> Registration:
        client_id: str = (await self._core.json(Call("POST", "/v1/clients", keyed=True)))["client_id"]
        key: str = (await self._core.json(Call("POST", f"/v1/clients/{_segment(client_id)}/keys", once=True)))["api_key"]
        return Registration(client_id, key)

    # Jobs

    async def submit(
        self, job: s.JobRequest, *, idempotency_key: str | None = None, correlation_id: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> s.JobReceipt:
        """Submits a job. When this returns, the job is stored and will run even if the service restarts.

        A program that sets and stores an idempotency_key can repeat the call after a crash. Without one, all tries use the same random
        key.
        """
        more = dict(headers or {})
        if idempotency_key is not None:
            more["Idempotency-Key"] = idempotency_key
        if correlation_id is not None:
            more["X-Correlation-ID"] = correlation_id
        return cast(s.JobReceipt, await self._core.json(Call("POST", "/v1/jobs", job, keyed=True, headers=more)))

    async def run(self, job: s.JobRequest, *, timeout: float | None = None, correlation_id: str | None = None) -> s.Job:
        """Submits a job and waits for its end."""
        receipt = await self.submit(job, correlation_id=correlation_id)
        return await self.wait(receipt["job_id"], timeout=timeout)

    async def get(self, job_id: str) -> s.Job:
        """Reads a job once."""
        return cast(s.Job, await self._core.json(Call("GET", f"/v1/jobs/{_segment(job_id)}")))

    async def wait(self, job_id: str, *, timeout: float | None = None) -> s.Job:
        """Polls a job until it is final, in any state: a failed job is not an error.

        It polls as often as the service advises, and continues while the service is unavailable, so set a timeout in seconds. After
        the timeout it raises TimeoutError, or the error of the last request.
        """
        return cast(s.Job, await self._core.poll(f"/v1/jobs/{_segment(job_id)}", is_final, _deadline(timeout)))

    def jobs(
        self, *, state: s.State | None = None, type: s.JobType | None = None, work_kind: s.WorkKind | None = None,
        batch_id: str | None = None, created_after: str | None = None, created_before: str | None = None, limit: int | None = None,
    ) -> AsyncGenerator[s.JobSummary, None]:
        """Lists jobs, newest first. Pages are read on demand; limit is the size of a page. Times are RFC 3339 in UTC."""
        filters = {
            "state": state, "type": type, "work_kind": work_kind, "batch_id": batch_id, "created_after": created_after,
            "created_before": created_before, "limit": limit,
        }
        return cast(AsyncGenerator[s.JobSummary, None], self._core.list("/v1/jobs", filters))

    async def cancel(self, job_id: str) -> s.JobChange:
        """Cancels a job. A final job does not change."""
        return cast(s.JobChange, await self._core.json(Call("POST", f"/v1/jobs/{_segment(job_id)}/cancel")))

    async def retry(self, job_id: str, *, idempotency_key: str | None = None) -> s.JobRetry:
        """Queues the next attempt of a FAILED job. If its failure is not retryable, this raises a ProblemError with status 409."""
        return cast(s.JobRetry, await self._core.json(_keyed(f"/v1/jobs/{_segment(job_id)}/retry", None, idempotency_key)))

    async def delete(self, job_id: str) -> None:
        """Deletes a final job and all its data."""
        await self._core.send(Call("DELETE", f"/v1/jobs/{_segment(job_id)}"))

    # Outcomes

    async def report(self, job_id: str, *, attempt: int | None = None) -> s.Report:
        """Reads the report of the given attempt, or of the latest attempt that has ended."""
        return cast(s.Report, await self._core.json(Call("GET", f"/v1/jobs/{_segment(job_id)}/report" + query({"attempt": attempt}))))

    def attempts(self, job_id: str) -> AsyncGenerator[s.Attempt, None]:
        """Lists the attempts of a job."""
        return cast(AsyncGenerator[s.Attempt, None], self._core.list(f"/v1/jobs/{_segment(job_id)}/attempts", {}))

    async def result(self, job_id: str) -> Result:
        """Reads the output of a SUCCEEDED job, and checks its digest."""
        call = Call("GET", f"/v1/jobs/{_segment(job_id)}/result", headers={"Accept": "*/*"})
        answer = await self._core.send(call)
        digest = re.search("sha-256=:([^:]+):", answer.headers.get("Repr-Digest", ""))
        if digest and base64.b64encode(hashlib.sha256(answer.body).digest()).decode() != digest[1]:
            raise unexpected(self._core.info(call), answer.status, answer.headers, "its bytes do not match Repr-Digest")
        return Result(answer.headers.get("Content-Type", "application/octet-stream"), answer.body)

    # Events

    def events(self, job_id: str) -> AsyncGenerator[s.Event, None]:
        """Lists the events in the log of a job so far."""
        return cast(AsyncGenerator[s.Event, None], self._core.list(f"/v1/jobs/{_segment(job_id)}/events", {}))

    def stream(
        self, job_id: str, *, last_event_id: str | None = None, timeout: float | None = None, silence: float = 45
    ) -> AsyncGenerator[StreamEvent, None]:
        """Follows a job to its end, from its beginning or after the event last_event_id.

        It yields each event exactly once, even if connections are lost. After silence seconds without data it reconnects; the default is
        three heartbeats. After timeout seconds it raises TimeoutError.
        """
        call = Call("GET", f"/v1/jobs/{_segment(job_id)}/events", deadline=_deadline(timeout))
        return Follower(self._core, call, True, last_event_id, silence).events()

    def stream_all(
        self, *, last_event_id: str | None = None, timeout: float | None = None, silence: float = 45
    ) -> AsyncGenerator[StreamEvent, None]:
        """Follows all jobs, batches and webhooks of the client, from now on or after an event. It does not end by itself."""
        call = Call("GET", "/v1/events", deadline=_deadline(timeout))
        return Follower(self._core, call, False, last_event_id, silence).events()

    # Batches

    async def submit_batch(self, jobs: Sequence[s.BatchItemRequest], *, idempotency_key: str | None = None) -> s.BatchReceipt:
        """Submits 1 to 1,000 jobs with one idempotency key.

        Each job is accepted or refused separately: a refused item has a "failure".
        """
        return cast(s.BatchReceipt, await self._core.json(_keyed("/v1/jobs/batch", {"jobs": list(jobs)}, idempotency_key)))

    async def batch(self, batch_id: str) -> s.Batch:
        """Reads a batch once."""
        return cast(s.Batch, await self._core.json(Call("GET", f"/v1/batches/{_segment(batch_id)}")))

    async def wait_batch(self, batch_id: str, *, timeout: float | None = None) -> s.Batch:
        """Waits until a batch is complete."""
        return cast(s.Batch, await self._core.poll(f"/v1/batches/{_segment(batch_id)}", is_complete, _deadline(timeout)))

    def batch_jobs(self, batch_id: str) -> AsyncGenerator[s.BatchJob, None]:
        """Lists the jobs of a batch."""
        return cast(AsyncGenerator[s.BatchJob, None], self._core.list(f"/v1/batches/{_segment(batch_id)}/jobs", {}))

    async def cancel_batch(self, batch_id: str) -> s.Batch:
        """Cancels the jobs of a batch that are not final."""
        return cast(s.Batch, await self._core.json(Call("POST", f"/v1/batches/{_segment(batch_id)}/cancel")))

    # Webhooks

    async def create_webhook(self, webhook: s.WebhookRequest, *, idempotency_key: str | None = None) -> s.IssuedWebhook:
        """Registers a webhook. Only the first response has the secret. If it was lost, secret is None: rotate the secret then."""
        return cast(s.IssuedWebhook, await self._core.json(_keyed("/v1/webhooks", webhook, idempotency_key)))

    async def rotate_secret(self, webhook_id: str) -> s.IssuedWebhook:
        """Creates a new secret; the old one stays valid for a day. It is not retried, because only one response has the secret."""
        return cast(s.IssuedWebhook, await self._core.json(Call("POST", f"/v1/webhooks/{_segment(webhook_id)}/rotate-secret", once=True)))

    async def delete_webhook(self, webhook_id: str) -> None:
        """Deletes a webhook."""
        await self._core.send(Call("DELETE", f"/v1/webhooks/{_segment(webhook_id)}"))

    async def signing_keys(self) -> s.KeyDirectory:
        """Reads the published keys that verify deliveries. The class webhooks.Keys keeps them up to date."""
        accept = {"Accept": "application/http-message-signatures-directory+json, application/json"}
        call = Call("GET", "/.well-known/http-message-signatures-directory", headers=accept)
        return cast(s.KeyDirectory, await self._core.json(call))


def _deadline(timeout: float | None) -> float | None:
    return None if timeout is None else time.monotonic() + timeout


def _keyed(path: str, body: Any, idempotency_key: str | None) -> Call:
    headers = {} if idempotency_key is None else {"Idempotency-Key": idempotency_key}
    return Call("POST", path, body, keyed=True, headers=headers)


def _segment(text: str) -> str:
    """Escapes an id, which may have any characters. It refuses an empty id and dots alone, which would lead to another resource."""
    if text in ("", ".", ".."):
        raise ValueError(f"{text!r} is no id")
    return urllib.parse.quote(text, safe="")
