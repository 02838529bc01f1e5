from __future__ import annotations

import email.utils
import time
import unittest
from typing import Any

from forgerun import Client, ForgeRunError, NoAnswerError, ProblemError, UnexpectedAnswerError, schemas

from .fake import Fake, Reply, event, ok, problem

EXECUTE: schemas.JobRequest = {"type": "EXECUTE", "work_kind": "SUCCESS_FAST"}
RECEIPT = ok({"job_id": "j1", "state": "QUEUED"}, status=202)


class ClientTest(unittest.TestCase):
    def serve(self, *replies: Reply) -> Fake:
        fake = Fake(*replies)
        self.addCleanup(fake.close)
        return fake

    def test_a_submission_whose_answer_is_lost_is_repeated_with_its_key_and_body(self) -> None:
        fake = self.serve(Reply(cut=True), Reply(202, {"Content-Length": "99"}, '{"job', cut=True), RECEIPT)
        client = fake.client()
        self.assertEqual(client.submit(EXECUTE, correlation_id="order-1")["job_id"], "j1")
        first, *others = fake.got
        self.assertRegex(first.headers["Idempotency-Key"], "^[0-9a-f-]{36}$")
        self.assertEqual(first.headers["X-Correlation-ID"], "order-1")
        self.assertEqual(first.headers["Authorization"], "Bearer frk_id_secret")
        self.assertEqual(len(others), 2)
        for other in others:
            self.assertEqual(other.headers["Idempotency-Key"], first.headers["Idempotency-Key"])
            self.assertEqual(other.body, first.body)
        client.submit(EXECUTE, idempotency_key="mine")
        self.assertEqual(fake.got[3].headers["Idempotency-Key"], "mine")

    def test_connections_are_used_again(self) -> None:
        fake = self.serve(ok({"job_id": "j"}))
        client = fake.client()
        for _ in range(5):
            client.get("j")
        self.assertEqual(len(fake.connections), 1)

    def test_retry_after_is_honoured_and_without_it_waits_grow(self) -> None:
        date = email.utils.formatdate(time.time() + 60, usegmt=True)
        fake = self.serve(
            problem(429, "RFA_REQUEST_RATE_LIMITED", {"Retry-After": "7"}), problem(503, "RFA_EXEC_QUEUE_FULL"),
            Reply(502, {"Content-Type": "text/html"}, "<html>"), problem(504, "RFA_DEPENDENCY_TIMEOUT", {"Retry-After": date}), RECEIPT,
        )
        fake.client().submit(EXECUTE)
        told, second, third, dated = fake.waits
        self.assertTrue(7 <= told < 7.3 and 0.2 <= second < 0.7 and 0.4 <= third < 1.1 and 30 < dated < 61, fake.waits)

    def test_what_waiting_does_not_mend_is_not_repeated(self) -> None:
        cases: list[tuple[Reply, type[Exception]]] = [
            (problem(400, "RFA_JOB_VALIDATION_FAILED"), ProblemError),
            (problem(409, "RFA_EXEC_IDEMPOTENCY_CONFLICT"), ProblemError),
            (problem(500, "RFA_INTERNAL"), ProblemError),
            (problem(503, "RFA_CONFIG_INVALID"), ProblemError),
            (problem(503, "RFA_STORAGE_UNAVAILABLE", {"Retry-After": "3600"}), ProblemError),
            (Reply(308, {"Location": "http://elsewhere.example/"}), UnexpectedAnswerError),
            (Reply(body="<p>"), UnexpectedAnswerError),
        ]
        for reply, expected in cases:
            fake = self.serve(reply)
            with self.assertRaises(expected):
                fake.client().submit(EXECUTE)
            self.assertEqual(len(fake.got), 1)
        fake = self.serve(Reply(cut=True))
        with self.assertRaises(NoAnswerError):
            fake.client().rotate_secret("w")
        self.assertEqual(len(fake.got), 1, "only one answer has the secret")
        with self.assertRaises(NoAnswerError) as lost:
            fake.client(max_tries=3).get("j")
        self.assertEqual(lost.exception.request.tries, 3)

    def test_an_error_tells_whether_another_try_may_help(self) -> None:
        for reply, retryable in (
            (problem(503, "RFA_STORAGE_UNAVAILABLE"), True), (problem(429, "RFA_REQUEST_RATE_LIMITED"), True),
            (Reply(502, {"Content-Type": "text/html"}, "<p>"), True), (Reply(cut=True), True), (problem(503, "RFA_CONFIG_INVALID"), False),
            (problem(500, "RFA_INTERNAL"), False), (problem(409, "RFA_JOB_CONFLICT"), False), (Reply(308), False),
        ):
            with self.assertRaises(ForgeRunError) as caught:
                self.serve(reply).client(max_tries=1).get("j")
            self.assertEqual(caught.exception.retryable, retryable, reply)

    def test_an_error_tells_what_was_wrong_and_nothing_secret(self) -> None:
        violations = [{"pointer": "/type", "detail": "no"}]
        fake = self.serve(problem(400, "RFA_JOB_VALIDATION_FAILED", violations=violations, title="Bad\x1b[31m", detail=7, job_id="j"))
        client = fake.client()
        with self.assertRaises(ProblemError) as caught:
            next(client.jobs(batch_id="SECRET"))
        error = caught.exception
        self.assertEqual((error.status, error.code, error.detail, error.request_id), (400, "RFA_JOB_VALIDATION_FAILED", "", "r1"))
        self.assertEqual((error.violations, error.document["job_id"], error.request.url), (violations, "j", fake.url + "/v1/jobs"))
        self.assertEqual(str(error), f"ForgeRun answered 400: RFA_JOB_VALIDATION_FAILED: Bad [31m (GET {fake.url}/v1/jobs)")
        self.assertNotIn("frk_", repr(client))

    def test_a_service_that_is_silent_is_given_up(self) -> None:
        fake = self.serve(Reply(headers={"Content-Length": "9"}, body="{", hangs="after"))
        with self.assertRaises(NoAnswerError):
            fake.client(timeout=0.05, max_tries=2).get("j")
        running = self.serve(ok({"job_id": "j", "state": "RUNNING"}, {"Retry-After": "9"}))
        with self.assertRaises(TimeoutError):
            running.client().wait("j", timeout=5)

    def test_waiting_asks_with_the_tag_that_it_has_as_often_as_advised_and_outlasts_failures(self) -> None:
        fake = self.serve(
            ok({"job_id": "j", "state": "RUNNING"}, {"ETag": 'W/"1"', "Retry-After": "3"}), Reply(304, {"Retry-After": "3"}),
            problem(500, "RFA_INTERNAL"), ok({"job_id": "j", "state": "PONDERING", "more": 1}), ok({"job_id": "j", "state": "SUCCEEDED"}),
        )
        self.assertEqual(fake.client().wait("j")["state"], "SUCCEEDED")
        tags = [sent.headers.get("If-None-Match") for sent in fake.got]
        self.assertEqual(tags, [None, 'W/"1"', 'W/"1"', 'W/"1"', None])
        self.assertEqual({sent.headers.get("Prefer") for sent in fake.got}, {"wait=20"})
        self.assertTrue(3 <= fake.waits[0] < 3.4 and fake.waits[1] < 3.3, fake.waits)
        with self.assertRaises(ProblemError):
            self.serve(problem(404, "RFA_JOB_NOT_FOUND")).client().wait("j")

    def test_a_stream_that_breaks_is_resumed_after_the_last_event_and_repeats_nothing(self) -> None:
        def stream(*frames: str, **more: Any) -> Reply:
            length = {"Content-Length": "999"} if more.get("cut") else {}
            return Reply(200, {"Content-Type": "text/event-stream", **length}, "".join(frames), **more)

        one, two = event(1, "job-created"), event(2, "job-queued")
        fake = self.serve(
            stream("retry: 1500\n\n: hello\r\n\r\n", one, two, "id: 3\nevent: job-ru", cut=True),
            problem(503, "RFA_STORAGE_UNAVAILABLE", {"Retry-After": "5"}),
            stream(one, two, event(3, "job-running"), "event: job-progress\ndata: {}\n\n"), stream(event(4, "job-succeeded")), Reply(204),
        )
        seen = [(event.id, event.name) for event in fake.client(session="a test").stream("j")]
        self.assertEqual(seen, [
            ("1", "job-created"), ("2", "job-queued"), ("3", "job-running"), (None, "job-progress"), ("4", "job-succeeded"),
        ])
        self.assertEqual([sent.headers.get("Last-Event-ID") for sent in fake.got], [None, "2", "2", "3", "4"])
        self.assertEqual({sent.headers.get("ForgeRun-Session") for sent in fake.got}, {"a test"})
        self.assertTrue(fake.waits[0] >= 1.5 and fake.waits[1] >= 5, fake.waits)
        with self.assertRaises(ProblemError):
            next(self.serve(problem(401, "RFA_AUTH_INVALID_CREDENTIALS")).client().stream_all())

    def test_lists_are_read_to_their_end(self) -> None:
        fake = self.serve(
            ok({"data": [{"job_id": "1"}], "page": {"next_cursor": "c/1"}}), ok({"data": [], "page": {"next_cursor": "c2"}}),
            ok({"data": [{"job_id": "2"}], "page": {"next_cursor": None}}),
        )
        self.assertEqual([job["job_id"] for job in fake.client().jobs(state="FAILED", limit=1)], ["1", "2"])
        self.assertEqual(fake.got[1].path, "/v1/jobs?state=FAILED&limit=1&cursor=c%2F1")

    def test_arguments_that_would_name_something_else_are_refused(self) -> None:
        for job_id in ("", ".", ".."):
            with self.assertRaises(ValueError):
                Client("http://127.0.0.1:9/v1/").get(job_id)
        for url in ("ftp://x", "http://u:p@x", "http://x?y", "x"):
            with self.assertRaises(ValueError):
                Client(url)


if __name__ == "__main__":
    unittest.main()
