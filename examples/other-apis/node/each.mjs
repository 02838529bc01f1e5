// What all programs have in common: two jobs, one after the other, and an exit code that says whether both ended well.
export const url = process.env.FORGERUN_URL;

export const sleep = (ms) => new Promise((done) => setTimeout(done, ms));

/** The time that an answer asks for before the next request, or a second. */
export const pause = (retryAfter) => sleep(1000 * (Number(retryAfter) || 1));

/** The states in which a job has ended. */
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
