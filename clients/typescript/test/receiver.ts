import { createServer } from "node:http";
import type { AddressInfo } from "node:net";

import type { ForgeRun } from "../src/index.js";
import { Keys, SignatureError, Verifier, type WebhookMessage } from "../src/webhooks.js";

/** A webhook receiver. It accepts correctly signed deliveries, and responds to repeated ones as to the first. */
export async function receive(forgerun: ForgeRun, events: ["job.*"] | ["job.succeeded", "job.failed"]) {
  const messages = new Map<string, WebhookMessage>();
  const arrived = new EventTarget();
  let verifier: Promise<Verifier>;
  const server = createServer(async (request, response) => {
    try {
      const chunks: Buffer[] = [];
      for await (const chunk of request) chunks.push(chunk as Buffer);
      const received = { method: request.method ?? "", headers: request.headers, body: Buffer.concat(chunks) };
      const message = await (await verifier).verify(received);
      messages.set(message.webhookId, message);
      arrived.dispatchEvent(new Event("message"));
      response.writeHead(204).end();
    } catch (error) {
      response.writeHead(error instanceof SignatureError ? 401 : 503).end();
    }
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}/forgerun`;
  const registered = forgerun.createWebhook({ url, events });
  verifier = registered.then(({ secret }) => new Verifier({ secret: secret!, keys: new Keys(forgerun), url }));
  await registered;
  return {
    messages,
    /** Waits until messages have reported the end of each job. */
    async ended(ids: readonly string[], signal: AbortSignal): Promise<void> {
      const told = (id: string) => [...messages.values()].some(({ jobId, name }) => jobId === id && /succeeded|failed/.test(name));
      const missing = () => ids.filter((id) => !told(id));
      while (missing().length > 0) {
        await new Promise<void>((resolve, reject) => {
          arrived.addEventListener("message", () => resolve(), { once: true });
          signal.addEventListener("abort", () => reject(new Error(`no delivery has told of ${missing()}`)), { once: true });
          signal.throwIfAborted();
        });
      }
    },
    close() {
      server.close();
      server.closeAllConnections();
    },
  };
}
