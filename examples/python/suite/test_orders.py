"""Tests of correct and incorrect clients. All test bodies pass; the plugin fails the tests of incorrect clients.

    FORGERUN_URL=http://127.0.0.1:8080 pytest --forgerun-profile none -n 4 examples/python/suite
    forgerun verdict --profile none -- pytest -n 4 examples/python/suite    (all tests pass, and the verdict names the mistakes)
"""

import json
import urllib.error
import urllib.request
import uuid

import pytest
from forgerun import Client


@pytest.mark.parametrize("order", range(6))
def test_right(forgerun_session, order):
    with Client(forgerun_session.url, forgerun_session.api_key) as client:
        job = client.run({"type": "EXECUTE", "work_kind": "SUCCESS_FAST"}, correlation_id=f"order-{uuid.uuid4()}")
        assert job["state"] == "SUCCEEDED"


@pytest.mark.parametrize("order", range(3))
def test_one_key_for_two_orders(forgerun_session, order):  # breaks same-body
    key = str(uuid.uuid4())
    submit(forgerun_session, key, "SUCCESS_FAST")
    with pytest.raises(urllib.error.HTTPError, match="409"):
        submit(forgerun_session, key, "FAIL_IMMEDIATE")


@pytest.mark.parametrize("order", range(3))
def test_key_in_the_url(forgerun_session, order):  # breaks no-key-in-url
    with pytest.raises(urllib.error.HTTPError, match="401"):
        urllib.request.urlopen(f"{forgerun_session.url}/v1/jobs?api_key={forgerun_session.api_key}", timeout=30)


def submit(session, key, kind):
    body = json.dumps({"type": "EXECUTE", "work_kind": kind}).encode()
    headers = {"Authorization": f"Bearer {session.api_key}", "Content-Type": "application/json", "Idempotency-Key": key}
    headers["X-Correlation-ID"] = str(uuid.uuid4())
    urllib.request.urlopen(urllib.request.Request(f"{session.url}/v1/jobs", body, headers), timeout=30).close()
