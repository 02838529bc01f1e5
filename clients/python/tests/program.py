"""What the test bed judges: a program that does with the library what programs do. It ends with 0 if all went as it should.

    FORGERUN_URL=http://127.0.0.1:8080 FORGERUN_API_KEY=frk_... PYTHONPATH=src python3 -m tests.program
"""

from __future__ import annotations

import os
import sys
import uuid

from forgerun import Client
from forgerun.schemas import WorkKind

from .receiver import Receiver


def main() -> None:
    client = Client(
        os.environ["FORGERUN_URL"], os.environ["FORGERUN_API_KEY"], max_tries=20,
        on_retry=lambda error, wait: print(f"{error}: again in {wait:.1f} s", file=sys.stderr),
    )
    hook = Receiver(client, ["job.succeeded", "job.failed"])
    run = uuid.uuid4()
    kinds: list[WorkKind] = ["SUCCESS_FAST", "FAIL_IMMEDIATE", "SUCCESS_FAST", "SUCCESS_FAST"]
    ids = []
    for n, kind in enumerate(kinds):
        receipt = client.submit({"type": "EXECUTE", "work_kind": kind}, correlation_id=f"{run}-{n}")
        job = client.wait(receipt["job_id"], timeout=120)
        failure = job.get("failure")
        print(job["job_id"], kind, job["state"], failure.get("title") if failure else "")
        ids.append(job["job_id"])
    names = [event.name for event in client.stream(ids[-1], timeout=120, silence=20) if event.id]
    assert names == ["job-created", "job-queued", "job-assigned", "job-running", "job-succeeded"], names
    assert client.report(ids[-1])["outcome"] == "SUCCESS"
    assert len(client.result(ids[-1]).data) == 4096
    hook.ended(ids, timeout=60)
    hook.close()


if __name__ == "__main__":
    main()
