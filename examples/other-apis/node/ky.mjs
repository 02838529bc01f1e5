// https://github.com/sindresorhus/ky#usage
import ky from "ky";
import { each, ends, pause, url } from "./each.mjs";

await each(async (name) => {
  const made = await ky.post(`${url}/jobs`, { json: { name } });
  let job = made;
  let status;
  do {
    await pause(job.headers.get("retry-after"));
    job = await ky(made.headers.get("location"));
    ({ status } = await job.json());
  } while (!ends.has(status));
  return status;
});
