"""The calls of the API, which both clients have."""

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
    """Whether a job has ended. A state that is not known is not final."""
    return job.get("state") in FINAL


def is_complete(batch: s.Batch) -> bool:
    """Whether a batch is complete. A status that is not known is not final."""
    return batch.get("status") in COMPLETE


@dataclass(frozen=True)
class Result:
    """What a job produced."""

    content_type: str
    data: bytes


@dataclass(frozen=True)
class Registration:
    """A new client and its key, which is shown this once."""

    client_id: str
    api_key: str = field(repr=False)


class Calls:
    """What can be asked of one service."""

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
        """Submits a job. Once this returns the job is stored, and runs whatever happens to the service.

        A program that stores an idempotency_key of its own can repeat the call after a crash of its own; otherwise a random one is
        used for all tries.
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
        """Reads a job as it is now."""
        return cast(s.Job, await self._core.json(Call("GET", f"/v1/jobs/{_segment(job_id)}")))

    async def wait(self, job_id: str, *, timeout: float | None = None) -> s.Job:
        """Waits until a job is final, in whatever state: its own failure is no error.

        It asks as often as the service advises, and goes on while the service is away, so give it a timeout in seconds: then it
        raises TimeoutError, or the error of the last request.
        """
        return cast(s.Job, await self._core.poll(f"/v1/jobs/{_segment(job_id)}", is_final, _deadline(timeout)))

    def jobs(
        self, *, state: s.State | None = None, type: s.JobType | None = None, work_kind: s.WorkKind | None = None,
        batch_id: str | None = None, created_after: str | None = None, created_before: str | None = None, limit: int | None = None,
    ) -> AsyncGenerator[s.JobSummary, None]:
        """Lists jobs, newest first, page by page as they are read. limit is that of a page. Times are RFC 3339 in UTC."""
        filters = {
            "state": state, "type": type, "work_kind": work_kind, "batch_id": batch_id, "created_after": created_after,
            "created_before": created_before, "limit": limit,
        }
        return cast(AsyncGenerator[s.JobSummary, None], self._core.list("/v1/jobs", filters))

    async def cancel(self, job_id: str) -> s.JobChange:
        """Ends a job that is not final. A final one stays as it is."""
        return cast(s.JobChange, await self._core.json(Call("POST", f"/v1/jobs/{_segment(job_id)}/cancel")))

    async def retry(self, job_id: str, *, idempotency_key: str | None = None) -> s.JobRetry:
        """Queues the next attempt of a job that FAILED. One whose failure is not retryable is a ProblemError with status 409."""
        return cast(s.JobRetry, await self._core.json(_keyed(f"/v1/jobs/{_segment(job_id)}/retry", None, idempotency_key)))

    async def delete(self, job_id: str) -> None:
        """Removes a final job with all that belongs to it."""
        await self._core.send(Call("DELETE", f"/v1/jobs/{_segment(job_id)}"))

    # Outcomes

    async def report(self, job_id: str, *, attempt: int | None = None) -> s.Report:
        """Reads the report of the latest attempt that has ended, or of that attempt."""
        return cast(s.Report, await self._core.json(Call("GET", f"/v1/jobs/{_segment(job_id)}/report" + query({"attempt": attempt}))))

    def attempts(self, job_id: str) -> AsyncGenerator[s.Attempt, None]:
        """Lists the attempts of a job."""
        return cast(AsyncGenerator[s.Attempt, None], self._core.list(f"/v1/jobs/{_segment(job_id)}/attempts", {}))

    async def result(self, job_id: str) -> Result:
        """Reads what a job that SUCCEEDED produced, and checks its digest."""
        call = Call("GET", f"/v1/jobs/{_segment(job_id)}/result", headers={"Accept": "*/*"})
        answer = await self._core.send(call)
        digest = re.search("sha-256=:([^:]+):", answer.headers.get("Repr-Digest", ""))
        if digest and base64.b64encode(hashlib.sha256(answer.body).digest()).decode() != digest[1]:
            raise unexpected(self._core.info(call), answer.status, answer.headers, "its bytes do not match Repr-Digest")
        return Result(answer.headers.get("Content-Type", "application/octet-stream"), answer.body)

    # Events

    def events(self, job_id: str) -> AsyncGenerator[s.Event, None]:
        """Lists the log of a job up to now."""
        return cast(AsyncGenerator[s.Event, None], self._core.list(f"/v1/jobs/{_segment(job_id)}/events", {}))

    def stream(
        self, job_id: str, *, last_event_id: str | None = None, timeout: float | None = None, silence: float = 45
    ) -> AsyncGenerator[StreamEvent, None]:
        """Follows a job from its beginning, or after an event, to its end.

        Each event comes once, and none is left out, whatever happens to connections. A stream that is silent for so many seconds is
        opened anew: 45 are three heartbeats. After timeout seconds it raises TimeoutError.
        """
        call = Call("GET", f"/v1/jobs/{_segment(job_id)}/events", deadline=_deadline(timeout))
        return Follower(self._core, call, True, last_event_id, silence).events()

    def stream_all(
        self, *, last_event_id: str | None = None, timeout: float | None = None, silence: float = 45
    ) -> AsyncGenerator[StreamEvent, None]:
        """Follows all jobs, batches and webhooks of the client, from now on or after an event, without end."""
        call = Call("GET", "/v1/events", deadline=_deadline(timeout))
        return Follower(self._core, call, False, last_event_id, silence).events()

    # Batches

    async def submit_batch(self, jobs: Sequence[s.BatchItemRequest], *, idempotency_key: str | None = None) -> s.BatchReceipt:
        """Submits 1 to 1,000 jobs with one idempotency key.

        Each is accepted or refused by itself: look for "failure" in each item.
        """
        return cast(s.BatchReceipt, await self._core.json(_keyed("/v1/jobs/batch", {"jobs": list(jobs)}, idempotency_key)))

    async def batch(self, batch_id: str) -> s.Batch:
        """Reads a batch as it is now."""
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
        """Registers a webhook. Its secret is shown this once; None if an earlier answer had it: then rotate it."""
        return cast(s.IssuedWebhook, await self._core.json(_keyed("/v1/webhooks", webhook, idempotency_key)))

    async def rotate_secret(self, webhook_id: str) -> s.IssuedWebhook:
        """Gives a webhook a new secret. The old one stays valid for a day. Not repeated: only one answer has the secret."""
        return cast(s.IssuedWebhook, await self._core.json(Call("POST", f"/v1/webhooks/{_segment(webhook_id)}/rotate-secret", once=True)))

    async def delete_webhook(self, webhook_id: str) -> None:
        """Removes a webhook."""
        await self._core.send(Call("DELETE", f"/v1/webhooks/{_segment(webhook_id)}"))

    async def signing_keys(self) -> s.KeyDirectory:
        """Reads the published keys that deliveries are signed with. webhooks.Keys keeps them up to date."""
        accept = {"Accept": "application/http-message-signatures-directory+json, application/json"}
        call = Call("GET", "/.well-known/http-message-signatures-directory", headers=accept)
        return cast(s.KeyDirectory, await self._core.json(call))


def _deadline(timeout: float | None) -> float | None:
    return None if timeout is None else time.monotonic() + timeout


def _keyed(path: str, body: Any, idempotency_key: str | None) -> Call:
    headers = {} if idempotency_key is None else {"Idempotency-Key": idempotency_key}
    return Call("POST", path, body, keyed=True, headers=headers)


def _segment(text: str) -> str:
    """Ids are opaque and may have any character, but an empty one, or dots alone, would name something else."""
    if text in ("", ".", ".."):
        raise ValueError(f"{text!r} is no id")
    return urllib.parse.quote(text, safe="")
