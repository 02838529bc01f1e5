"use strict";

// For globalSetup of Jest and Vitest: starts a ForgeRun for the run, unless FORGERUN_URL or FORGERUN_TARGET names a server. It needs
// Postgres and Redis on this machine, and keeps their data in a temporary folder. At the end of the run, Vitest calls the returned
// function. For Jest, set globalTeardown to "forgerun/service-end".
const { spawn } = require("node:child_process");
const { once } = require("node:events");
const fs = require("node:fs");
const os = require("node:os");
const { join } = require("node:path");
const { setTimeout: pause } = require("node:timers/promises");
const { path } = require("./binary.js");

let service;

module.exports = async () => {
  const { env } = process;
  if (env.FORGERUN_URL || env.FORGERUN_TARGET) return undefined;
  const data = fs.mkdtempSync(join(os.tmpdir(), "forgerun-"));
  const settings = { FORGERUN_HTTP_ADDR: "127.0.0.1:0", FORGERUN_ADMIN_ADDR: "127.0.0.1:0", FORGERUN_DATA_DIR: data };
  service = spawn(path(), ["dev"], {
    stdio: ["ignore", "ignore", "inherit"], env: { FORGERUN_TIME_SCALE: "0.02", ...env, ...settings },
  });
  service.data = data;
  const failed = once(service, "error").then(([error]) => { throw error; });
  const ready = join(data, "dev.json"); // dev writes this file when it is ready
  while (!fs.existsSync(ready)) {
    if (service.exitCode !== null) throw new Error(`forgerun dev ended with ${service.exitCode}`);
    await Promise.race([pause(50), failed]);
  }
  failed.catch(() => {});
  env.FORGERUN_URL = JSON.parse(fs.readFileSync(ready, "utf8")).url;
  return end;
};

async function end() {
  if (!service) return;
  if (service.exitCode === null) {
    const ended = once(service, "exit");
    service.kill();
    await ended;
  }
  fs.rmSync(service.data, { recursive: true, force: true });
}

module.exports.end = end;
