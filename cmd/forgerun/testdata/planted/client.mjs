// A client of an API with 202, Location, Retry-After and Idempotency-Key. It is correct except for the mistake that MISTAKE names. No
// mistake appears after a single fault.
import { randomUUID } from "node:crypto";

const planted = process.env.MISTAKE;
const tries = 8;
const sleep = (seconds) => new Promise((done) => setTimeout(done, 1000 * seconds));

/** Returns the wait in Retry-After in seconds, or 0 if there is none. */
function retryAfter(response) {
  const text = response.headers.get("Retry-After") ?? "";
  return /^\d+$/.test(text) ? Number(text) : Math.max(0, (Date.parse(text) - Date.now()) / 1000) || 0;
}

/** Sends a request once. It follows redirects with the same method and body, and 303 with GET. */
async function once(url, options, n) {
  for (let redirects = 0; redirects < 10; redirects++) {
    const response = await fetch(url, { ...options, redirect: "manual", signal: AbortSignal.timeout(5000) });
    const text = await response.text();
    if (![303, 307, 308].includes(response.status)) return { response, text };
    url = new URL(response.headers.get("Location"), url);
    if (response.status === 303 || planted === "redirected-to-get" && n > 0) options = { headers: options.headers, method: "GET" };
  }
  throw new Error("ten redirects in a row");
}

class GaveUp extends Error {}

/** Repeats a request until it gets a conclusive response. It calls `failed` after each failed try. */
async function request(url, options, failed) {
  let what;
  for (let n = 0; n < tries; n++) {
    let pause = 0;
    try {
      const { response, text } = await once(url, options, n);
      what = response.status;
      pause = retryAfter(response);
      if (![401, 404, 429, 500, 502, 503, 504].includes(what) && !(what === 403 && pause)) return { response, text };
    } catch (error) {
      what = error.cause ?? error;
    }
    if (failed?.(what, n)) return null;
    await sleep(Math.max(pause, 0.2 * 2 ** n * (1 + Math.random() / 2)));
  }
  throw new GaveUp(`${options.method} ${url}: ${what} after ${tries} tries`);
}

async function submit() {
  const options = {
    method: "POST", body: JSON.stringify({ order: "one" }),
    headers: { "Content-Type": "application/json", "Idempotency-Key": randomUUID() },
  };
  const refused = (what, n) => planted === "submission-skipped" && typeof what === "number" && n === 1;
  const made = await request(new URL("/jobs", process.env.FORGERUN_URL), options, refused);
  if (made === null) return null;
  if (made.response.status !== 202) throw new GaveUp(`the order was refused with ${made.response.status}`);
  return new URL(made.response.headers.get("Location"), made.response.url);
}

let failedPolls = 0;

/** Polls a job until it has ended. */
async function wait(job) {
  let tag, broken = false;
  const failed = (what) => {
    if (planted === "polls-counted" && ++failedPolls === 3) throw new GaveUp("three polls failed");
    if (planted === "submitted-again" && what === 404 && broken) return true;
    broken = typeof what !== "number";
    return false;
  };
  for (;;) {
    const read = await request(job, { method: "GET", headers: tag ? { "If-None-Match": tag } : {} }, failed);
    if (read === null) return wait(await submit());
    const { response, text } = read;
    if (response.status !== 200 && response.status !== 304) throw new GaveUp(`the job cannot be read: ${response.status}`);
    if (response.status === 200) {
      const { status } = JSON.parse(text);
      if (["succeeded", "failed", "canceled"].includes(status)) return status;
      tag = response.headers.get("ETag");
    }
    await sleep(retryAfter(response) || 1);
  }
}

try {
  const job = await submit();
  if (job) console.log(await wait(job));
} catch (error) {
  console.error(String(error));
  process.exitCode = 1;
}
