"""A client of ForgeRun that is correct except for the mistake that MISTAKE names. No mistake appears after a single fault.

It submits a job and polls until it has ended. With the argument "result", it also reads the result.
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

PLANTED = os.environ.get("MISTAKE")
TRIES = 8
TIMEOUT = 5  # seconds
PASSES = {404, 429, 500, 502, 503, 504}
FINAL = {"SUCCEEDED", "FAILED", "CANCELED"}


class GaveUp(Exception):
    pass


def retry_after(head):
    """Returns the wait in Retry-After in seconds, or None if there is none."""
    text = head.get("Retry-After", "")
    if text.isdecimal():
        return int(text)
    at = email.utils.parsedate_tz(text)
    return at and max(0, email.utils.mktime_tz(at) - time.time())


class Client:
    def __init__(self, url, key):
        self.key = key
        self.connection = http.client.HTTPConnection(urllib.parse.urlsplit(url).netloc, timeout=TIMEOUT)
        self.waited = False  # whether it has waited for a Retry-After

    def once(self, method, path, body, headers):
        """Sends a request once. It follows redirects with the same method and body, and 303 with GET."""
        for _ in range(10):
            self.connection.request(method, path, body, headers)
            response = self.connection.getresponse()
            data = response.read()
            if response.status not in (303, 307, 308):
                return response.status, response.headers, data
            path = urllib.parse.urlsplit(response.headers["Location"]).path
            if response.status == 303:
                method, body = "GET", None
        raise GaveUp("ten redirects in a row")

    def request(self, method, path, body=None, **more):
        headers = {"Authorization": "Bearer " + self.key, "Accept": "application/json, application/problem+json", **more}
        if body is not None:
            body, headers["Content-Type"] = json.dumps(body), "application/json"
        refused, half = False, b""
        for n in range(TRIES):
            wait = None
            try:
                status, head, data = self.once(method, path, body, headers)
            except (OSError, http.client.HTTPException) as err:
                if PLANTED == "caught-once" and n > 0:
                    raise
                if PLANTED == "half-result" and path.endswith("/result") and half and getattr(err, "partial", b""):
                    return 200, {}, half
                failure, half = repr(err), getattr(err, "partial", b"")
                self.connection.close()
            else:
                failure, wait = status, retry_after(head)
                if status not in PASSES and not (status == 403 and wait is not None) and (status != 401 or refused):
                    return status, head, data
                refused = refused or status == 401
                if PLANTED == "new-key-after-401" and status == 401 and n > 0 and method == "POST":
                    headers["Idempotency-Key"] = str(uuid.uuid4())
            if PLANTED == "fresh-key" and n > 0 and method == "POST":
                headers["Idempotency-Key"] = str(uuid.uuid4())
            if PLANTED == "waits-once" and wait:
                wait, self.waited = 0 if self.waited else wait, True
            time.sleep(max(0.2 * 2**n * random.uniform(1, 1.5), wait or 0))
        raise GaveUp(f"{method} {path}: {failure} after {TRIES} tries")

    def submit(self, job):
        headers = {"Idempotency-Key": str(uuid.uuid4()), "X-Correlation-ID": str(uuid.uuid4())}
        status, _, data = self.request("POST", "/v1/jobs", job, **headers)
        if status not in (200, 202):
            raise GaveUp(f"the job was refused with {status}")
        return json.loads(data)["job_id"]

    def wait(self, path):
        """Polls the job until it has ended."""
        tag = None
        while True:
            status, head, data = self.request("GET", path, **({"If-None-Match": tag} if tag else {}))
            if status == 200:
                job = json.loads(data)
                if job["state"] in FINAL:
                    return job
                tag = head.get("ETag")
            elif status != 304:
                raise GaveUp(f"the job cannot be read: {status}")
            wait = retry_after(head)
            time.sleep(1 if wait is None else wait)


def main():
    client = Client(os.environ["FORGERUN_URL"], os.environ["FORGERUN_API_KEY"])
    path = "/v1/jobs/" + client.submit({"type": "EXECUTE", "work_kind": "SUCCESS_FAST"})
    print(client.wait(path)["state"])
    if "result" in sys.argv:
        status, _, data = client.request("GET", path + "/result")
        if status != 200:
            raise GaveUp(f"the result cannot be read: {status}")
        print(len(json.loads(data)), "members")


if __name__ == "__main__":
    try:
        main()
    except GaveUp as err:
        sys.exit(str(err))
