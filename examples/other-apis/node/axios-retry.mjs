// https://github.com/softonic/axios-retry#usage
import axios from "axios";
import axiosRetry from "axios-retry";
import { each, ends, pause, url } from "./each.mjs";

axiosRetry(axios, { retries: 3 });

await each(async (name) => {
  const made = await axios.post(`${url}/jobs`, { name });
  let job = made;
  do {
    await pause(job.headers["retry-after"]);
    job = await axios.get(made.headers.location);
  } while (!ends.has(job.data.status));
  return job.data.status;
});
