"""Judges each test that uses forgerun_url or forgerun_session in its own session, and fails it if its client broke rules.

Each process of pytest, such as a worker of pytest-xdist, starts its own proxy in front of --forgerun-target, or creates its own client of
the ForgeRun at FORGERUN_URL. Without both, it starts a ForgeRun. Under "forgerun verdict", the verdict judges instead, and the plugin
only adds the test's name to requests.
"""

from __future__ import annotations

import http.client
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.parse
import urllib.request
import uuid
from pathlib import Path
from typing import Any, Iterator

import pytest

OPTIONS = {
    "target": "address of your server; a proxy in front of it judges the tests",
    "api": "description of its API: a name that `forgerun verdict --help` lists, or a file",
    "profile": "profile of faults for each test: default, flaky-network, ..., or none",
    "seed": "seed of the random faults",
    "strict": "1: breaking a rule of level SHOULD also fails a test",
    "url_env": "variables that also get the address, separated by commas",
}


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("forgerun", "judge HTTP clients under faults (forgerun)")
    for name, meaning in OPTIONS.items():
        group.addoption(f"--forgerun-{name.replace('_', '-')}", metavar="TEXT", help=meaning)
        parser.addini(f"forgerun_{name}", meaning)


def setting(config: pytest.Config, name: str, default: str = "") -> str:
    return config.getoption(f"forgerun_{name}") or config.getini(f"forgerun_{name}") or os.environ.get(f"FORGERUN_{name.upper()}") or default


class Session:
    """The session of a test: url, api_key ("" for another API), session_id and, after its end, the broken rules as text."""

    def __init__(self, bed: Bed, label: str) -> None:
        self.url, self.api_key, self.label = bed.url, bed.key, label
        self.session_id, self.broken = "", ""


class Bed:
    """The proxy or the ForgeRun client that judges the tests of this process."""

    url, key, sessions = "", "", ""

    def __init__(self, config: pytest.Config) -> None:
        self.program: subprocess.Popen[str] | None = None
        self.data = ""
        self.profile, self.seed = setting(config, "profile", "default"), int(setting(config, "seed", "1"))
        self.failing = ("fail", "warn") if setting(config, "strict") else ("fail",)
        self.judges = "FORGERUN_SESSION" not in os.environ
        if not self.judges:
            self.url, self.key = os.environ["FORGERUN_URL"], os.environ.get("FORGERUN_API_KEY", "")
            return
        if target := setting(config, "target"):
            self.start_proxy(target, setting(config, "api"))
        else:
            self.url = os.environ.get("FORGERUN_URL") or self.start_service()
            client = self.ask(f"{self.url}/v1/clients", {})["client_id"]
            self.key = self.ask(f"{self.url}/v1/clients/{client}/keys", {})["api_key"]
            self.sessions = f"{self.url}/v1/testbed/sessions"
        for name in filter(None, setting(config, "url_env").split(",")):
            os.environ[name] = self.url

    def start_proxy(self, target: str, api: str) -> None:
        command = [program(), "proxy", "--target", target, "--listen", "127.0.0.1:0"] + (["--api", api] if api else [])
        self.program = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        lines = [self.program.stdout.readline().split() for _ in range(2)]  # type: ignore[union-attr]
        if not all(lines):
            pytest.exit(f"{' '.join(command)} ended with {self.program.wait()}", 2)
        self.url, self.sessions = lines[0][0], lines[1][-1]

    def start_service(self) -> str:
        self.data = tempfile.mkdtemp(prefix="forgerun-")
        places = {"FORGERUN_HTTP_ADDR": "127.0.0.1:0", "FORGERUN_ADMIN_ADDR": "127.0.0.1:0", "FORGERUN_DATA_DIR": self.data}
        environment = {"FORGERUN_TIME_SCALE": "0.02", **os.environ, **places}
        self.program = subprocess.Popen([program(), "dev"], env=environment, stdout=subprocess.DEVNULL, text=True)
        ready = Path(self.data, "dev.json")  # dev writes this file when it is ready
        while not ready.exists():
            if self.program.poll() is not None:
                pytest.exit(f"forgerun dev ended with {self.program.returncode}", 2)
            time.sleep(0.05)
        return json.loads(ready.read_text())["url"]

    def ask(self, url: str, body: dict[str, Any] | None = None) -> Any:
        headers = {"Content-Type": "application/json", "Idempotency-Key": str(uuid.uuid4())}
        if self.key:
            headers["Authorization"] = f"Bearer {self.key}"
        data = None if body is None else json.dumps(body).encode()
        with NO_PROXY.open(urllib.request.Request(url, data, headers), timeout=60) as answer:
            return json.load(answer)

    def begin(self, session: Session) -> None:
        if self.judges:
            faults = {} if self.profile == "none" else {"profile": self.profile}
            session.session_id = self.ask(self.sessions, {"seed": self.seed, **faults})["session_id"]

    def end(self, session: Session) -> None:
        if self.judges:
            self.ask(f"{self.sessions}/{session.session_id}/end", {})
            results = self.ask(f"{self.sessions}/{session.session_id}/verdict")["results"]
            session.broken = "\n".join(in_words(r) for r in results if r["status"] in self.failing)

    def close(self) -> None:
        if self.program:
            self.program.terminate()
            self.program.wait()
        if self.data:
            shutil.rmtree(self.data, ignore_errors=True)


