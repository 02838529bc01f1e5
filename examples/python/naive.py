#!/usr/bin/env python3
"""Common mistakes; client.py avoids them. Under the profile overloaded, the verdict names each:

retry-after, conditional-requests   it polls in a tight loop
backoff                             it tries again at once
idempotency-key                     each try has its own key, so a lost answer leads to two jobs
connection-reuse                    each request opens its own connection
stop-at-end                         it keeps polling jobs that have ended
no-key-in-url                       its API key is also in the URL
"""

import json
import os
import time
import urllib.request
import uuid


def call(method, path, body=None, headers=None):
    request = urllib.request.Request(os.environ["FORGERUN_URL"] + path, method=method, data=body and json.dumps(body).encode())
    request.add_header("Authorization", "Bearer " + os.environ["FORGERUN_API_KEY"])
    request.add_header("Content-Type", "application/json")
    for name, value in (headers or {}).items():
        request.add_header(name, value)
    with urllib.request.urlopen(request) as answer:
        return json.load(answer)


def insist(*request):
    while True:
        try:
            return request[0]()
        except Exception as err:
            print("again:", err)


def main():
    for n in range(3):
        job = insist(lambda n=n: call("POST", "/v1/jobs", {"type": "EXECUTE", "work_kind": "SUCCESS_FAST"},
                                      {"Idempotency-Key": str(uuid.uuid4()), "X-Correlation-ID": f"order-{n}"}))
        path = "/v1/jobs/" + job["job_id"]
        while insist(lambda: call("GET", path))["state"] not in ("SUCCEEDED", "FAILED"):
            pass
        for _ in range(5):
            print(insist(lambda: call("GET", path))["state"])
            time.sleep(0.1)
    call("GET", "/v1/jobs?limit=1&key=" + os.environ["FORGERUN_API_KEY"])


if __name__ == "__main__":
    main()
