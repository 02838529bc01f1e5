/**
 * A client of ForgeRun that follows all rules and uses only fetch. It submits a few jobs, waits for each, and follows the events of
 * the last one.
 *
 *     FORGERUN_URL=http://127.0.0.1:8080 FORGERUN_API_KEY=frk_... npx tsx client.ts
 */

export {};

declare const process: { env: Record<string, string | undefined>; exit(code: number): never };

const base = process.env.FORGERUN_URL ?? "http://127.0.0.1:8080";
const key = process.env.FORGERUN_API_KEY ?? "";
const tries = 10;
const timeout = 10_000; // ms
const silence = 25_000; // ms without data until a stream counts as broken
const final = new Set(["SUCCEEDED", "FAILED", "CANCELED"]); // any other state, known or not, is not final

const sleep = (ms: number) => new Promise((resolve) => setTimeout(resolve, ms));

/** Returns the wait in Retry-After, a number or a date, in milliseconds; undefined if there is none. */
function retryAfter(headers: Headers): number | undefined {
  const text = headers.get("Retry-After") ?? "";
  if (/^\d+(, *\d+)*$/.test(text)) return 1000 * Math.max(...text.split(",").map(Number)); // fetch joins header lines with commas
  if (/^[A-Z][a-z]{2}, .* GMT$/.test(text)) return Math.max(0, Date.parse(text) - Date.now());
  return undefined;
}

interface Answer {
  status: number;
  headers: Headers;
  text: string;
}

/**
 * Repeats a request until it gets a conclusive response. Requests that change something need an Idempotency-Key. fetch follows redirects,
 * and does not send the key to another host.
 */
async function request(method: string, path: string, headers: Record<string, string> = {}, body?: string): Promise<Answer> {
  let refused = false;
  let what: unknown;
  for (let n = 0; n < tries; n++) {
    let wait = Math.min(2000, 250 * 2 ** n) * (0.5 + Math.random() / 2);
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
      const told = retryAfter(answer.headers);
      const passes = [404, 429, 500, 502, 503, 504].includes(answer.status) || (answer.status === 403 && told !== undefined);
      if (!passes && (answer.status !== 401 || refused)) return { status: answer.status, headers: answer.headers, text };
      refused ||= answer.status === 401;
      wait = Math.max(wait, told ?? 0);
      what = answer.status;
    } catch (err) {
      what = err; // the response is lost; the request may have succeeded
    }
    if (n + 1 === tries) break;
    console.error(`${method} ${path}: ${what}, again in ${wait} ms`);
    await sleep(wait);
  }
  throw new Error(`${method} ${path}: ${what} after ${tries} tries`);
}

/** Submits a job. Repeated requests create it only once: they have the same key and body. */
async function submit(job: object, correlation: string): Promise<string> {
  const headers = { "Idempotency-Key": crypto.randomUUID(), "X-Correlation-ID": correlation };
  const answer = await request("POST", "/v1/jobs", headers, JSON.stringify(job));
  if (answer.status !== 202 && answer.status !== 200) throw new Error(`the job was refused with ${answer.status}: ${answer.text}`);
  return JSON.parse(answer.text).job_id;
}

/** Polls a job until it is final, at the intervals in Retry-After and with the ETag of the last response. */
async function wait(id: string): Promise<string> {
  let tag = "";
  for (;;) {
    const answer = await request("GET", `/v1/jobs/${id}`, tag ? { "If-None-Match": tag } : {});
    if (answer.status === 200) {
      const job = JSON.parse(answer.text); // ignore unknown members
      if (final.has(job.state)) return job.state;
      tag = answer.headers.get("ETag") ?? "";
    } else if (answer.status !== 304) {
      throw new Error(`the job cannot be read: ${answer.status} ${answer.text}`);
    }
    await sleep(retryAfter(answer.headers) ?? 1000);
  }
}

/** Follows the events of a job to the end. It reopens a broken stream after the last event, when the pause from the stream is over. */
async function follow(id: string): Promise<string[]> {
  const names: string[] = [];
  let last = "";
  let pause = 2000; // ms; the stream may change it
  for (let n = 0; n < tries; n++) {
    const abort = new AbortController();
    try {
      const answer = await fetch(`${base}/v1/jobs/${id}/events`, {
        signal: abort.signal,
        headers: { Authorization: `Bearer ${key}`, Accept: "text/event-stream", ...(last ? { "Last-Event-ID": last } : {}) },
      });
      if (answer.status === 204) return names; // no more events
      if (answer.status === 200 && answer.body) {
        for await (const [event, eventID, retry] of events(answer.body, abort)) {
          if (event) names.push(event);
          if (eventID) last = eventID;
          if (retry) pause = Number(retry);
        }
      } else {
        await answer.text();
        await sleep(retryAfter(answer.headers) ?? 1000);
      }
    } catch (err) {
      console.error(`events: ${err}, again after ${last || "the beginning"}`);
    }
    await sleep(pause + 250 * n);
  }
  throw new Error("the events have no end");
}

/** Yields the complete blocks of a stream (event, id, retry). It aborts the stream after a long silence. */
async function* events(body: ReadableStream<Uint8Array>, abort: AbortController): AsyncGenerator<[string, string, string]> {
  const reader = body.getReader();
  const decoder = new TextDecoder();
  let rest = "";
  for (;;) {
    const timer = setTimeout(() => abort.abort(), silence);
    const { value, done } = await reader.read().finally(() => clearTimeout(timer));
    if (done) return; // drop an incomplete event
    rest += decoder.decode(value, { stream: true });
    for (let end = rest.indexOf("\n\n"); end >= 0; end = rest.indexOf("\n\n")) {
      const lines = rest.slice(0, end).split("\n");
      rest = rest.slice(end + 2);
      const field = (name: string) => lines.find((line) => line.startsWith(`${name}: `))?.slice(name.length + 2) ?? "";
      const id = field("id").includes("\0") ? "" : field("id");
      if (id || field("retry")) yield [field("event"), id, field("retry")]; // skip comments and unknown blocks
    }
  }
}

async function main() {
  const run = crypto.randomUUID();
  let id = "";
  let gaveUp = false;
  for (const [n, kind] of ["SUCCESS_FAST", "FAIL_IMMEDIATE", "SUCCESS_FAST", "SUCCESS_FAST"].entries()) {
    try {
      id = await submit({ type: "EXECUTE", work_kind: kind }, `${run}-${n}`);
      console.log(id, kind, await wait(id));
    } catch (err) {
      console.error(`order ${n}:`, err); // the others go on
      gaveUp = true;
    }
  }
  console.log((await follow(id)).join(" "));
  process.exit(gaveUp ? 1 : 0);
}

main().catch((err) => {
  console.error(err);
  process.exit(1);
});
