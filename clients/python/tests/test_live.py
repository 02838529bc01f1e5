"""Tests against the real service at FORGERUN_URL, with FORGERUN_API_KEY. Without these variables, the tests are skipped."""

from __future__ import annotations

import asyncio
import datetime
import os
import unittest
import uuid
from collections.abc import AsyncIterator
from typing import cast

from forgerun import AsyncClient, Client, ProblemError, schemas

from .receiver import Receiver
from .test_async import TRANSPORTS
from .test_webhooks import HAS_KEYS

EXECUTE: schemas.JobRequest = {"type": "EXECUTE", "work_kind": "SUCCESS_FAST"}
PATIENCE = 60


@unittest.skipUnless("FORGERUN_URL" in os.environ, "FORGERUN_URL is not set")
class LiveTest(unittest.TestCase):
    def setUp(self) -> None:
        self.client = Client(os.environ["FORGERUN_URL"], os.environ["FORGERUN_API_KEY"])
        self.addCleanup(self.client.close)

    def test_a_job_from_its_submission_to_its_removal(self) -> None:
        client, key = self.client, str(uuid.uuid4())
        job_id = client.submit(EXECUTE, idempotency_key=key, correlation_id="order-1")["job_id"]
        self.assertEqual(client.submit(EXECUTE, idempotency_key=key)["job_id"], job_id, "one key, one job")
        with self.assertRaises(ProblemError) as conflict:
            client.submit({"type": "EXECUTE", "work_kind": "SUCCESS_FAST", "auto_retry": True}, idempotency_key=key)
        self.assertEqual(conflict.exception.code, "RFA_EXEC_IDEMPOTENCY_CONFLICT")
        events = [event for event in client.stream(job_id, timeout=PATIENCE) if event.id]
        self.assertEqual([event.id for event in events], ["1", "2", "3", "4", "5"])
        self.assertEqual(events[-1].name, "job-succeeded")
        self.assertEqual([event.name for event in client.stream(job_id, last_event_id="4", timeout=PATIENCE)], ["job-succeeded"])
        job = client.wait(job_id, timeout=PATIENCE)
        self.assertEqual((job["state"], job["correlation_id"]), ("SUCCEEDED", "order-1"))
        self.assertEqual([event["seq"] for event in client.events(job_id)], [1, 2, 3, 4, 5])
        self.assertEqual(len(client.report(job_id, attempt=1)["events"]), 5)
        self.assertEqual(len(list(client.attempts(job_id))), 1)
        self.assertEqual(len(client.result(job_id).data), 4096)
        client.delete(job_id)
        with self.assertRaises(ProblemError) as gone:
            client.get(job_id)
        self.assertEqual((gone.exception.status, gone.exception.code), (410, "RFA_JOB_GONE"))

    def test_a_failure_is_retried(self) -> None:
        failed = self.client.run({"type": "EXECUTE", "work_kind": "RETRY_ON_FAIL"}, timeout=PATIENCE)
        self.assertEqual((failed["state"], failed["failure"]["retryable"], failed["can_retry"]), ("FAILED", True, True))
        self.assertTrue(self.client.retry(failed["job_id"])["changed"])
        self.assertEqual(self.client.wait(failed["job_id"], timeout=PATIENCE)["state"], "SUCCEEDED")
        with self.assertRaises(ProblemError) as refused:
            self.client.retry(failed["job_id"])
        self.assertEqual(refused.exception.code, "RFA_JOB_CONFLICT")

    def test_a_job_is_canceled(self) -> None:
        later = (datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(hours=1)).strftime("%Y-%m-%dT%H:%M:%SZ")
        job_id = self.client.submit({"type": "DEFERRED", "execution_at": later})["job_id"]
        self.assertTrue(self.client.cancel(job_id)["changed"])
        self.assertEqual(self.client.wait(job_id, timeout=PATIENCE)["state"], "CANCELED")
        self.assertFalse(self.client.cancel(job_id)["changed"])

    def test_a_batch(self) -> None:
        client = self.client
        receipt = client.submit_batch([
            {"item_id": "good", "type": "EXECUTE", "work_kind": "SUCCESS_FAST"}, {"item_id": "bad", "type": "DEFERRED"},
            {"type": "EXECUTE", "work_kind": "SUCCESS_FAST"},
        ])
        refused = [cast(schemas.RefusedItem, item)["failure"]["violations"][0] for item in receipt["jobs"] if "failure" in item]
        self.assertEqual([violation["pointer"] for violation in refused], ["/jobs/1/execution_at"])
        batch = client.wait_batch(receipt["batch_id"], timeout=PATIENCE)
        self.assertEqual(batch["status"], "COMPLETED_WITH_ERRORS")
        self.assertEqual(len(list(client.batch_jobs(receipt["batch_id"]))), 2)
        self.assertEqual(len(list(client.jobs(batch_id=receipt["batch_id"], limit=1))), 2, "page by page")
        self.assertEqual(client.cancel_batch(receipt["batch_id"])["status"], "COMPLETED_WITH_ERRORS")

    def test_what_is_refused(self) -> None:
        with self.assertRaises(ProblemError) as caught:
            self.client.submit({"type": "DEFERRED", "correlation_id": "not a word"})
        self.assertEqual(caught.exception.status, 400)
        self.assertTrue(caught.exception.request_id)
        self.assertIn("/execution_at", [violation.get("pointer") for violation in caught.exception.violations])
        with self.assertRaises(ProblemError) as unknown:
            self.client.get("no/such job?")
        self.assertEqual(unknown.exception.code, "RFA_JOB_NOT_FOUND")
        with self.assertRaises(ProblemError) as stranger:
            Client(os.environ["FORGERUN_URL"], "frk_x").get("j")
        self.assertEqual(stranger.exception.status, 401)

    def test_a_client_of_its_own(self) -> None:
        registered = Client.register(os.environ["FORGERUN_URL"])
        self.assertNotIn(registered.api_key, repr(registered))
        with Client(os.environ["FORGERUN_URL"], registered.api_key) as client:
            self.assertEqual(list(client.jobs()), [])

    def test_deliveries(self) -> None:
        hook = Receiver()
        self.addCleanup(hook.close)
        hook.trust(self.client.create_webhook({"url": hook.url, "events": ["job.*"]}), self.client if HAS_KEYS else None)
        job = self.client.run(EXECUTE, timeout=PATIENCE)
        hook.ended([job["job_id"]], timeout=PATIENCE)
        mine = [message for message in hook.messages.values() if message.job_id == job["job_id"]]
        self.assertTrue(all(message.sequence and message.event_id for message in mine))