NO_PROXY = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def program() -> str:
    beside = Path(sys.executable).with_name("forgerun.exe" if os.name == "nt" else "forgerun")
    found = os.environ.get("FORGERUN_BINARY") or (str(beside) if beside.exists() else shutil.which("forgerun"))
    if not found:
        pytest.exit("There is no program forgerun: install the package's wheel for this platform, or set FORGERUN_BINARY to its path.", 2)
    return found


def in_words(broken: dict[str, Any]) -> str:
    """Describes the first evidence of a broken rule, with its requests, and quotes the standard."""
    first = broken["evidence"][0]
    lines = [f"{broken['rule']}: {broken['title']}", f"  {first['found']} {first['expected']}"]
    for moment in filter(None, (first.get("before"), first.get("request"))):
        fault = f"; fault: {moment['fault']}" if moment.get("fault") else ""
        lines.append(f"  {moment['at'][11:23]} {moment['request']}, response: {moment['answer']}{fault}")
    return "\n".join([*lines, f"  \"{broken['quote']}\" {broken['see']}"])


@pytest.fixture(scope="session")
def forgerun_bed(pytestconfig: pytest.Config) -> Iterator[Bed]:
    bed = Bed(pytestconfig)
    yield bed
    bed.close()


@pytest.fixture
def forgerun_session(forgerun_bed: Bed, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Session:
    """The session that judges this test."""
    session = Session(forgerun_bed, request.node.nodeid.encode("ascii", "replace").decode()[-200:].strip())
    monkeypatch.setenv("FORGERUN_URL", session.url)
    if session.api_key:
        monkeypatch.setenv("FORGERUN_API_KEY", session.api_key)
    if forgerun_bed.judges:
        forgerun_bed.begin(session)
    else:
        carry_label(session, monkeypatch)
    return session


@pytest.fixture
def forgerun_url(forgerun_session: Session) -> str:
    """The address for this test's client."""
    return forgerun_session.url


def carry_label(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    """Adds the label to requests of http.client, which urllib, requests and forgerun use. With httpx or aiohttp, set it yourself."""
    service = urllib.parse.urlsplit(session.url).netloc
    endheaders = http.client.HTTPConnection.endheaders

    def with_label(connection: http.client.HTTPConnection, *args: Any, **kwargs: Any) -> None:
        if f"{connection.host}:{connection.port}" == service:
            connection.putheader("ForgeRun-Session", session.label)
        endheaders(connection, *args, **kwargs)

    monkeypatch.setattr(http.client.HTTPConnection, "endheaders", with_label)


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    """Ends the session after the test's body. Broken rules fail the test; if it has already failed, they are added to its report."""
    outcome = yield
    given = getattr(item, "funcargs", {})
    if call.when != "call" or "forgerun_session" not in given:
        return
    session, report = given["forgerun_session"], outcome.get_result()  # type: ignore[attr-defined]
    try:
        given["forgerun_bed"].end(session)
    except OSError as error:  # an error here would end pytest without running the other tests
        session.broken = f"The session could not be ended: {error}"
    if session.broken and report.passed:
        report.outcome, report.longrepr = "failed", f"The client broke rules of the standards.\n{session.broken}"
    elif session.broken:
        report.sections.append(("forgerun", session.broken))
