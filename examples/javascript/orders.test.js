// Tests of correct and incorrect clients, for Jest and Vitest. All test bodies pass; the plugin fails the tests of incorrect clients.
//
//   FORGERUN_URL=http://127.0.0.1:8080 FORGERUN_PROFILE=none npx jest      (or: npx vitest run)
//   forgerun verdict --profile none -- npx jest   (all tests pass; the verdict shows the errors)
const { randomUUID } = require("node:crypto");

// The plugin sets these before the first test.
const api = () => ({ url: process.env.FORGERUN_URL, key: process.env.FORGERUN_API_KEY });
const bearer = () => `Bearer ${api().key}`;

function submit(idempotencyKey, kind) {
  return fetch(`${api().url}/v1/jobs`, {
    method: "POST",
    headers: {
      authorization: bearer(), "content-type": "application/json", "idempotency-key": idempotencyKey, "x-correlation-id": randomUUID(),
    },
    body: JSON.stringify({ type: "EXECUTE", work_kind: kind }),
  });
}

test("right", async () => {
  let job = await (await submit(randomUUID(), "SUCCESS_FAST")).json();
  while (job.state !== "SUCCEEDED") {
    job = await (await fetch(`${api().url}/v1/jobs/${job.job_id}`, { headers: { authorization: bearer(), prefer: "wait=20" } })).json();
  }
}, 60_000);

test("one key for two orders", async () => { // breaks same-body
  const idempotencyKey = randomUUID();
  await submit(idempotencyKey, "SUCCESS_FAST");
  expect((await submit(idempotencyKey, "FAIL_IMMEDIATE")).status).toBe(409);
}, 60_000);

test("key in the URL", async () => { // breaks no-key-in-url
  expect((await fetch(`${api().url}/v1/jobs?api_key=${api().key}`)).status).toBe(401);
}, 60_000);
