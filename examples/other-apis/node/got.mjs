// https://github.com/sindresorhus/got#take-a-peek
import got from "got";
import { each, ends, pause, url } from "./each.mjs";

await each(async (name) => {
  const made = await got.post(`${url}/jobs`, { json: { name }, responseType: "json" });
  let job = made;
  do {
    await pause(job.headers["retry-after"]);
    job = await got(made.headers.location, { responseType: "json" });
  } while (!ends.has(job.body.status));
  return job.body.status;
});
