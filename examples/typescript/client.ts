/**
 * A client of ForgeRun that does what a client should, with nothing but fetch. It submits a few jobs, waits for each, and follows
 * the events of the last one.
 *
 *     FORGERUN_URL=http://127.0.0.1:8080 FORGERUN_API_KEY=frk_... npx tsx client.ts
 */

export {};

declare const process: { env: Record<string, string | undefined>; exit(code: number): never };

const base = process.env.FORGERUN_URL ?? "http://127.0.0.1:8080";
const key = process.env.FORGERUN_API_KEY ?? "";
const tries = 20;
const timeout = 20_000; // ms, for one answer
const silence = 25_000; // ms, after which a stream is taken as broken
const final = new Set(["SUCCEEDED", "FAILED", "CANCELED"]); // any other state, known or not, is not final

const sleep = (ms: number) => new Promise((resolve) => setTimeout(resolve, ms));

interface Answer {
  status: number;
  headers: Headers;
  text: string;
}

/** Repeats a request until it has an answer that counts. One that changes something carries an Idempotency-Key. */
async function request(method: string, path: string, headers: Record<string, string> = {}, body?: string): Promise<Answer> {
  for (let n = 0; n < tries; n++) {
    let wait = Math.min(10_000, 250 * 2 ** n) * (0.5 + Math.random() / 2);
    try {
      const answer = await fetch(base + path, {
        method,
        body,
        signal: AbortSignal.timeout(timeout),
        headers: {
          Authorization: `Bearer ${key}`,
          Accept: "application/json, application/problem+json",
          ...(body === undefined ? {} : { "Content-Type": "application/json" }),
          ...headers,
        },
      });
      const text = await answer.text();
      if (![429, 502, 503, 504].includes(answer.status)) return { status: answer.status, headers: answer.headers, text };
      wait = Math.max(wait, 1000 * Number(answer.headers.get("Retry-After") ?? 0));
      console.error(`${method} ${path}: ${answer.status}, again in ${wait} ms`);
    } catch (err) {
      console.error(`${method} ${path}: ${err}, again in ${wait} ms`); // the answer is lost, the work may be done
    }
    await sleep(wait);
  }
  throw new Error(`${method} ${path}: no answer after ${tries} tries`);
}

/** Submits a job once, however often the request is sent: the key and the body stay the same. */
async function submit(job: object, correlation: string): Promise<string> {
  const headers = { "Idempotency-Key": crypto.randomUUID(), "X-Correlation-ID": correlation };
  const answer = await request("POST", "/v1/jobs", headers, JSON.stringify(job));
  if (answer.status !== 202 && answer.status !== 200) throw new Error(`the job was refused with ${answer.status}: ${answer.text}`);
  return JSON.parse(answer.text).job_id;
}

/** Polls a job until it is final: as often as the service advises, and with the tag of what is known. */
async function wait(id: string): Promise<string> {
  let tag = "";
  for (;;) {
    const answer = await request("GET", `/v1/jobs/${id}`, tag ? { "If-None-Match": tag } : {});
    if (answer.status === 200) {
      const job = JSON.parse(answer.text); // members that are not known are left alone
      if (final.has(job.state)) return job.state;
      tag = answer.headers.get("ETag") ?? "";
    } else if (answer.status !== 304) {
      throw new Error(`the job cannot be read: ${answer.status} ${answer.text}`);
    }
    await sleep(1000 * Number(answer.headers.get("Retry-After") ?? 1));
  }
}

/** Follows the events of a job to the end: a stream that breaks is opened again after the pause that it asks for, behind the last event that came. */
async function follow(id: string): Promise<string[]> {
  const names: string[] = [];
  let last = "";
  let pause = 2000; // ms, until the stream says otherwise
  for (let n = 0; n < tries; n++) {
    const abort = new AbortController();
    try {
      const answer = await fetch(`${base}/v1/jobs/${id}/events`, {
        signal: abort.signal,
        headers: { Authorization: `Bearer ${key}`, Accept: "text/event-stream", ...(last ? { "Last-Event-ID": last } : {}) },
      });
      if (answer.status === 204) return names; // there is no more
      if (answer.status === 200 && answer.body) {
        for await (const [event, eventID, retry] of events(answer.body, abort)) {
          if (event) names.push(event);
          if (eventID) last = eventID;
          if (retry) pause = Number(retry);
        }
      } else {
        await answer.text();
        await sleep(1000 * Number(answer.headers.get("Retry-After") ?? 1));
      }
    } catch (err) {
      console.error(`events: ${err}, again after ${last || "the beginning"}`);
    }
    await sleep(pause + 250 * n);
  }
  throw new Error("the events have no end");
}

/** The complete blocks of a stream (event, id, retry), which is aborted if nothing comes for a while. */
async function* events(body: ReadableStream<Uint8Array>, abort: AbortController): AsyncGenerator<[string, string, string]> {
  const reader = body.getReader();
  const decoder = new TextDecoder();
  let rest = "";
  for (;;) {
    const timer = setTimeout(() => abort.abort(), silence);
    const { value, done } = await reader.read().finally(() => clearTimeout(timer));
    if (done) return; // half an event is none
    rest += decoder.decode(value, { stream: true });
    for (let end = rest.indexOf("\n\n"); end >= 0; end = rest.indexOf("\n\n")) {
      const lines = rest.slice(0, end).split("\n");
      rest = rest.slice(end + 2);
      const field = (name: string) => lines.find((line) => line.startsWith(`${name}: `))?.slice(name.length + 2) ?? "";
      if (field("id") || field("retry")) yield [field("event"), field("id"), field("retry")]; // others are comments
    }
  }
}

async function main() {
  const run = crypto.randomUUID();
  let id = "";
  for (const [n, kind] of ["SUCCESS_FAST", "FAIL_IMMEDIATE", "SUCCESS_FAST", "SUCCESS_FAST"].entries()) {
    id = await submit({ type: "EXECUTE", work_kind: kind }, `${run}-${n}`);
    console.log(id, kind, await wait(id));
  }
  console.log((await follow(id)).join(" "));
}

main().catch((err) => {
  console.error(err);
  process.exit(1);
});
