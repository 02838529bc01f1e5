import assert from "node:assert/strict";
import { generateKeyPairSync, sign } from "node:crypto";
import { readFileSync } from "node:fs";
import test from "node:test";

import { Keys, type KeyReader, type ReceivedRequest, SignatureError, signedURI, Verifier } from "../src/webhooks.js";

interface Delivery {
  method: string;
  url: string;
  headers: Record<string, string>;
  body_base64: string;
}

/** Deliveries of a real service, with their keys and secrets. */
const captured = JSON.parse(readFileSync(process.env["DELIVERIES"] ?? "../../client/testdata/deliveries.json", "utf8")) as {
  secret: string;
  structured_secret: string;
  directory: Awaited<ReturnType<KeyReader["signingKeys"]>>;
  deliveries: Record<string, Delivery>;
};
const directory = { signingKeys: async () => captured.directory };

function delivery(name: string) {
  const { method, url, headers, body_base64 } = captured.deliveries[name]!;
  const request = { method, headers, body: new Uint8Array(Buffer.from(body_base64, "base64")) };
  const binary = Object.keys(headers).some((header) => header.toLowerCase() === "ce-id");
  const timestamp = Object.entries(headers).find(([header]) => header.toLowerCase() === "webhook-timestamp")![1];
  return { request, url, secret: binary ? captured.secret : captured.structured_secret, now: () => Number(timestamp) * 1000 };
}

const lower = (request: ReceivedRequest) =>
  Object.fromEntries(Object.entries(request.headers as Record<string, string>).map(([name, value]) => [name.toLowerCase(), value]));

test("deliveries of a real service are verified, in both content modes", async () => {
  for (const name of Object.keys(captured.deliveries)) {
    const { request, url, secret, now } = delivery(name);
    for (const options of [{ secret }, { keys: new Keys(directory), url }, { secret, keys: new Keys(directory), url }]) {
      const message = await new Verifier({ ...options, now }).verify(request);
      assert.equal(message.name, name);
      assert.equal(message.webhookId, lower(request)["webhook-id"]);
      if (name.startsWith("job.")) assert.equal(message.jobId, (message.data as { jobId: string }).jobId);
    }
    assert.equal((await new Verifier({ secret, now }).verify({ ...request, headers: new Headers(lower(request)) })).name, name);
  }
});

test("what was changed is refused", async () => {
  const { request, url, secret, now } = delivery("job.failed");
  const headers = lower(request);
  const refused = async (verifier: Verifier, changed: Partial<ReceivedRequest>, why: string) =>
    assert.rejects(verifier.verify({ ...request, headers, ...changed }), SignatureError, why);
  const bySecret = new Verifier({ secret, now });
  const byKey = new Verifier({ keys: new Keys(directory), url, now });
  for (const verifier of [bySecret, byKey]) {
    await verifier.verify({ ...request, headers });
    await refused(verifier, { body: Buffer.concat([request.body, Buffer.from(" ")]) }, "a longer body");
    await refused(verifier, { headers: { ...headers, "webhook-id": "x" } }, "another id");
    await refused(verifier, { headers: {} }, "no headers");
  }
  for (const shift of [-301, 301]) {
    await refused(new Verifier({ secret, now: () => now() + shift * 1000 }), {}, "too old or in the future");
  }
  await refused(bySecret, { headers: { ...headers, "webhook-signature": "v1," } }, "an empty signature");
  const signature = headers["webhook-signature"]!;
  await refused(bySecret, { headers: { ...headers, "webhook-signature": signature.replace("v1,", "v2,") } }, "of another kind");
  await refused(new Verifier({ secret: `whsec_${Buffer.from("x").toString("base64")}`, now }), {}, "another secret");
  await bySecret.verify({ ...request, headers: { ...headers, "webhook-signature": `v1,AAAA ${signature}` } });

  await refused(byKey, { method: "PUT" }, "another method");
  await refused(byKey, { headers: { ...headers, "ce-type": "job.succeeded" } }, "another ce- header");
  await refused(byKey, { headers: { ...headers, "ce-tenant": "x" } }, "one ce- header more");
  await refused(byKey, { headers: { ...headers, "content-type": "text/plain" } }, "another type");
  await refused(byKey, { headers: { ...headers, signature: `sig1=:${Buffer.alloc(64).toString("base64")}:` } }, "a signature of zeros");
  await refused(new Verifier({ keys: new Keys(directory), url: `${url}x`, now }), {}, "another URL");
  await refused(new Verifier({ keys: new Keys(directory), url, now: () => now() + 361_000 }), {}, "expired");
  await refused(new Verifier({ keys: { key: async () => undefined }, url, now }), {}, "a key that is not published");
  const unavailable = new Verifier({ keys: { key: () => Promise.reject(new Error("away")) }, url, now });
  await assert.rejects(unavailable.verify(request), (error) => !(error instanceof SignatureError));
});

