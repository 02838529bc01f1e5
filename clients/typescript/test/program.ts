// What the test bed judges: a program that does with the library what programs do. It ends with 0 if all went as it should.
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
  maxTries: 20,
  onRetry: (error, wait) => console.error(`${error.message}: again in ${Math.round(wait)} ms`),
});

const hook = await receive(forgerun, ["job.succeeded", "job.failed"]);
const run = randomUUID();
const ids: string[] = [];
const kinds: WorkKind[] = ["SUCCESS_FAST", "FAIL_IMMEDIATE", "SUCCESS_FAST", "SUCCESS_FAST"];
for (const [n, work_kind] of kinds.entries()) {
  const { job_id } = await forgerun.submit({ type: "EXECUTE", work_kind }, { correlationId: `${run}-${n}`, signal });
  const job = await forgerun.wait(job_id, { signal });
  console.log(job_id, work_kind, job.state, job.failure?.title ?? "");
  ids.push(job_id);
}
const names: string[] = [];
for await (const event of forgerun.stream(ids.at(-1)!, { signal, silence: 20_000 })) if (event.id !== undefined) names.push(event.name);
assert.deepEqual(names, ["job-created", "job-queued", "job-assigned", "job-running", "job-succeeded"]);
assert.equal((await forgerun.report(ids.at(-1)!, { signal })).outcome, "SUCCESS");
assert.equal((await forgerun.result(ids.at(-1)!, { signal })).data.length, 4096);
const jobs = [0, 1, 2].map((n) => ({ type: "EXECUTE", work_kind: "SUCCESS_FAST", correlation_id: `${run}-item-${n}` }) as const);
const { batch_id } = await forgerun.submitBatch(jobs, { signal });
assert.equal((await forgerun.waitBatch(batch_id, { signal })).status, "COMPLETED");
const listed: string[] = [];
for await (const job of forgerun.jobs({ batch_id, limit: 2 }, { signal })) listed.push(job.job_id);
assert.equal(listed.length, 3);
await hook.ended([...ids, ...listed], signal);
hook.close();