@unittest.skipUnless("FORGERUN_URL" in os.environ, "FORGERUN_URL is not set")
class AsyncLiveTest(unittest.IsolatedAsyncioTestCase):
    async def each(self) -> AsyncIterator[AsyncClient]:
        for use_httpx in TRANSPORTS:
            with self.subTest(use_httpx=use_httpx):
                async with AsyncClient(os.environ["FORGERUN_URL"], os.environ["FORGERUN_API_KEY"], use_httpx=use_httpx) as client:
                    yield client

    async def test_jobs_at_the_same_time(self) -> None:
        async for client in self.each():
            key = str(uuid.uuid4())
            job_id = (await client.submit(EXECUTE, idempotency_key=key))["job_id"]
            self.assertEqual((await client.submit(EXECUTE, idempotency_key=key))["job_id"], job_id, "one key, one job")
            jobs = await asyncio.gather(*(client.run(EXECUTE, timeout=PATIENCE) for _ in range(5)), client.wait(job_id, timeout=PATIENCE))
            self.assertEqual([job["state"] for job in jobs], ["SUCCEEDED"] * 6)
            seen = [event.id async for event in client.stream(job_id, last_event_id="2", timeout=PATIENCE) if event.id]
            self.assertEqual(seen, ["3", "4", "5"])
            self.assertEqual(len((await client.result(job_id)).data), 4096)

    async def test_a_batch_and_what_is_refused(self) -> None:
        async for client in self.each():
            item: schemas.BatchItemRequest = {"type": "EXECUTE", "work_kind": "SUCCESS_FAST"}
            batch_id = (await client.submit_batch([item, item]))["batch_id"]
            self.assertEqual((await client.wait_batch(batch_id, timeout=PATIENCE))["status"], "COMPLETED")
            self.assertEqual(len([job async for job in client.jobs(batch_id=batch_id, limit=1)]), 2, "page by page")
            with self.assertRaises(ProblemError) as unknown:
                await client.get("no/such job?")
            self.assertEqual((unknown.exception.code, unknown.exception.retryable), ("RFA_JOB_NOT_FOUND", False))

    async def test_a_wait_that_is_canceled(self) -> None:
        async for client in self.each():
            later = (datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(hours=1)).strftime("%Y-%m-%dT%H:%M:%SZ")
            job_id = (await client.submit({"type": "DEFERRED", "execution_at": later}))["job_id"]
            with self.assertRaises(TimeoutError):
                async with asyncio.timeout(0.2):
                    await client.wait(job_id)
            self.assertTrue((await client.cancel(job_id))["changed"])


if __name__ == "__main__":
    unittest.main()