test("a signature counts only if it covers what it must", async () => {
  const { publicKey, privateKey } = generateKeyPairSync("ed25519");
  const { request, url, now } = delivery("job.failed");
  const plain = lower(request);
  const attributes = Object.keys(plain).filter((name) => name.startsWith("ce-"));
  const components = ["@method", "@target-uri", "content-type", "content-digest", "webhook-id", ...attributes];
  const verifier = new Verifier({ keys: { key: async () => publicKey }, url, now });
  const signed = (names: string[], more = 'alg="ed25519"') => {
    const value = (name: string) => (name === "@method" ? "POST" : name === "@target-uri" ? url : plain[name]);
    const seconds = now() / 1000;
    const input = `(${names.map((name) => `"${name}"`).join(" ")});created=${seconds};expires=${seconds + 300};keyid="k";${more}`;
    const base = names.map((name) => `"${name}": ${value(name)}\n`).join("") + `"@signature-params": ${input}`;
    const signature = sign(null, Buffer.from(base), privateKey).toString("base64");
    const two = { "signature-input": `x=("@method");created=1;expires=2, s.1=${input}`, signature: `x=:AA==:, s.1=:${signature}:` };
    return { ...request, headers: { ...plain, ...two } };
  };
  await verifier.verify(signed(components));
  for (const name of components) {
    await assert.rejects(verifier.verify(signed(components.filter((other) => other !== name))), SignatureError, name);
  }
  await assert.rejects(verifier.verify(signed(["webhook-id", ...components])), SignatureError, "twice the same");
  await assert.rejects(verifier.verify(signed(components, 'alg="hmac-sha256"')), SignatureError, "another algorithm");
});

test("the URL is brought into the form that is signed", () => {
  for (const [given, wanted] of [
    ["https://example.com", "https://example.com/"], ["HTTPS://Example.COM:443?x=1", "https://example.com/?x=1"],
    ["http://example.com:443/", "http://example.com:443/"], ["http://example.com:80/A?B#c", "http://example.com/A?B"],
    ["https://example.com/ä?q=ü", "https://example.com/%C3%A4?q=%C3%BC"], ["https://example.com//a/./..", "https://example.com//a/./.."],
  ] as const) assert.equal(signedURI(given), wanted);
  assert.throws(() => new Verifier({}), TypeError);
  assert.throws(() => new Verifier({ keys: new Keys(directory) }), TypeError);
  assert.throws(() => new Verifier({ secret: "whsec_" }), TypeError);
});

test("keys are kept, and read again for one that is new", async () => {
  let time = 0;
  let reads = 0;
  let failing = false;
  const known = captured.directory.keys[0]!.kid;
  const keys = new Keys({
    signingKeys: async () => {
      reads++;
      if (failing) throw new Error("away");
      return captured.directory;
    },
  }, () => time);
  await Promise.all([keys.key(known), keys.key(known)]);
  assert.equal(reads, 1);
  assert.equal(await keys.key("other"), undefined);
  assert.equal(reads, 1, "not more than once a minute");
  time += 60_000;
  assert.equal(await keys.key("other"), undefined);
  assert.equal(reads, 2);
  failing = true;
  time += 5 * 60_000;
  assert.ok(await keys.key(known), "old keys stay in use");
  await assert.rejects(keys.key("other"), "it may be a new one");
  time += 60 * 60_000;
  await assert.rejects(keys.key(known));
});
