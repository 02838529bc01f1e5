import { createServer, type IncomingHttpHeaders, type Server } from "node:http";
import type { AddressInfo } from "node:net";

import { ForgeRun, type Options } from "../src/index.js";

/** A response of the fake service. `cut` closes the connection before the response or within its body. */
export interface Reply {
  status?: number;
  headers?: Record<string, string>;
  body?: string;
  cut?: boolean;
}

export interface Sent {
  method: string;
  path: string;
  headers: IncomingHttpHeaders;
  body: string;
}

/** A fake service that sends its replies in order and repeats the last one, and a client of it that does not really wait. */
export class Fake {
  readonly got: Sent[] = [];
  readonly waits: number[] = [];
  readonly #server: Server;

  private constructor(server: Server) {
    this.#server = server;
  }

  static async start(...replies: Reply[]): Promise<Fake> {
    const server = createServer(async (request, response) => {
      let body = "";
      for await (const chunk of request) body += chunk;
      fake.got.push({ method: request.method ?? "", path: request.url ?? "", headers: request.headers, body });
      const reply = replies[Math.min(fake.got.length, replies.length) - 1] ?? {};
      if (reply.cut && reply.body === undefined) return void request.socket.destroy();
      response.writeHead(reply.status ?? 200, { "Content-Type": "application/json", ...reply.headers });
      if (reply.cut) return void response.write(reply.body, () => request.socket.destroy());
      response.end(reply.body);
    });
    const fake = new Fake(server);
    await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
    return fake;
  }

  get url(): string {
    return `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}`;
  }

  client(options: Partial<Options> = {}): ForgeRun {
    const sleep = async (ms: number, signal?: AbortSignal) => {
      signal?.throwIfAborted();
      this.waits.push(ms);
    };
    return new ForgeRun({ url: this.url, apiKey: "frk_id_secret", sleep, ...options });
  }

  close(): void {
    this.#server.close();
    this.#server.closeAllConnections();
  }
}

export const ok = (value: object, headers: Record<string, string> = {}): Reply => ({ body: JSON.stringify(value), headers });

export const problem = (status: number, code: string, headers: Record<string, string> = {}, more: object = {}): Reply => ({
  status,
  headers: { "Content-Type": "application/problem+json", "X-Request-Id": "r1", ...headers },
  body: JSON.stringify({ type: "https://x/problems/y", title: "T", detail: "D", status: 999, code, ...more }),
});
