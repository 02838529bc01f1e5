"""Tests the client for event loops with each of its transports. test_client.py tests the content of requests, which is the same."""

from __future__ import annotations

import asyncio
import threading
import unittest
from collections.abc import Iterator
from typing import Any
from unittest import mock

from forgerun import AsyncClient, Client, NoAnswerError, ProblemError, _async

from .fake import Fake, Reply, event, ok, problem
from .test_client import EXECUTE, RECEIPT

TRANSPORTS = [False, True] if _async.HAS_HTTPX else [False]
SILENT = Reply(headers={"Content-Length": "9"}, body="{", hangs="after")


class AsyncClientTest(unittest.IsolatedAsyncioTestCase):
    def serve(self, *replies: Reply) -> Fake:
        fake = Fake(*replies)
        self.addCleanup(fake.close)
        return fake

    def clients(self, *replies: Reply, **options: Any) -> Iterator[tuple[AsyncClient, Fake]]:
        """Yields a client of each kind, which does not really wait, with its own service."""
        for use_httpx in TRANSPORTS:
            with self.subTest(use_httpx=use_httpx):
                fake = self.serve(*replies)

                async def sleep(seconds: float, waits: list[float] = fake.waits) -> None:
                    waits.append(seconds)

                client = AsyncClient(fake.url, "frk_id_secret", sleep=sleep, use_httpx=use_httpx, **options)
                self.addAsyncCleanup(client.aclose)
                yield client, fake

    async def test_a_submission_whose_answer_is_lost_is_repeated_with_its_key_and_body(self) -> None:
        lost = Reply(202, {"Content-Length": "99"}, '{"job', cut=True)
        for client, fake in self.clients(Reply(cut=True), lost, problem(429, "RFA_REQUEST_RATE_LIMITED", {"Retry-After": "7"}), RECEIPT):
            self.assertEqual((await client.submit(EXECUTE))["job_id"], "j1")
            first, *others = fake.got
            self.assertEqual(first.headers["Authorization"], "Bearer frk_id_secret")
            self.assertRegex(first.headers["Idempotency-Key"], "^[0-9a-f-]{36}$")
            same = [(sent.headers["Idempotency-Key"], sent.body) for sent in others]
            self.assertEqual(same, [(first.headers["Idempotency-Key"], first.body)] * 3)
            self.assertTrue(7 <= fake.waits[2] < 7.3, fake.waits)

    async def test_a_refusal_is_an_error_that_says_whether_another_try_may_help(self) -> None:
        for client, _ in self.clients(problem(503, "RFA_STORAGE_UNAVAILABLE"), max_tries=1):
            with self.assertRaises(ProblemError) as away:
                await client.get("j")
            self.assertEqual((away.exception.retryable, away.exception.request_id), (True, "r1"))
        for client, fake in self.clients(Reply(308, {"Location": "http://e.example/"}), problem(400, "RFA_JOB_VALIDATION_FAILED")):
            for _ in range(2):
                with self.assertRaises(Exception) as refused:
                    await client.submit(EXECUTE)
                self.assertFalse(getattr(refused.exception, "retryable"))
            self.assertEqual(len(fake.got), 2)

    async def test_redirects_are_followed_and_refusals_that_may_pass_tried_again(self) -> None:
        moved = Reply(308, {"Location": "/v1/there?a=1"})
        for client, fake in self.clients(Reply(307, {"Location": "/v1/here"}), moved, problem(401, "RFA_AUTH_TOKEN_EXPIRED"),
                                         problem(403, "RFA_AUTH_FORBIDDEN", {"Retry-After": "2"}), RECEIPT):
            self.assertEqual((await client.submit(EXECUTE))["job_id"], "j1")
            self.assertEqual(fake.got[2].path, "/v1/there?a=1")
            self.assertEqual({(sent.headers["Idempotency-Key"], sent.body) for sent in fake.got},
                             {(fake.got[0].headers["Idempotency-Key"], fake.got[0].body)})
            self.assertGreaterEqual(fake.waits[1], 2)
        missing = problem(404, "RFA_JOB_NOT_FOUND")
        for client, fake in self.clients(missing, missing, missing, ok({"job_id": "j", "state": "SUCCEEDED"})):
            self.assertEqual((await client.wait("j"))["state"], "SUCCEEDED")
        for client, fake in self.clients(missing):
            with self.assertRaises(ProblemError):
                await client.wait("j")
            self.assertEqual(len(fake.got), 4)

    async def test_connections_are_used_again(self) -> None:
        for client, fake in self.clients(ok({"job_id": "j"})):
            for _ in range(5):
                await client.get("j")
            self.assertEqual(len(fake.connections), 1)

    async def test_waiting_and_lists_go_on_as_advised(self) -> None:
        for client, fake in self.clients(
            ok({"job_id": "j", "state": "RUNNING"}, {"ETag": 'W/"1"', "Retry-After": "3"}), Reply(304, {"Retry-After": "3"}),
            ok({"job_id": "j", "state": "SUCCEEDED"}),
            ok({"data": [{"job_id": "1"}], "page": {"next_cursor": "c/1"}}), ok({"data": [{"job_id": "2"}], "page": {"next_cursor": None}}),
        ):
            self.assertEqual((await client.wait("j"))["state"], "SUCCEEDED")
            self.assertEqual([sent.headers.get("If-None-Match") for sent in fake.got], [None, 'W/"1"', 'W/"1"'])
            self.assertTrue(3 <= fake.waits[0] < 3.4, fake.waits)
            self.assertEqual([job["job_id"] async for job in client.jobs(limit=1)], ["1", "2"])

    async def test_a_stream_that_breaks_is_resumed(self) -> None:
        kind = {"Content-Type": "text/event-stream"}
        first = event(1, "job-created") + event(2, "job-queued")
        for client, fake in self.clients(
            Reply(200, {**kind, "Content-Length": "999"}, first + "id: 3\nevent: job-ru", cut=True),
            Reply(200, kind, first + event(3, "job-running")), Reply(200, kind, event(4, "job-succeeded")), Reply(204),
        ):
            self.assertEqual([seen.id async for seen in client.stream("j")], ["1", "2", "3", "4"])
            self.assertEqual([sent.headers.get("Last-Event-ID") for sent in fake.got], [None, "2", "3", "4"])

    async def test_a_service_that_is_silent_is_given_up(self) -> None:
        for client, fake in self.clients(SILENT, timeout=0.05, max_tries=2):
            with self.assertRaises(NoAnswerError):
                await client.get("j")
            self.assertEqual(len(fake.got), 2)

    async def test_canceling_a_call_ends_its_waiting_and_its_connection(self) -> None:
        stream = Reply(200, {"Content-Type": "text/event-stream", "Content-Length": "999"}, event(1, "job-created"), hangs="after")
        for reply in (SILENT, Reply(hangs="before"), stream):
            for client, fake in self.clients(reply):
                async def follow(client: AsyncClient = client) -> None:
                    async for _ in client.stream("j"):
                        pass

                call = asyncio.create_task(follow() if reply is stream else client.wait("j"))
                await asyncio.to_thread(fake.asked.wait)
                call.cancel()
                with self.assertRaises(asyncio.CancelledError):
                    await call
                self.assertTrue(await asyncio.to_thread(fake.left.wait, 30), "the service sees that nobody waits")
                self.assertEqual(len(fake.got), 1)
                with self.assertRaises(TimeoutError):
                    async with asyncio.timeout(0.05):
                        await client.wait("j")

    async def test_many_calls_wait_at_the_same_time(self) -> None:
        for client, fake in self.clients(Reply(body="{}", together=40)):
            answers = await asyncio.gather(*(client.get(str(n)) for n in range(40)))
            self.assertEqual(len(answers), 40)

    async def test_both_clients_have_the_same_calls(self) -> None:
        calls = {name for name in dir(AsyncClient) if not name.startswith("_")}
        self.assertEqual(calls - {"aclose"}, {name for name in dir(Client) if not name.startswith("_")} - {"close"})

    async def test_httpx_that_is_missing_is_named(self) -> None:
        with mock.patch.object(_async, "HAS_HTTPX", False):
            with self.assertRaisesRegex(RuntimeError, "httpx is not installed"):
                AsyncClient("http://127.0.0.1:9", use_httpx=True)
            before = threading.active_count()
            await AsyncClient("http://127.0.0.1:9").aclose()
            self.assertEqual(threading.active_count(), before)


if __name__ == "__main__":
    unittest.main()
