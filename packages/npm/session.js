"use strict";

// Judges each test by a session of its own. A test file has a proxy of its own before FORGERUN_TARGET, or is a client of its own of
// the ForgeRun at FORGERUN_URL: files may run at once, the tests of one file follow one another.
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

// Bed is what the tests of one file are judged by.
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

  // end ends the session and returns which rules that say must were broken, as text; with FORGERUN_STRICT also those that say should.
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

// inWords tells of a broken rule what was found first, in which requests, and the sentence of the standard.
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

// judge has hooks of a test framework open a session before each test, and fail it by what it broke.
exports.judge = ({ beforeAll, beforeEach, afterEach, afterAll }) => {
  const judging = !env.FORGERUN_SESSION; // otherwise "forgerun verdict" does, which has started this command
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
