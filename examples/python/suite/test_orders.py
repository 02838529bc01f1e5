"""Tests of right and of wrong clients. All pass; which clients are wrong says the verdict of each.

    forgerun verdict --junit verdict.xml -- pytest -n 4 examples/python/suite
"""

import json
import os
import urllib.error
import urllib.request
import uuid

import pytest
from forgerun import Client

URL, KEY = os.environ["FORGERUN_URL"], os.environ["FORGERUN_API_KEY"]


@pytest.mark.parametrize("order", range(6))
def test_right(order):
    with Client(URL, KEY) as client:
        job = client.run({"type": "EXECUTE", "work_kind": "SUCCESS_FAST"}, correlation_id=f"order-{uuid.uuid4()}")
        assert job["state"] == "SUCCEEDED"


@pytest.mark.parametrize("order", range(3))
def test_one_key_for_two_orders(order):  # breaks same-body
    key = str(uuid.uuid4())
    submit(key, "SUCCESS_FAST")
    with pytest.raises(urllib.error.HTTPError, match="409"):
        submit(key, "FAIL_IMMEDIATE")


@pytest.mark.parametrize("order", range(3))
def test_key_in_the_url(order):  # breaks no-key-in-url
    with pytest.raises(urllib.error.HTTPError, match="401"):
        urllib.request.urlopen(f"{URL}/v1/jobs?api_key={KEY}", timeout=30)


def submit(key, kind):
    body = json.dumps({"type": "EXECUTE", "work_kind": kind}).encode()
    headers = {"Authorization": f"Bearer {KEY}", "Content-Type": "application/json", "Idempotency-Key": key}
    headers["X-Correlation-ID"] = str(uuid.uuid4())
    urllib.request.urlopen(urllib.request.Request(f"{URL}/v1/jobs", body, headers), timeout=30).close()
