/**
 * Common mistakes; client.ts avoids them. Under the profile flaky-network, with seed 7, the verdict names each:
 *
 * idempotency-key, no-duplicates,
 * one-job-per-intention                    it repeats a lost submission without a key, which creates a second job
 * stream-resume                            it reopens a broken stream from the beginning, without a pause
 * retry-after, conditional-requests        it polls in a tight loop
 */

export {};

declare const process: { env: Record<string, string | undefined>; exit(code: number): never };

const base = process.env.FORGERUN_URL ?? "http://127.0.0.1:8080";
const headers = { Authorization: `Bearer ${process.env.FORGERUN_API_KEY}`, "Content-Type": "application/json" };

async function insist(path: string, more: RequestInit): Promise<any> {
  for (;;) {
    try {
      const answer = await fetch(base + path, { ...more, headers: { ...headers, ...more.headers } });
      return await answer.json();
    } catch {
      await new Promise((resolve) => setTimeout(resolve, 100));
    }
  }
}

async function main() {
  for (let n = 0; n < 10; n++) {
    const job = await insist("/v1/jobs", {
      method: "POST",
      body: JSON.stringify({ type: "EXECUTE", work_kind: "SUCCESS_FAST" }),
      headers: { "X-Correlation-ID": `order-${n}` },
    });
    while ((await insist(`/v1/jobs/${job.job_id}`, {})).state !== "SUCCEEDED");
    for (let text = ""; !text.includes("job-succeeded"); ) {
      try {
        text = await (await fetch(`${base}/v1/jobs/${job.job_id}/events`, { headers: { ...headers, Accept: "text/event-stream" } })).text();
      } catch {
        // again
      }
    }
  }
}

main();
