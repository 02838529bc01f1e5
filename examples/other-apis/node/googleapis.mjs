// https://github.com/googleapis/google-api-nodejs-client#getting-started, https://google.aip.dev/151
import { run } from "@googleapis/run";
import { each, sleep, url } from "./each.mjs";

const client = run({ version: "v2", rootUrl: `${url}/` });

await each(async (name) => {
  const { locations } = client.projects;
  let { data } = await locations.jobs.run({ name: `projects/p/locations/l/jobs/${name}`, requestBody: { etag: name } });
  while (!data.done) {
    await sleep(1000);
    ({ data } = await locations.operations.get({ name: data.name }));
  }
  return data.error ?? "done";
});
