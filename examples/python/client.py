#!/usr/bin/env python3
"""A client of ForgeRun that follows all rules and uses only the standard library.

    FORGERUN_URL=http://127.0.0.1:8080 FORGERUN_API_KEY=frk_... python3 client.py

It submits a few jobs, waits for their ends, and prints the outcomes. It survives lost responses, temporary errors and broken
connections. docs/reference/testbed.md explains how to cause them.
"""

import email.utils
import http.client
import json
import os
import random
import sys
import time
import urllib.parse
import uuid

TRIES = 10
TIMEOUT = 10  # seconds
REDIRECTS = 10
FINAL = {"SUCCEEDED", "FAILED", "CANCELED"}  # any other state, known or not, is not final


class GaveUp(Exception):
    """The request failed for good. The message says why."""


def retry_after(head):
    """Returns the longest wait in Retry-After, in seconds: each value is a number or a date. None if there is none."""
    told = []
    for text in head.get_all("Retry-After") or []:
        if text.isdecimal():
            told.append(float(text))
        elif at := email.utils.parsedate_tz(text):
            told.append(max(0.0, email.utils.mktime_tz(at) - time.time()))
    return max(told, default=None)


class Client:
    def __init__(self, url, key):
        self.url = url
        self.key = key
        self.connections = {}  # by scheme, host and port

    def once(self, method, url, body, headers):
        """Sends a request once over the open connection. The key is not sent to the target of a redirect to another host."""
        at = urllib.parse.urlsplit(url)
        if (at.scheme, at.netloc) not in self.connections:
            kind = http.client.HTTPSConnection if at.scheme == "https" else http.client.HTTPConnection
            self.connections[at.scheme, at.netloc] = kind(at.netloc, timeout=TIMEOUT)
        connection = self.connections[at.scheme, at.netloc]
        headers = {"Accept": "application/json, application/problem+json", **headers}
        if at.hostname == urllib.parse.urlsplit(self.url).hostname:
            headers["Authorization"] = "Bearer " + self.key
        if body is not None:
            headers["Content-Type"] = "application/json"
        connection.request(method, at.path + ("?" + at.query if at.query else ""), body, headers)
        answer = connection.getresponse()
        return answer.status, answer.headers, answer.read()

    def follow(self, method, url, body, headers):
        """Sends a request once and follows redirects: 307 and 308 with the same method and body, 303 with GET."""
        for _ in range(REDIRECTS):
            status, head, data = self.once(method, url, body, headers)
            if status not in (303, 307, 308):
                return status, head, data
            url = urllib.parse.urljoin(url, head["Location"])
            if status == 303:
                method, body = "GET", None
        raise GaveUp(f"{REDIRECTS} redirects in a row")

    def request(self, method, path, body=None, headers=None):
        """Repeats a request until it gets a conclusive response. Requests that change something need an Idempotency-Key."""
        text = None if body is None else json.dumps(body)
        refused = False
        for n in range(TRIES):
            wait = min(2, 0.25 * 2**n) * random.uniform(0.5, 1)
            try:
                status, head, data = self.follow(method, self.url + path, text, headers or {})
            except (OSError, http.client.HTTPException, GaveUp) as err:  # the response is lost; the request may have succeeded
                what = err or type(err).__name__
                while self.connections:
                    self.connections.popitem()[1].close()
            else:
                what, told = status, retry_after(head)
                passes = status in (404, 429, 500, 502, 503, 504) or status == 403 and told is not None
                if not passes and (status != 401 or refused):
                    return status, head, data
                refused = refused or status == 401
                wait = max(wait, told or 0)
            if n + 1 < TRIES:
                print(f"{method} {path}: {what}, again in {wait:.1f} s", file=sys.stderr)
                time.sleep(wait)
        raise GaveUp(f"{method} {path}: {what} after {TRIES} tries")

    def submit(self, job, correlation):
        """Submits a job. Repeated requests create it only once: they have the same key and body."""
        headers = {"Idempotency-Key": str(uuid.uuid4()), "X-Correlation-ID": correlation}
        status, _, data = self.request("POST", "/v1/jobs", job, headers)
        if status not in (200, 202):
            raise GaveUp(f"the job was refused with {status}: {data.decode(errors='replace')}")
        return json.loads(data)["job_id"]

    def wait(self, job_id):
        """Polls a job until it is final, at the intervals in Retry-After and with the ETag of the last response."""
        tag, path = None, "/v1/jobs/" + job_id
        while True:
            status, head, data = self.request("GET", path, headers={"If-None-Match": tag} if tag else {})
            if status == 200:
                job = json.loads(data)  # ignore unknown members
                if job.get("state") in FINAL:
                    return job
                tag = head.get("ETag")
            elif status != 304:
                raise GaveUp(f"the job cannot be read: {status} {data.decode(errors='replace')}")
            told = retry_after(head)
            time.sleep(1 if told is None else told)


def main():
    client = Client(os.environ["FORGERUN_URL"], os.environ["FORGERUN_API_KEY"])
    run, gave_up = uuid.uuid4(), False
    for n, kind in enumerate(["SUCCESS_FAST", "FAIL_IMMEDIATE", "SUCCESS_FAST", "SUCCESS_FAST"]):
        try:
            job_id = client.submit({"type": "EXECUTE", "work_kind": kind}, f"{run}-{n}")
            job = client.wait(job_id)
        except GaveUp as err:  # the other orders go on
            print(f"order {n}: {err}", file=sys.stderr)
            gave_up = True
            continue
        failure = job.get("failure") or {}  # do not retry with `retryable: false`
        print(job_id, kind, job["state"], failure.get("title", ""))
    sys.exit(gave_up)


if __name__ == "__main__":
    main()
