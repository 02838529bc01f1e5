import json
import urllib.error
import urllib.request
import uuid

import pytest


def submit(url, key, body):
    request = urllib.request.Request(f"{url}/orders", body, {"Idempotency-Key": key})
    with urllib.request.urlopen(request, timeout=30) as response:
        return response.headers["Location"]


@pytest.mark.parametrize("number", [1, 2, 3], ids=["right-1", "right-2", "right-3"])
def test(forgerun_url, number):
    order = submit(forgerun_url, str(uuid.uuid4()), b"tea")
    with urllib.request.urlopen(forgerun_url + order, timeout=30) as response:
        assert json.load(response)["status"] == "succeeded"


def test_one_key_for_two_orders(forgerun_url):
    submit(forgerun_url, "17", b"tea")
    submit(forgerun_url, "17", b"coffee")


def test_no_pause_after_429(forgerun_url):
    order = submit(forgerun_url, str(uuid.uuid4()), b"tea")
    for _ in range(3):
        with pytest.raises(urllib.error.HTTPError, match="429"):
            urllib.request.urlopen(f"{forgerun_url}{order}?busy=1", timeout=30)
