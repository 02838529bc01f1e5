"""The calls of the API."""

from __future__ import annotations

import base64
import hashlib
import random
import re
import time
import urllib.parse
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, cast

from . import schemas as s
from ._http import Answer, Call, Http, backoff, passing, retry_after, unexpected
from ._stream import Follower, StreamEvent
from .errors import ForgeRunError

LONG_POLL = 20  # seconds for which the service may hold the answer to a poll back
DEFAULT_POLL = 1.0  # seconds between polls when the service names none
LONGEST_POLL = 60.0

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


class Client:
    """A client of one ForgeRun service, for any number of threads. Make one and keep it: connections are used again.

    url is the base address, timeout how many seconds one try may take, beside what Prefer: wait adds, and max_tries how often one
    request is sent at most. on_retry is called before a request is sent again, for a log; sleep is for tests. session is the label of
    the test bed's session to which the requests belong, if not to the one without a label: that of a test.
    """

    def __init__(
        self, url: str, api_key: str | None = None, *, timeout: float = 30, max_tries: int = 10,
        on_retry: Callable[[Exception, float], None] | None = None, sleep: Callable[[float], None] = time.sleep,
        session: str | None = None,
    ) -> None:
        self._http = Http(url, api_key, timeout, max_tries, on_retry, sleep, session)

    @classmethod
    def register(cls, url: str) -> Registration:
        """Makes a client with its first key, where registration is open, as in ``forgerun dev``: for tests.

        The key is shown this once; if its answer is lost, register again.
        """
        with cls(url) as anybody:
            client_id: str = anybody._call(Call("POST", "/v1/clients", keyed=True))["client_id"]
            key: str = anybody._call(Call("POST", f"/v1/clients/{_segment(client_id)}/keys", once=True))["api_key"]
            return Registration(client_id, key)

    def __enter__(self) -> Client:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Closes the connections that are kept."""
        self._http.close()

    # Jobs

    def submit(
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
        return cast(s.JobReceipt, self._call(Call("POST", "/v1/jobs", job, keyed=True, headers=more)))

    def run(self, job: s.JobRequest, *, timeout: float | None = None, correlation_id: str | None = None) -> s.Job:
        """Submits a job and waits for its end."""
        return self.wait(self.submit(job, correlation_id=correlation_id)["job_id"], timeout=timeout)

    def get(self, job_id: str) -> s.Job:
        """Reads a job as it is now."""
        return cast(s.Job, self._call(Call("GET", f"/v1/jobs/{_segment(job_id)}")))

    def wait(self, job_id: str, *, timeout: float | None = None) -> s.Job:
        """Waits until a job is final, in whatever state: its own failure is no error.

        It asks as often as the service advises, and goes on while the service is away, so give it a timeout in seconds: then it
        raises TimeoutError, or the error of the last request.
        """
        return cast(s.Job, self._poll(f"/v1/jobs/{_segment(job_id)}", is_final, timeout))

    def jobs(
        self, *, state: s.State | None = None, type: s.JobType | None = None, work_kind: s.WorkKind | None = None,
        batch_id: str | None = None, created_after: str | None = None, created_before: str | None = None, limit: int | None = None,
    ) -> Iterator[s.JobSummary]:
        """Lists jobs, newest first, page by page as they are read. limit is that of a page. Times are RFC 3339 in UTC."""
        filters = {
            "state": state, "type": type, "work_kind": work_kind, "batch_id": batch_id, "created_after": created_after,
            "created_before": created_before, "limit": limit,
        }
        return cast(Iterator[s.JobSummary], self._list("/v1/jobs", filters))

    def cancel(self, job_id: str) -> s.JobChange:
        """Ends a job that is not final. A final one stays as it is."""
        return cast(s.JobChange, self._call(Call("POST", f"/v1/jobs/{_segment(job_id)}/cancel")))

    def retry(self, job_id: str, *, idempotency_key: str | None = None) -> s.JobRetry:
        """Queues the next attempt of a job that FAILED. One whose failure is not retryable is a ProblemError with status 409."""
        return cast(s.JobRetry, self._call(_keyed(f"/v1/jobs/{_segment(job_id)}/retry", None, idempotency_key)))

    def delete(self, job_id: str) -> None:
        """Removes a final job with all that belongs to it."""
        self._http.send(Call("DELETE", f"/v1/jobs/{_segment(job_id)}"))

    # Outcomes

    def report(self, job_id: str, *, attempt: int | None = None) -> s.Report:
        """Reads the report of the latest attempt that has ended, or of that attempt."""
        return cast(s.Report, self._call(Call("GET", f"/v1/jobs/{_segment(job_id)}/report" + _query({"attempt": attempt}))))

    def attempts(self, job_id: str) -> Iterator[s.Attempt]:
        """Lists the attempts of a job."""
        return cast(Iterator[s.Attempt], self._list(f"/v1/jobs/{_segment(job_id)}/attempts", {}))

    def result(self, job_id: str) -> Result:
        """Reads what a job that SUCCEEDED produced, and checks its digest."""
        call = Call("GET", f"/v1/jobs/{_segment(job_id)}/result", headers={"Accept": "*/*"})
        answer = self._http.send(call)
        digest = re.search("sha-256=:([^:]+):", answer.headers.get("Repr-Digest", ""))
        if digest and base64.b64encode(hashlib.sha256(answer.body).digest()).decode() != digest[1]:
            raise unexpected(self._http.info(call), answer.status, answer.headers, "its bytes do not match Repr-Digest")
        return Result(answer.headers.get("Content-Type", "application/octet-stream"), answer.body)

    # Events

    def events(self, job_id: str) -> Iterator[s.Event]:
        """Lists the log of a job up to now."""
        return cast(Iterator[s.Event], self._list(f"/v1/jobs/{_segment(job_id)}/events", {}))

    def stream(
        self, job_id: str, *, last_event_id: str | None = None, timeout: float | None = None, silence: float = 45
    ) -> Iterator[StreamEvent]:
        """Follows a job from its beginning, or after an event, to its end.

        Each event comes once, and none is left out, whatever happens to connections. A stream that is silent for so many seconds is
        opened anew: 45 are three heartbeats. After timeout seconds it raises TimeoutError.
        """
        call = Call("GET", f"/v1/jobs/{_segment(job_id)}/events", deadline=_deadline(timeout))
        return Follower(self._http, call, True, last_event_id, silence).events()

    def stream_all(
        self, *, last_event_id: str | None = None, timeout: float | None = None, silence: float = 45
    ) -> Iterator[StreamEvent]:
        """Follows all jobs, batches and webhooks of the client, from now on or after an event, without end."""
        call = Call("GET", "/v1/events", deadline=_deadline(timeout))
        return Follower(self._http, call, False, last_event_id, silence).events()

    # Batches

    def submit_batch(self, jobs: Sequence[s.BatchItemRequest], *, idempotency_key: str | None = None) -> s.BatchReceipt:
        """Submits 1 to 1,000 jobs with one idempotency key.

        Each is accepted or refused by itself: look for "failure" in each item.
        """
        return cast(s.BatchReceipt, self._call(_keyed("/v1/jobs/batch", {"jobs": list(jobs)}, idempotency_key)))

    def batch(self, batch_id: str) -> s.Batch:
        """Reads a batch as it is now."""
        return cast(s.Batch, self._call(Call("GET", f"/v1/batches/{_segment(batch_id)}")))

    def wait_batch(self, batch_id: str, *, timeout: float | None = None) -> s.Batch:
        """Waits until a batch is complete."""
        return cast(s.Batch, self._poll(f"/v1/batches/{_segment(batch_id)}", is_complete, timeout))

    def batch_jobs(self, batch_id: str) -> Iterator[s.BatchJob]:
        """Lists the jobs of a batch."""
        return cast(Iterator[s.BatchJob], self._list(f"/v1/batches/{_segment(batch_id)}/jobs", {}))

    def cancel_batch(self, batch_id: str) -> s.Batch:
        """Cancels the jobs of a batch that are not final."""
        return cast(s.Batch, self._call(Call("POST", f"/v1/batches/{_segment(batch_id)}/cancel")))

    # Webhooks

    def create_webhook(self, webhook: s.WebhookRequest, *, idempotency_key: str | None = None) -> s.IssuedWebhook:
        """Registers a webhook. Its secret is shown this once; None if an earlier answer had it: then rotate it."""
        return cast(s.IssuedWebhook, self._call(_keyed("/v1/webhooks", webhook, idempotency_key)))

    def rotate_secret(self, webhook_id: str) -> s.IssuedWebhook:
        """Gives a webhook a new secret. The old one stays valid for a day. Not repeated: only one answer has the secret."""
        return cast(s.IssuedWebhook, self._call(Call("POST", f"/v1/webhooks/{_segment(webhook_id)}/rotate-secret", once=True)))

    def delete_webhook(self, webhook_id: str) -> None:
        """Removes a webhook."""
        self._http.send(Call("DELETE", f"/v1/webhooks/{_segment(webhook_id)}"))

    def signing_keys(self) -> s.KeyDirectory:
        """Reads the published keys that deliveries are signed with. webhooks.Keys keeps them up to date."""
        accept = {"Accept": "application/http-message-signatures-directory+json, application/json"}
        call = Call("GET", "/.well-known/http-message-signatures-directory", headers=accept)
        return cast(s.KeyDirectory, self._call(call))

    def _call(self, call: Call) -> Any:
        return self._http.json(call, self._http.send(call))

    def _poll(self, path: str, final: Callable[[Any], bool], timeout: float | None) -> Any:
        """Asks until the resource is final: with its tag, so that what is unchanged is a 304, and held back until it changes."""
        deadline = _deadline(timeout)
        tag, failures = "", 0
        while True:
            holds = LONG_POLL
            if deadline is not None:
                holds = max(0, min(holds, int(deadline - time.monotonic()) - 1))
            headers = {"Prefer": f"wait={holds}"} if holds else {}
            if tag:
                headers["If-None-Match"] = tag
            call = Call("GET", path, holds=holds, headers=headers, deadline=deadline)
            began = time.monotonic()
            try:
                answer = self._http.send(call)
            except ForgeRunError as error:
                asked = passing(error, lasting=True)
                failures += 1
                wait = min(LONGEST_POLL, max(asked or 0, backoff(failures)))
                if asked is None or deadline is not None and time.monotonic() + wait > deadline:
                    raise
                self._http.retrying(error, wait)
                continue
            failures = 0
            if answer.status != 304:
                resource = self._http.json(call, answer)
                if final(resource):
                    return resource
                tag = answer.headers.get("ETag", "")
            wait = min(LONGEST_POLL, _pause(answer, began)) * random.uniform(1, 1.1)  # polls of many jobs drift apart
            self._http.sleep(wait, deadline)

    def _list(self, path: str, filters: Mapping[str, str | int | None]) -> Iterator[Any]:
        """Reads a list to its end. A page may be short or empty before that."""
        cursor: str | None = None
        while True:
            page = self._call(Call("GET", path + _query({**filters, "cursor": cursor})))
            yield from page["data"]
            following = page["page"]["next_cursor"]
            if following is None:
                return
            if following == cursor:
                raise RuntimeError("the list has no end: its cursor leads to itself")
            cursor = following


def _pause(answer: Answer, began: float) -> float:
    """The wait until the next poll."""
    advised = retry_after(answer.headers)
    wait = DEFAULT_POLL if advised is None else advised
    if answer.status == 304:
        wait -= time.monotonic() - began  # the answer was held back meanwhile
    return max(0.0, wait)


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


def _query(values: Mapping[str, str | int | None]) -> str:
    given = {name: value for name, value in values.items() if value is not None}
    return "?" + urllib.parse.urlencode(given) if given else ""
