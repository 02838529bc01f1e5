"""Like program.py, but with an event loop: it submits jobs and waits for them concurrently.

    FORGERUN_URL=... FORGERUN_API_KEY=... PYTHONPATH=src python3 -m tests.program_async httpx|threads
"""

from __future__ import annotations

import asyncio
import os
import sys
import uuid

from forgerun import AsyncClient
from forgerun.schemas import WorkKind

from .program import KINDS, NAMES, PATIENCE, Parts, items, retrying
from .receiver import Receiver


async def main(use_httpx: bool) -> None:
    client = AsyncClient(
        os.environ["FORGERUN_URL"], os.environ["FORGERUN_API_KEY"], timeout=10, on_retry=retrying, use_httpx=use_httpx
    )
    hook = Receiver()
    hook.trust(await client.create_webhook({"url": hook.url, "events": ["job.succeeded", "job.failed"]}))
    run, work = str(uuid.uuid4()), Parts()
    ids: list[str] = []

    async def one(n: int, kind: WorkKind) -> None:
        with work.part(f"order {n}"):
            receipt = await client.submit({"type": "EXECUTE", "work_kind": kind}, correlation_id=f"{run}-{n}")
            ids.append(receipt["job_id"])
            job = await client.wait(receipt["job_id"], timeout=PATIENCE)
            print(job["job_id"], kind, job["state"])
            if n == len(KINDS) - 1:
                await outcome(receipt["job_id"])

    async def outcome(job_id: str) -> None:
        names = [event.name async for event in client.stream(job_id, timeout=PATIENCE, silence=20) if event.id]
        assert names == NAMES, names
        assert (await client.report(job_id))["outcome"] == "SUCCESS"
        assert len((await client.result(job_id)).data) == 4096

    await asyncio.gather(*(one(n, kind) for n, kind in enumerate(KINDS)))
    with work.part("batch"):
        batch_id = (await client.submit_batch(items(run)))["batch_id"]
        assert (await client.wait_batch(batch_id, timeout=PATIENCE))["status"] == "COMPLETED"
        listed = [job["job_id"] async for job in client.jobs(batch_id=batch_id, limit=2)]
        assert len(listed) == 3, listed
        ids.extend(listed)
    await asyncio.to_thread(hook.ended, ids, timeout=60)
    hook.close()
    await client.aclose()
    sys.exit(work.failed)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] == "httpx"))
