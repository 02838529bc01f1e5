// Tests against the real service at FORGERUN_URL, with FORGERUN_API_KEY. Without these variables, the tests are skipped.
import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import test from "node:test";

import { ForgeRun, ProblemError } from "../src/index.js";
import { receive } from "./receiver.js";

const { FORGERUN_URL: url, FORGERUN_API_KEY: apiKey } = process.env;
const signal = AbortSignal.timeout(120_000);
const options = { skip: url === undefined ? "FORGERUN_URL is not set" : false, concurrency: true };
const execute = { type: "EXECUTE", work_kind: "SUCCESS_FAST" } as const;

async function all<T>(list: AsyncIterable<T>): Promise<T[]> {
  const items: T[] = [];
  for await (const item of list) items.push(item);
  return items;
}

test("a real service", options, async (t) => {
  const forgerun = new ForgeRun({ url: url!, apiKey: apiKey! });

  await Promise.all([
    t.test("a job from its submission to its removal", async () => {
      const idempotencyKey = randomUUID();
      const { job_id: id } = await forgerun.submit(execute, { idempotencyKey, correlationId: "order-1", signal });
      assert.equal((await forgerun.submit(execute, { idempotencyKey })).job_id, id, "one key, one job");
      const another = forgerun.submit({ ...execute, auto_retry: true }, { idempotencyKey });
      await assert.rejects(another, { code: "RFA_EXEC_IDEMPOTENCY_CONFLICT" });
      const watched = all(forgerun.stream(id, { signal }));
      const job = await forgerun.wait(id, { signal });
      assert.deepEqual([job.state, job.correlation_id], ["SUCCEEDED", "order-1"]);
      const events = (await watched).filter((event) => event.id !== undefined);
      assert.deepEqual(events.map((event) => event.id), ["1", "2", "3", "4", "5"]);
      assert.equal(events.at(-1)?.name, "job-succeeded");
      assert.deepEqual((await all(forgerun.stream(id, { lastEventId: "4", signal }))).map((event) => event.name), ["job-succeeded"]);
      assert.deepEqual((await all(forgerun.events(id))).map((event) => event.seq), [1, 2, 3, 4, 5]);
      assert.equal((await forgerun.report(id, { attempt: 1 })).events.length, 5);
      assert.equal((await all(forgerun.attempts(id))).length, 1);
      const result = await forgerun.result(id);
      assert.deepEqual([result.data.length, job.result?.state], [4096, "AVAILABLE"]);
      await forgerun.delete(id);
      await assert.rejects(forgerun.get(id), { status: 410, code: "RFA_JOB_GONE" });
    }),

    t.test("a failure is retried", async () => {
      const failed = await forgerun.run({ type: "EXECUTE", work_kind: "RETRY_ON_FAIL" }, { signal });
      assert.deepEqual([failed.state, failed.failure?.retryable, failed.can_retry], ["FAILED", true, true]);
      assert.equal((await forgerun.retry(failed.job_id)).changed, true);
      assert.deepEqual([(await forgerun.wait(failed.job_id, { signal })).state], ["SUCCEEDED"]);
      await assert.rejects(forgerun.retry(failed.job_id), { status: 409, code: "RFA_JOB_CONFLICT" });
    }),

    t.test("a job is canceled", async () => {
      const { job_id: id } = await forgerun.submit({ type: "DEFERRED", execution_at: new Date(Date.now() + 3_600_000).toISOString() });
      assert.equal((await forgerun.cancel(id)).changed, true);
      assert.equal((await forgerun.wait(id, { signal })).state, "CANCELED");
      assert.equal((await forgerun.cancel(id)).changed, false);
    }),

    t.test("a batch", async () => {
      const receipt = await forgerun.submitBatch([{ item_id: "good", ...execute }, { item_id: "bad", type: "DEFERRED" }, execute]);
      const refused = receipt.jobs.filter((item) => "failure" in item);
      assert.deepEqual(refused.map((item) => item.failure.violations?.[0]?.pointer), ["/jobs/1/execution_at"]);
      const batch = await forgerun.waitBatch(receipt.batch_id, { signal });
      assert.deepEqual([batch.status, batch.outcome?.succeeded], ["COMPLETED_WITH_ERRORS", 2]);
      assert.equal((await all(forgerun.batchJobs(receipt.batch_id))).length, 2);
      const listed = await all(forgerun.jobs({ batch_id: receipt.batch_id, limit: 1 }));
      assert.equal(listed.length, 2, "page by page");
      assert.equal((await forgerun.cancelBatch(receipt.batch_id)).status, "COMPLETED_WITH_ERRORS");
    }),

    t.test("what is refused", async () => {
      await assert.rejects(forgerun.submit({ type: "DEFERRED", correlation_id: "not a word" }), (error: ProblemError) => {
        assert.ok(error instanceof ProblemError && error.status === 400 && error.requestId !== undefined);
        return error.violations.some((violation) => "pointer" in violation && violation.pointer === "/execution_at");
      });
      await assert.rejects(forgerun.get("no/such job?"), { code: "RFA_JOB_NOT_FOUND" });
      await assert.rejects(new ForgeRun({ url: url!, apiKey: "frk_x" }).get("j"), { status: 401 });
    }),

    t.test("a client of its own", async () => {
      const { apiKey } = await ForgeRun.register({ url: url! });
      assert.deepEqual(await all(new ForgeRun({ url: url!, apiKey }).jobs()), []);
    }),

    t.test("deliveries", async () => {
      const hook = await receive(forgerun, ["job.*"]);
      const job = await forgerun.run(execute, { signal });
      await hook.ended([job.job_id], signal);
      const mine = [...hook.messages.values()].filter((message) => message.jobId === job.job_id);
      assert.ok(mine.every((message) => message.sequence! > 0 && message.eventId !== ""));
      hook.close();
    }),
  ]);
});
