#!/usr/bin/env python3
"""A client of ForgeRun that does what a client should, with nothing but the standard library.

    FORGERUN_URL=http://127.0.0.1:8080 FORGERUN_API_KEY=frk_... python3 client.py

It submits a few jobs, waits until each has ended, and prints how. Answers that are lost, errors that pass and connections
that break are survived; docs/reference/testbed.md says how to bring them about.
"""

import http.client
import json
import os
import random
import sys
import time
import urllib.parse
import uuid

TRIES = 20
TIMEOUT = 20  # seconds for one answer
FINAL = {"SUCCEEDED", "FAILED", "CANCELED"}  # any other state, known or not, is not final


class Client:
    def __init__(self, url, key):
        self.base = urllib.parse.urlsplit(url)
        self.key = key
        self.connection = None

    def once(self, method, path, body, headers):
        """One try over the connection that is kept."""
        if self.connection is None:
            kind = http.client.HTTPSConnection if self.base.scheme == "https" else http.client.HTTPConnection
            self.connection = kind(self.base.netloc, timeout=TIMEOUT)
        headers = {"Authorization": "Bearer " + self.key, "Accept": "application/json, application/problem+json", **headers}
        if body is not None:
            headers["Content-Type"] = "application/json"
        self.connection.request(method, path, body, headers)
        answer = self.connection.getresponse()
        return answer.status, answer.headers, answer.read()

    def request(self, method, path, body=None, headers=None):
        """Repeats a request until it has an answer that counts. One that changes something carries an Idempotency-Key."""
        text = None if body is None else json.dumps(body)
        for n in range(TRIES):
            wait = min(10, 0.25 * 2**n) * random.uniform(0.5, 1)
            try:
                status, head, data = self.once(method, path, text, headers or {})
            except (OSError, http.client.HTTPException) as err:  # the answer is lost, the work may be done
                print(f"{method} {path}: {err or type(err).__name__}, again in {wait:.1f} s", file=sys.stderr)
                self.connection.close()
                self.connection = None
                time.sleep(wait)
                continue
            if status == 308:
                path = head["Location"]
                continue
            if status in (429, 502, 503, 504):
                wait = max(wait, float(head.get("Retry-After", 0)))
                print(f"{method} {path}: {status}, again in {wait:.1f} s", file=sys.stderr)
                time.sleep(wait)
                continue
            return status, head, data
        raise RuntimeError(f"{method} {path}: no answer after {TRIES} tries")

    def submit(self, job, correlation):
        """Submits a job once, however often the request is sent: the key and the body stay the same."""
        headers = {"Idempotency-Key": str(uuid.uuid4()), "X-Correlation-ID": correlation}
        status, _, data = self.request("POST", "/v1/jobs", job, headers)
        if status not in (200, 202):
            raise RuntimeError(f"the job was refused with {status}: {data.decode(errors='replace')}")
        return json.loads(data)["job_id"]

    def wait(self, job_id):
        """Polls a job until it is final: as often as the service advises, and with the tag of what is known."""
        tag, path = None, "/v1/jobs/" + job_id
        while True:
            status, head, data = self.request("GET", path, headers={"If-None-Match": tag} if tag else {})
            if status == 200:
                job = json.loads(data)  # members that are not known are left alone
                if job.get("state") in FINAL:
                    return job
                tag = head.get("ETag")
            elif status != 304:
                raise RuntimeError(f"the job cannot be read: {status} {data.decode(errors='replace')}")
            time.sleep(float(head.get("Retry-After", 1)))


def main():
    client = Client(os.environ["FORGERUN_URL"], os.environ["FORGERUN_API_KEY"])
    run = uuid.uuid4()
    for n, kind in enumerate(["SUCCESS_FAST", "FAIL_IMMEDIATE", "SUCCESS_FAST", "SUCCESS_FAST"]):
        job_id = client.submit({"type": "EXECUTE", "work_kind": kind}, f"{run}-{n}")
        job = client.wait(job_id)
        failure = job.get("failure") or {}  # `retryable: false` there: it is not tried again
        print(job_id, kind, job["state"], failure.get("title", ""))


if __name__ == "__main__":
    main()
