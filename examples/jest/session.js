// Has forgerun verdict judge each test apart from the others: its requests carry its name, in as many workers as there are.
// It is for fetch, and tests that are not concurrent within a file. With axios give the client an interceptor that sets the header.
const path = require("node:path");

const service = process.env.FORGERUN_URL && new URL(process.env.FORGERUN_URL).origin;
const { fetch } = globalThis;

globalThis.fetch = (input, init) => {
  const request = new Request(input, init);
  if (new URL(request.url).origin === service) {
    request.headers.set("ForgeRun-Session", label());
  }
  return fetch(request);
};

function label() {
  const { testPath, currentTestName } = expect.getState();
  const name = `${path.basename(testPath)} ${currentTestName ?? "outside of tests"}`;
  return name.replace(/[^ -~]/g, "?").slice(-200).trim();
}
