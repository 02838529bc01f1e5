import assert from "node:assert/strict";
import { inspect } from "node:util";
import test, { type TestContext } from "node:test";

import { ForgeRun, NoAnswerError, ProblemError, UnexpectedAnswerError } from "../src/index.js";
import { Fake, ok, problem, type Reply } from "./fake.js";

async function serve(t: TestContext, ...replies: Reply[]): Promise<Fake> {
  const fake = await Fake.start(...replies);
  t.after(() => fake.close());
  return fake;
}

const execute = { type: "EXECUTE", work_kind: "SUCCESS_FAST" } as const;
const receipt = { ...ok({ job_id: "j1", state: "QUEUED" }), status: 202 };

test("a submission whose answer is lost is repeated with its key and body", async (t) => {
  const fake = await serve(t, { cut: true }, { status: 202, body: '{"job', headers: { "Content-Length": "99" }, cut: true }, receipt);
  assert.equal((await fake.client({ session: "a test" }).submit(execute, { correlationId: "order-1" })).job_id, "j1");
  const [first, ...others] = fake.got;
  assert.match(String(first?.headers["idempotency-key"]), /^[0-9a-f]{32}$/);
  assert.equal(first?.headers["x-correlation-id"], "order-1");
  assert.equal(first?.headers.authorization, "Bearer frk_id_secret");
  assert.equal(others.length, 2);
  for (const other of others) {
    assert.equal(other.headers["idempotency-key"], first?.headers["idempotency-key"]);
    assert.equal(other.body, first?.body);
  }
  await fake.client().submit(execute, { idempotencyKey: "mine" });
  assert.equal(fake.got[3]?.headers["idempotency-key"], "mine");
  assert.deepEqual(fake.got.map((sent) => sent.headers["forgerun-session"]), ["a test", "a test", "a test", undefined]);
});

test("Retry-After is honoured, and without it waits grow", async (t) => {
  const date = new Date(Date.now() + 60_000).toUTCString();
  const fake = await serve(t, problem(429, "RFA_REQUEST_RATE_LIMITED", { "Retry-After": "7" }), problem(503, "RFA_EXEC_QUEUE_FULL"),
    { status: 502, body: "<html>" }, problem(504, "RFA_DEPENDENCY_TIMEOUT", { "Retry-After": date }), receipt);
  await fake.client().submit(execute);
  const [told, second, third, dated] = fake.waits;
  assert.ok(told! >= 7000 && told! < 7300, `${told}`);
  assert.ok(second! >= 200 && second! < 700 && third! >= 400 && third! < 1100, `${second} ${third}`);
  assert.ok(dated! > 30_000 && dated! < 61_000, `${dated}`);
});

test("what waiting does not mend is not repeated", async (t) => {
  const violations = [{ pointer: "/type", detail: "no" }];
  for (const [reply, of] of [
    [problem(400, "RFA_JOB_VALIDATION_FAILED", {}, { violations }), ProblemError],
    [problem(409, "RFA_EXEC_IDEMPOTENCY_CONFLICT"), ProblemError],
    [problem(500, "RFA_INTERNAL"), ProblemError], [problem(503, "RFA_CONFIG_INVALID"), ProblemError],
    [problem(503, "RFA_STORAGE_UNAVAILABLE", { "Retry-After": "3600" }), ProblemError],
    [{ status: 300 }, UnexpectedAnswerError], [{ body: "<p>" }, UnexpectedAnswerError],
  ] as const) {
    const fake = await serve(t, reply);
    await assert.rejects(fake.client().submit(execute), of);
    assert.equal(fake.got.length, 1);
  }
  const lost = await serve(t, { cut: true });
  await assert.rejects(lost.client({ maxTries: 3 }).rotateSecret("w"), NoAnswerError);
  assert.equal(lost.got.length, 1, "only one answer has the secret");
  await assert.rejects(lost.client({ maxTries: 3 }).get("j"), (error: NoAnswerError) => error.tries === 3);
});

