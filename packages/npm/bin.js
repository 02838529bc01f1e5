#!/usr/bin/env node
"use strict";

const { spawn } = require("node:child_process");
const { path } = require("./binary.js");

let program;
try {
  program = spawn(path(), process.argv.slice(2), { stdio: "inherit" });
} catch (error) {
  console.error(error.message);
  process.exit(2);
}
program.on("error", (error) => {
  console.error(error.message);
  process.exit(2);
});
// The terminal sends Ctrl-C to the program too. Ignore it here: this process ends when the program ends.
process.on("SIGINT", () => {});
for (const signal of ["SIGTERM", "SIGHUP"]) process.on(signal, () => program.kill(signal));
program.on("exit", (code, signal) => {
  if (signal) {
    process.removeAllListeners(signal);
    process.kill(process.pid, signal);
  } else {
    process.exit(code);
  }
});
