// https://learn.microsoft.com/javascript/api/overview/azure/core-lro-readme: the poller of generated clients
import { getClient } from "@azure-rest/core-client";
import { createHttpPoller } from "@azure/core-lro";
import { each, url } from "./each.mjs";

const client = getClient(url, { allowInsecureConnection: true });
const thing = "/subscriptions/s/resourceGroups/g/providers/Example.Things/things/t";

function lro(response) {
  return {
    flatResponse: response,
    rawResponse: { statusCode: Number(response.status), headers: response.headers, body: response.body, request: response.request },
  };
}

function getLongRunningPoller(initial) {
  return createHttpPoller({
    sendInitialRequest: async () => lro(initial),
    sendPollRequest: async (path) => lro(await client.pathUnchecked(path ?? initial.request.url).get()),
  });
}

await each(async (name) => {
  const initial = name === "first"
    ? await client.pathUnchecked(`${thing}/export`).post({ body: { format: "csv" } })
    : await client.pathUnchecked(thing).put({ body: { location: "l", properties: {} } });
  if (Number(initial.status) >= 400) {
    throw new Error(initial.status);
  }
  return (await getLongRunningPoller(initial).pollUntilDone()).status;
});