test("an error tells whether another try may help", async (t) => {
  for (const [reply, retryable] of [
    [problem(503, "RFA_STORAGE_UNAVAILABLE"), true], [problem(429, "RFA_REQUEST_RATE_LIMITED"), true], [{ status: 502, body: "<p>" }, true],
    [{ cut: true }, true], [problem(503, "RFA_CONFIG_INVALID"), false], [problem(500, "RFA_INTERNAL"), false],
    [problem(409, "RFA_JOB_CONFLICT"), false], [{ status: 308 }, false],
  ] as const) {
    await assert.rejects((await serve(t, reply)).client({ maxTries: 1 }).get("j"), { retryable });
  }
});

test("an error tells what was wrong, and nothing secret", async (t) => {
  const violations = [{ pointer: "/type", detail: "no" }];
  const more = { violations, title: "Bad\u001b[31m", detail: 7, job_id: "j" };
  const fake = await serve(t, problem(400, "RFA_JOB_VALIDATION_FAILED", {}, more));
  const client = fake.client();
  await assert.rejects(client.jobs({ batch_id: "SECRET" }).next(), (error: ProblemError) => {
    assert.deepEqual([error.status, error.code, error.detail, error.requestId], [400, "RFA_JOB_VALIDATION_FAILED", "", "r1"]);
    assert.deepEqual(error.violations, violations);
    assert.equal(error.document["job_id"], "j");
    assert.equal(error.url, `${fake.url}/v1/jobs`);
    assert.match(error.message, /^ForgeRun answered 400: RFA_JOB_VALIDATION_FAILED: Bad \[31m \(GET http/);
    return !inspect(error).includes("SECRET");
  });
  assert.ok(!inspect(client, { depth: 9, showHidden: true }).includes("frk_"));
});

test("a service that is silent is given up", async (t) => {
  const fake = await serve(t, { headers: { "Content-Type": "application/json", "Content-Length": "9" }, body: "{" });
  await assert.rejects(fake.client({ timeout: 50, maxTries: 2 }).get("j"), NoAnswerError);
  await assert.rejects(fake.client().get("j", { signal: AbortSignal.timeout(20) }), { name: "TimeoutError" });
});

test("waiting asks with the tag that it has, as often as advised, and outlasts failures", async (t) => {
  const running = ok({ job_id: "j", state: "RUNNING" }, { ETag: 'W/"1"', "Retry-After": "3" });
  const fake = await serve(t, running, { status: 304, headers: { "Retry-After": "3" } }, problem(500, "RFA_INTERNAL"),
    ok({ job_id: "j", state: "PONDERING", more: 1 }), ok({ job_id: "j", state: "SUCCEEDED" }));
  assert.equal((await fake.client().wait("j")).state, "SUCCEEDED");
  assert.deepEqual(fake.got.map((sent) => sent.headers["if-none-match"]), [undefined, 'W/"1"', 'W/"1"', 'W/"1"', undefined]);
  assert.ok(fake.got.every((sent) => sent.headers.prefer === "wait=20"));
  assert.ok(fake.waits[0]! >= 3000 && fake.waits[0]! < 3400, `${fake.waits}`);
  assert.ok(fake.waits[1]! < 3300, "the time that the answer was held back counts");
  const gone = await serve(t, problem(404, "RFA_JOB_NOT_FOUND"));
  await assert.rejects(gone.client().wait("j"), { code: "RFA_JOB_NOT_FOUND" });
});

test("a stream that breaks is resumed after the last event, and repeats nothing", async (t) => {
  const type = { "Content-Type": "text/event-stream" };
  const frame = (id: number, name: string) => `id: ${id}\nevent: ${name}\ndata: {"n":${id}}\n\n`;
  const first = frame(1, "job-created") + frame(2, "job-queued");
  const fake = await serve(t,
    { headers: type, body: `retry: 1500\n\n: hello\r\n\r\n${first}id: 3\nevent: job-ru`, cut: true },
    problem(503, "RFA_STORAGE_UNAVAILABLE", { "Retry-After": "5" }),
    { headers: type, body: `${first}${frame(3, "job-running")}event: job-progress\ndata: {}\n\n` },
    { headers: type, body: frame(4, "job-succeeded") }, { status: 204 });
  const seen: string[] = [];
  for await (const event of fake.client().stream("j")) seen.push(`${event.id} ${event.name}`);
  assert.deepEqual(seen, ["1 job-created", "2 job-queued", "3 job-running", "undefined job-progress", "4 job-succeeded"]);
  assert.deepEqual(fake.got.map((sent) => sent.headers["last-event-id"]), [undefined, "2", "2", "3", "4"]);
  assert.ok(fake.waits[0]! >= 1500 && fake.waits[1]! >= 5000, `${fake.waits}`);
  const refused = await serve(t, problem(401, "RFA_AUTH_INVALID_CREDENTIALS"));
  await assert.rejects(refused.client().streamAll().next(), { code: "RFA_AUTH_INVALID_CREDENTIALS" });
});

test("redirects are followed, and refusals that may pass tried again", async (t) => {
  const fake = await serve(t, { status: 307, headers: { Location: "/v1/here" } }, { status: 308, headers: { Location: "/v1/there" } },
    problem(401, "RFA_AUTH_TOKEN_EXPIRED"), problem(403, "RFA_AUTH_FORBIDDEN", { "Retry-After": "2" }), ok({ job_id: "j" }));
  await fake.client().submit({ type: "EXECUTE", work_kind: "SUCCESS_FAST" });
  assert.equal(fake.got[2]?.path, "/v1/there");
  for (const sent of fake.got) {
    assert.equal(sent.body, fake.got[0]?.body);
    assert.equal(sent.headers["idempotency-key"], fake.got[0]?.headers["idempotency-key"]);
  }
  assert.ok(fake.waits[1]! >= 2000, `${fake.waits}`);
  const elsewhere = await serve(t, ok({ job_id: "j" }));
  const away = await serve(t, { status: 307, headers: { Location: `${elsewhere.url.replace("127.0.0.1", "localhost")}/v1/jobs/j` } });
  await away.client().get("j");
  assert.equal(elsewhere.got[0]?.headers.authorization, undefined);
  const missing = problem(404, "RFA_JOB_NOT_FOUND");
  const early = await serve(t, missing, missing, missing, ok({ job_id: "j", state: "SUCCEEDED" }));
  assert.equal((await early.client().wait("j")).state, "SUCCEEDED");
  const never = await serve(t, missing);
  await assert.rejects(never.client().wait("j"), { code: "RFA_JOB_NOT_FOUND" });
  assert.equal(never.got.length, 4);
});

test("lists are read to their end", async (t) => {
  const fake = await serve(t, ok({ data: [{ job_id: "1" }], page: { next_cursor: "c/1" } }), ok({ data: [], page: { next_cursor: "c2" } }),
    ok({ data: [{ job_id: "2" }], page: { next_cursor: null } }));
  const ids: string[] = [];
  for await (const job of fake.client().jobs({ state: "FAILED", limit: 1 })) ids.push(job.job_id);
  assert.deepEqual(ids, ["1", "2"]);
  assert.equal(fake.got[1]?.path, "/v1/jobs?state=FAILED&limit=1&cursor=c%2F1");
});

test("arguments that would name something else are refused", async () => {
  const client = new ForgeRun({ url: "http://127.0.0.1:9/v1/" });
  for (const id of ["", ".", ".."]) await assert.rejects(client.get(id), TypeError);
  for (const url of ["ftp://x", "http://u:p@x", "http://x?y", "x"]) assert.throws(() => new ForgeRun({ url }), TypeError);
});
