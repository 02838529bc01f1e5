// Tests of right and of wrong clients. All pass; which clients are wrong says the verdict of each.
//
//   forgerun verdict --junit verdict.xml -- npx jest --maxWorkers 4
const { randomUUID } = require("node:crypto");

const { FORGERUN_URL: url, FORGERUN_API_KEY: key } = process.env;
const authorization = `Bearer ${key}`;

function submit(idempotencyKey, kind) {
  return fetch(`${url}/v1/jobs`, {
    method: "POST",
    headers: {
      authorization, "content-type": "application/json", "idempotency-key": idempotencyKey, "x-correlation-id": randomUUID(),
    },
    body: JSON.stringify({ type: "EXECUTE", work_kind: kind }),
  });
}

test("right", async () => {
  let job = await (await submit(randomUUID(), "SUCCESS_FAST")).json();
  while (job.state !== "SUCCEEDED") {
    job = await (await fetch(`${url}/v1/jobs/${job.job_id}`, { headers: { authorization, prefer: "wait=20" } })).json();
  }
}, 60_000);

test("one key for two orders", async () => { // breaks same-body
  const idempotencyKey = randomUUID();
  await submit(idempotencyKey, "SUCCESS_FAST");
  expect((await submit(idempotencyKey, "FAIL_IMMEDIATE")).status).toBe(409);
}, 60_000);

test("key in the URL", async () => { // breaks no-key-in-url
  expect((await fetch(`${url}/v1/jobs?api_key=${key}`)).status).toBe(401);
}, 60_000);
