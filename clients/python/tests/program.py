"""A program that uses the library in typical ways, for the test bed to judge. It exits with 0 if everything worked.

    FORGERUN_URL=http://127.0.0.1:8080 FORGERUN_API_KEY=frk_... PYTHONPATH=src python3 -m tests.program
"""

from __future__ import annotations

import contextlib
import os
import sys
import uuid
from collections.abc import Iterator

from forgerun import Client, ForgeRunError
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


class Parts:
    """Runs the parts of the work. If the service permanently refuses a part, the other parts continue."""

    failed = False

    @contextlib.contextmanager
    def part(self, name: str) -> Iterator[None]:
        try:
            yield
        except (ForgeRunError, TimeoutError, AssertionError) as error:
            print(f"{name}: {error!r}", file=sys.stderr)
            self.failed = True


def main() -> None:
    client = Client(os.environ["FORGERUN_URL"], os.environ["FORGERUN_API_KEY"], timeout=10, on_retry=retrying)
    hook = Receiver()
    issued = client.create_webhook({"url": hook.url, "events": ["job.succeeded", "job.failed"]})
    hook.trust(issued, client if HAS_KEYS else None)
    run, work = str(uuid.uuid4()), Parts()
    ids: list[str] = []
    for n, kind in enumerate(KINDS):
        with work.part(f"order {n}"):
            ids.append(client.submit({"type": "EXECUTE", "work_kind": kind}, correlation_id=f"{run}-{n}")["job_id"])
            job = client.wait(ids[-1], timeout=PATIENCE)
            print(job["job_id"], kind, job["state"])
    with work.part("events and result"):
        names = [event.name for event in client.stream(ids[-1], timeout=PATIENCE, silence=20) if event.id]
        assert names == NAMES, names
        assert client.report(ids[-1])["outcome"] == "SUCCESS"
        assert len(client.result(ids[-1]).data) == 4096
    with work.part("batch"):
        batch_id = client.submit_batch(items(run))["batch_id"]
        assert client.wait_batch(batch_id, timeout=PATIENCE)["status"] == "COMPLETED"
        listed = [job["job_id"] for job in client.jobs(batch_id=batch_id, limit=2)]
        assert len(listed) == 3, listed
        ids += listed
    hook.ended(ids, timeout=60)
    hook.close()
    sys.exit(work.failed)


if __name__ == "__main__":
    main()
