// https://github.com/sindresorhus/p-retry#usage
import pRetry, { AbortError } from "p-retry";
import { each, ends, pause, url } from "./each.mjs";

async function run(address, options) {
  const response = await fetch(address, options);
  if (response.status === 404) {
    throw new AbortError(response.statusText); // as in the README of p-retry
  }
  if (!response.ok) {
    throw new Error(response.statusText);
  }
  return { headers: response.headers, body: await response.json() };
}

await each(async (name) => {
  const made = await pRetry(() => run(`${url}/jobs`, {
    method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify({ name }),
  }), { retries: 5 });
  let job = made;
  do {
    await pause(job.headers.get("retry-after"));
    job = await pRetry(() => run(made.headers.get("location")), { retries: 5 });
  } while (!ends.has(job.body.status));
  return job.body.status;
});
