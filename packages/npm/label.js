"use strict";

// Under "forgerun verdict", adds the name of the test to each request of fetch, so that the verdict judges each test separately. Tests
// that do not use fetch are judged together.
const path = require("node:path");

exports.label = (state) => {
  if (!process.env.FORGERUN_SESSION) return;
  const service = new URL(process.env.FORGERUN_URL).origin;
  const { fetch } = globalThis;
  globalThis.fetch = (input, init) => {
    const request = new Request(input, init);
    if (new URL(request.url).origin === service) request.headers.set("ForgeRun-Session", name(state()));
    return fetch(request);
  };
};

function name({ testPath, currentTestName }) {
  const text = `${path.basename(testPath)} ${currentTestName ?? "outside of tests"}`;
  return text.replace(/[^ -~]/g, "?").slice(-200).trim();
}
