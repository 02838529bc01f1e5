"""What the test bed judges: a program that does with the library what programs do. It ends with 0 if all went as it should.

    FORGERUN_URL=http://127.0.0.1:8080 FORGERUN_API_KEY=frk_... PYTHONPATH=src python3 -m tests.program
"""

from __future__ import annotations

import os
import sys
import uuid

from forgerun import Client
from forgerun.schemas import BatchItemRequest, WorkKind

from .receiver import Receiver
from .test_webhooks import HAS_KEYS

KINDS: list[WorkKind] = ["SUCCESS_FAST", "FAIL_IMMEDIATE", "SUCCESS_FAST", "SUCCESS_FAST"]
NAMES = ["job-created", "job-queued", "job-assigned", "job-running", "job-succeeded"]
PATIENCE = 120


def retrying(error: Exception, wait: float) -> None:
    print(f"{error}: again in {wait:.1f} s", file=sys.stderr)


def items(run: str) -> list[BatchItemRequest]:
    return [{"type": "EXECUTE", "work_kind": "SUCCESS_FAST", "correlation_id": f"{run}-item-{n}"} for n in range(3)]


def main() -> None:
    client = Client(os.environ["FORGERUN_URL"], os.environ["FORGERUN_API_KEY"], max_tries=20, on_retry=retrying)
    hook = Receiver()
    issued = client.create_webhook({"url": hook.url, "events": ["job.succeeded", "job.failed"]})
    hook.trust(issued, client if HAS_KEYS else None)
    run = str(uuid.uuid4())
    ids = []
    for n, kind in enumerate(KINDS):
        receipt = client.submit({"type": "EXECUTE", "work_kind": kind}, correlation_id=f"{run}-{n}")
        job = client.wait(receipt["job_id"], timeout=PATIENCE)
        print(job["job_id"], kind, job["state"])
        ids.append(job["job_id"])
    names = [event.name for event in client.stream(ids[-1], timeout=PATIENCE, silence=20) if event.id]
    assert names == NAMES, names
    assert client.report(ids[-1])["outcome"] == "SUCCESS"
    assert len(client.result(ids[-1]).data) == 4096
    batch_id = client.submit_batch(items(run))["batch_id"]
    assert client.wait_batch(batch_id, timeout=PATIENCE)["status"] == "COMPLETED"
    listed = [job["job_id"] for job in client.jobs(batch_id=batch_id, limit=2)]
    assert len(listed) == 3, listed
    hook.ended(ids + listed, timeout=60)
    hook.close()


if __name__ == "__main__":
    main()
