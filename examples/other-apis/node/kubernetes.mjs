// https://github.com/kubernetes-client/javascript#examples
import { BatchV1Api, KubeConfig } from "@kubernetes/client-node";
import { each, sleep, url } from "./each.mjs";

const config = new KubeConfig();
config.loadFromOptions({
  clusters: [{ name: "c", server: url, skipTLSVerify: true }], users: [{ name: "u" }],
  contexts: [{ name: "x", cluster: "c", user: "u" }], currentContext: "x",
});
const batch = config.makeApiClient(BatchV1Api);
const container = { name: "work", image: "busybox", command: ["sleep", "1"] };

await each(async (name) => {
  const namespace = "default";
  await batch.createNamespacedJob({
    namespace, body: { metadata: { name }, spec: { template: { spec: { restartPolicy: "Never", containers: [container] } } } },
  });
  for (;;) {
    const job = await batch.readNamespacedJob({ name, namespace });
    const ended = job.status?.conditions?.find(({ type, status }) => ["Complete", "Failed"].includes(type) && status === "True");
    if (ended) {
      return ended.type;
    }
    await sleep(1000);
  }
});
