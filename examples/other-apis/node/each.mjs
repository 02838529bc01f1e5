// Common code of all programs: run two jobs, one after the other, and exit with 0 if both succeed.
export const url = process.env.FORGERUN_URL;

export const sleep = (ms) => new Promise((done) => setTimeout(done, ms));

/** Waits for as long as Retry-After says, or a second. */
export const pause = (retryAfter) => sleep(1000 * (Number(retryAfter) || 1));

/** The final states of jobs. */
export const ends = new Set(["succeeded", "failed", "canceled"]);

export async function each(run) {
  for (const name of ["first", "second"]) {
    try {
      console.log(name, await run(name));
    } catch (error) {
      console.error(name, String(error.cause ?? error));
      process.exitCode = 1;
    }
  }
  process.exit();
}
