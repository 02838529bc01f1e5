"use strict";

// Judges each test in its own session. Each test file has its own proxy in front of FORGERUN_TARGET, or its own client of the ForgeRun
// at FORGERUN_URL. So files may run at the same time, but the tests of one file must run one after the other.
const { spawn } = require("node:child_process");
const { randomUUID } = require("node:crypto");
const { once } = require("node:events");
const { createInterface } = require("node:readline");
const { path } = require("./binary.js");

const { env } = process;
const { fetch } = globalThis; // a test may replace it

async function ask(url, options = {}) {
  const { body, key, ...others } = options;
  const headers = { "content-type": "application/json" };
  if (key) headers.authorization = `Bearer ${key}`;
  if (others.method === "POST") headers["idempotency-key"] = randomUUID();
  const answer = await fetch(url, { ...others, headers, body: body && JSON.stringify(body) });
  const text = await answer.text();
  if (!answer.ok) throw new Error(`${url} answered ${answer.status}: ${text}`);
  return JSON.parse(text);
}

// Bed is the proxy or the ForgeRun client that judges the tests of one file.
class Bed {
  async open() {
    if (env.FORGERUN_TARGET) await this.startProxy();
    else if (env.FORGERUN_URL) await this.register();
    else {
      throw new Error(
        "Nothing is judged: set FORGERUN_TARGET to the address of your server, or FORGERUN_URL to that of a running ForgeRun " +
          '(the global setup "forgerun/service" starts one).',
      );
    }
    for (const name of (env.FORGERUN_URL_ENV ?? "").split(",").filter(Boolean)) env[name] = this.url;
    env.FORGERUN_URL = this.url;
    if (this.key) env.FORGERUN_API_KEY = this.key;
  }

  async startProxy() {
    const flags = ["proxy", "--target", env.FORGERUN_TARGET, "--listen", "127.0.0.1:0"];
    if (env.FORGERUN_API) flags.push("--api", env.FORGERUN_API);
    this.proxy = spawn(path(), flags, { stdio: ["ignore", "pipe", "inherit"] });
    await once(this.proxy, "spawn");
    const said = [];
    for await (const line of createInterface({ input: this.proxy.stdout })) {
      if (said.push(line.split(" ")) === 2) break;
    }
    if (said.length < 2) throw new Error(`forgerun ${flags.join(" ")} ended`);
    [this.url, this.sessions] = [said[0][0], said[1].at(-1)];
  }

  async register() {
    this.url = env.FORGERUN_URL;
    const { client_id: id } = await ask(`${this.url}/v1/clients`, { method: "POST" });
    ({ api_key: this.key } = await ask(`${this.url}/v1/clients/${id}/keys`, { method: "POST" }));
    this.sessions = `${this.url}/v1/testbed/sessions`;
  }

  async begin() {
    const body = { profile: env.FORGERUN_PROFILE ?? "default", seed: Number(env.FORGERUN_SEED ?? 1) };
    if (body.profile === "none") delete body.profile;
    this.session = (await ask(this.sessions, { method: "POST", body, key: this.key })).session_id;
  }

  // end ends the session and describes the broken rules of level MUST. With FORGERUN_STRICT, it includes rules of level SHOULD.
  async end() {
    await ask(`${this.sessions}/${this.session}/end`, { method: "POST", key: this.key });
    const { results } = await ask(`${this.sessions}/${this.session}/verdict`, { key: this.key });
    return results.filter((r) => r.status === "fail" || (env.FORGERUN_STRICT && r.status === "warn")).map(inWords).join("\n");
  }

  async close() {
    if (!this.proxy || this.proxy.exitCode !== null) return;
    const ended = once(this.proxy, "close");
    this.proxy.stdout.resume();
    this.proxy.kill();
    await ended;
  }
}

// inWords describes the first evidence of a broken rule, with its requests, and quotes the standard.
function inWords({ rule, title, evidence, quote, see }) {
  const first = evidence[0];
  const moment = (m) => `${m.at.slice(11, 23)} ${m.request}, response: ${m.answer}${m.fault ? `; fault: ${m.fault}` : ""}`;
  return [
    `forgerun: ${rule}: ${title}`,
    `  ${first.found} ${first.expected}`,
    ...[first.before, first.request].filter(Boolean).map((m) => `  ${moment(m)}`),
    `  "${quote}" ${see}`,
  ].join("\n");
}

// judge registers hooks that start a session before each test, and fail the test if its client broke rules.
exports.judge = ({ beforeAll, beforeEach, afterEach, afterAll }) => {
  const judging = !env.FORGERUN_SESSION; // if set, "forgerun verdict" has started this command and judges it
  if (!judging) return;
  const bed = new Bed();
  beforeAll(() => bed.open());
  beforeEach(() => bed.begin());
  afterEach(async () => {
    const broken = await bed.end();
    if (broken) throw new Error(broken);
  });
  afterAll(() => bed.close());
};
