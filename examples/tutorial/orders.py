import json
import os
import urllib.error
import urllib.request

def call(method, path, body=None, **headers):
    headers |= {"Authorization": "Bearer " + os.environ["FORGERUN_API_KEY"], "Content-Type": "application/json"}
    data = json.dumps(body).encode() if body else None
    request = urllib.request.Request(os.environ["FORGERUN_URL"] + path, data, headers, method=method)
    try:
        with urllib.request.urlopen(request) as answer:
            return answer.status, answer.headers, json.load(answer)
    except urllib.error.HTTPError as err:
        return err.code, err.headers, None

for order in range(3):
    status, _, job = call("POST", "/v1/jobs", {"type": "EXECUTE", "work_kind": "SUCCESS_FAST"})
    while status != 202:
        status, _, job = call("POST", "/v1/jobs", {"type": "EXECUTE", "work_kind": "SUCCESS_FAST"})
    while True:
        status, head, now = call("GET", "/v1/jobs/" + job["job_id"])
        if status == 200 and now["state"] == "SUCCEEDED":
            break
    print("order", order, now["state"])
