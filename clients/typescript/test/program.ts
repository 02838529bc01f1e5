// A program that uses the library in typical ways, for the test bed to judge. It exits with 0 if everything worked.
//
//     FORGERUN_URL=http://127.0.0.1:8080 FORGERUN_API_KEY=frk_... node test/program.js
import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";

import { ForgeRun, type WorkKind } from "../src/index.js";
import { receive } from "./receiver.js";

const signal = AbortSignal.timeout(150_000);
const forgerun = new ForgeRun({
  url: process.env["FORGERUN_URL"]!,
  apiKey: process.env["FORGERUN_API_KEY"]!,
  timeout: 10_000,
  onRetry: (error, wait) => console.error(`${error.message}: again in ${Math.round(wait)} ms`),
});

/** Runs a part of the work. If the service permanently refuses it, the other parts continue. */
async function part(name: string, work: () => Promise<void>): Promise<void> {
  try {
    await work();
  } catch (error) {
    console.error(`${name}:`, error);
    process.exitCode = 1;
  }
}

const hook = await receive(forgerun, ["job.succeeded", "job.failed"]);
const run = randomUUID();
const ids: string[] = [];
const listed: string[] = [];
const kinds: WorkKind[] = ["SUCCESS_FAST", "FAIL_IMMEDIATE", "SUCCESS_FAST", "SUCCESS_FAST"];
for (const [n, work_kind] of kinds.entries()) {
  await part(`order ${n}`, async () => {
    const { job_id } = await forgerun.submit({ type: "EXECUTE", work_kind }, { correlationId: `${run}-${n}`, signal });
    ids.push(job_id);
    const job = await forgerun.wait(job_id, { signal });
    console.log(job_id, work_kind, job.state, job.failure?.title ?? "");
  });
}
await part("events and result", async () => {
  const names: string[] = [];
  for await (const event of forgerun.stream(ids.at(-1)!, { signal, silence: 20_000 })) if (event.id !== undefined) names.push(event.name);
  assert.deepEqual(names, ["job-created", "job-queued", "job-assigned", "job-running", "job-succeeded"]);
  assert.equal((await forgerun.report(ids.at(-1)!, { signal })).outcome, "SUCCESS");
  assert.equal((await forgerun.result(ids.at(-1)!, { signal })).data.length, 4096);
});
await part("batch", async () => {
  const jobs = [0, 1, 2].map((n) => ({ type: "EXECUTE", work_kind: "SUCCESS_FAST", correlation_id: `${run}-item-${n}` }) as const);
  const { batch_id } = await forgerun.submitBatch(jobs, { signal });
  assert.equal((await forgerun.waitBatch(batch_id, { signal })).status, "COMPLETED");
  for await (const job of forgerun.jobs({ batch_id, limit: 2 }, { signal })) listed.push(job.job_id);
  assert.equal(listed.length, 3);
});
await hook.ended([...ids, ...listed], signal);
hook.close();
