"""A fake service that sends its replies in order, and a client of it that does not really wait."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Literal

from forgerun import Client


@dataclass
class Reply:
    """A response of the fake service."""

    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    body: str = ""
    cut: bool = False  # closes the connection after this part of the body
    hangs: Literal["", "before", "after"] = ""  # waits before or after the response until the client disconnects
    together: int = 0  # the response waits until this many requests have arrived


def ok(value: Any, headers: Mapping[str, str] | None = None, status: int = 200) -> Reply:
    return Reply(status, headers or {}, json.dumps(value))


def problem(status: int, code: str, headers: Mapping[str, str] | None = None, **more: Any) -> Reply:
    document = {"type": "https://x/problems/y", "title": "T", "detail": "D", "status": 999, "code": code, **more}
    return Reply(status, {"Content-Type": "application/problem+json", "X-Request-Id": "r1", **(headers or {})}, json.dumps(document))


def event(n: int, name: str) -> str:
    return f'id: {n}\nevent: {name}\ndata: {{"n":{n}}}\n\n'


@dataclass
class Sent:
    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes


class Fake:
    """Sends its replies in order, and repeats the last one."""

    def __init__(self, *replies: Reply) -> None:
        self.got: list[Sent] = []
        self.waits: list[float] = []
        self.connections: set[Any] = set()
        self.asked = threading.Event()  # set when a request gets a reply that hangs
        self.left = threading.Event()  # set when the client of such a request has disconnected
        barriers = {reply.together: threading.Barrier(reply.together) for reply in replies if reply.together}
        fake = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def answer(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                fake.got.append(Sent(self.command, self.path, dict(self.headers.items()), body))
                fake.connections.add(self.client_address)
                reply = replies[min(len(fake.got), len(replies)) - 1]
                self.close_connection = reply.cut
                if reply.together:
                    barriers[reply.together].wait()
                if reply.hangs == "before":
                    return self.hang()
                if reply.cut and not reply.body:
                    return
                self.send_response(reply.status)
                headers = {"Content-Type": "application/json", "Content-Length": str(len(reply.body.encode())), **reply.headers}
                if reply.status in (204, 304):
                    del headers["Content-Length"]
                for name, value in headers.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(reply.body.encode())
                if reply.hangs == "after":
                    self.hang()

            def hang(self) -> None:
                fake.asked.set()
                with contextlib.suppress(ConnectionError):
                    self.connection.recv(1)
                fake.left.set()
                self.close_connection = True

            do_GET = do_POST = do_DELETE = answer

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._clients: list[Client] = []

    def client(self, **options: Any) -> Client:
        client = Client(self.url, "frk_id_secret", sleep=self.waits.append, **options)
        self._clients.append(client)
        return client

    def close(self) -> None:
        for client in self._clients:
            client.close()
        self._server.shutdown()
        self._server.server_close()
