import http.client
import json
import os
import time
import urllib.parse
import uuid

service = urllib.parse.urlsplit(os.environ["FORGERUN_URL"])
connection = http.client.HTTPConnection(service.netloc, timeout=20)

def call(method, path, body=None, **headers):
    headers |= {"Authorization": "Bearer " + os.environ["FORGERUN_API_KEY"], "Content-Type": "application/json"}
    while True:
        connection.request(method, path, json.dumps(body) if body else None, headers)
        answer = connection.getresponse()
        text = answer.read()
        if answer.status not in (429, 503):
            return answer.status, answer.headers, json.loads(text) if text else None
        time.sleep(float(answer.headers.get("Retry-After", 1)))

for order in range(3):
    names = {"Idempotency-Key": str(uuid.uuid4()), "X-Correlation-ID": f"order-{uuid.uuid4()}"}
    _, _, job = call("POST", "/v1/jobs", {"type": "EXECUTE", "work_kind": "SUCCESS_FAST"}, **names)
    known = {}
    while True:
        status, head, now = call("GET", "/v1/jobs/" + job["job_id"], **known)
        if status == 200 and now["state"] == "SUCCEEDED":
            break
        if status == 200:
            known = {"If-None-Match": head["ETag"]}
        time.sleep(float(head.get("Retry-After", 1)))
    print("order", order, now["state"])
