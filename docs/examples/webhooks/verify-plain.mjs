// Says whether a captured webhook delivery is ForgeRun's, with Node alone.
// Reads {method, url, headers, body_base64} from standard input, the secret
// from WEBHOOK_SECRET and the published keys from the file DIRECTORY; at least
// one of the two must be there. Exit code 0 and "ok", or 1 and the reason.
import { createHash, createHmac, createPublicKey, timingSafeEqual, verify as verifyBytes } from "node:crypto";
import { readFileSync } from "node:fs";

const maxAge = 300, skew = 60; // seconds

// verifySecret checks the HMAC made with the secret, and that the message is
// at most five minutes old. The body is the bytes as received.
function verifySecret({ headers, body }, secret, now) {
  const { "webhook-id": id, "webhook-timestamp": timestamp, "webhook-signature": list } = headers;
  if (!id || !list || !/^\d+$/.test(timestamp ?? "")) throw new Error("webhook- headers are missing or malformed");
  if (Math.abs(now - Number(timestamp)) > maxAge) throw new Error("the timestamp is too old or in the future");
  const key = Buffer.from(secret.replace(/^whsec_/, ""), "base64");
  const wanted = createHmac("sha256", key).update(`${id}.${timestamp}.`).update(body).digest();
  const matches = list.split(" ").some((entry) => {
    const [version, value = ""] = entry.split(",");
    const given = Buffer.from(value, "base64");
    return version === "v1" && given.length === wanted.length && timingSafeEqual(given, wanted);
  });
  if (!matches) throw new Error("no signature matches the secret");
}

// verifyKey checks the signature of RFC 9421 under the server's published
// keys. url is the one that was registered, not what a proxy made of it.
// Anything but the form that ForgeRun writes is refused.
function verifyKey({ method, url, headers, body }, directory, now) {
  const input = /(?:^|,\s*)sig1=(\(((?:"[a-z0-9@-]+" ?)+)\)((?:;[a-z]+=(?:"[^"\\]*"|\d+))+))(?:,|$)/.exec(headers["signature-input"] ?? "");
  const signature = /(?:^|,\s*)sig1=:([A-Za-z0-9+/=]+):(?:,|$)/.exec(headers["signature"] ?? "");
  if (!input || !signature) throw new Error("Signature-Input or Signature has no sig1");
  const [, signed, components, parameters] = input;

  const params = Object.fromEntries([...parameters.matchAll(/;([a-z]+)=("?)([^";]*)\2/g)].map(([, name, , value]) => [name, value]));
  if (!(Number(params.created) <= now + skew && Number(params.expires) >= now - skew)) {
    throw new Error("the signature is expired or dated in the future");
  }
  const jwk = directory.keys.find((key) => key.kid === params.keyid && key.crv === "Ed25519");
  if (!jwk || params.alg !== "ed25519") throw new Error("no such key in the directory");

  const covered = [...components.matchAll(/"([^"]+)"/g)].map(([, name]) => name);
  const required = ["@method", "@target-uri", "content-type", "content-digest", "webhook-id",
    ...Object.keys(headers).filter((name) => name.startsWith("ce-"))]; // binary mode
  const missing = required.find((name) => !covered.includes(name));
  if (missing) throw new Error(`the signature does not cover ${missing}`);

  const values = { ...headers, "@method": method, "@target-uri": url };
  const base = covered.map((name) => `"${name}": ${values[name]}\n`).join("") + `"@signature-params": ${signed}`;
  const key = createPublicKey({ key: jwk, format: "jwk" });
  if (!verifyBytes(null, Buffer.from(base), key, Buffer.from(signature[1], "base64"))) throw new Error("the signature does not match");

  const digest = createHash("sha256").update(body).digest("base64");
  if (!headers["content-digest"].split(/,\s*/).includes(`sha-256=:${digest}:`)) {
    throw new Error("the body does not match Content-Digest");
  }
}

const captured = JSON.parse(readFileSync(0, "utf8"));
const { WEBHOOK_SECRET: secret, DIRECTORY: directoryFile } = process.env;
const delivery = {
  method: captured.method,
  url: captured.url,
  headers: Object.fromEntries(Object.entries(captured.headers).map(([name, value]) => [name.toLowerCase(), value])),
  body: Buffer.from(captured.body_base64, "base64"),
};
try {
  const now = Date.now() / 1000;
  if (!secret && !directoryFile) throw new Error("set WEBHOOK_SECRET, DIRECTORY or both");
  if (secret) verifySecret(delivery, secret, now);
  if (directoryFile) verifyKey(delivery, JSON.parse(readFileSync(directoryFile, "utf8")), now);
  console.log("ok");
} catch (error) {
  console.log(error.message);
  process.exitCode = 1;
}
