"""A webhook receiver. It accepts correctly signed deliveries, and responds to repeated ones as to the first."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from forgerun.schemas import IssuedWebhook
from forgerun.webhooks import KeyReader, Keys, SignatureError, Verifier, WebhookMessage


class Receiver:
    def __init__(self) -> None:
        self.messages: dict[str, WebhookMessage] = {}
        self._changed = threading.Condition()
        self._verifier: Verifier
        self._registered = threading.Event()  # the first delivery may come before the response to the registration
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                receiver._registered.wait()
                try:
                    receiver._take(receiver._verifier.verify(self.command, dict(self.headers.items()), body))
                    self.send_response(204)
                except SignatureError:
                    self.send_response(401)
                    self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        self.url = f"http://127.0.0.1:{self._server.server_port}/forgerun"

    def trust(self, issued: IssuedWebhook, keys: KeyReader | None = None) -> None:
        """Begins to accept deliveries that are signed with the webhook's secret and, if keys is given, with a published key."""
        secret = issued["secret"]
        self._verifier = Verifier(secret=secret, keys=Keys(keys), url=self.url) if keys else Verifier(secret=secret)
        self._registered.set()

    def _take(self, message: WebhookMessage) -> None:
        with self._changed:
            self.messages[message.webhook_id] = message
            self._changed.notify_all()

    def ended(self, job_ids: Iterable[str], timeout: float) -> None:
        """Waits until messages have reported the end of each job."""

        def told() -> bool:
            known = {message.job_id for message in self.messages.values() if message.name in ("job.succeeded", "job.failed")}
            return known.issuperset(job_ids)

        with self._changed:
            if not self._changed.wait_for(told, timeout):
                raise TimeoutError("no delivery has told of some jobs")

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
