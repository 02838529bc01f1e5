// Says whether a captured webhook delivery is ForgeRun's, with the npm packages
// standardwebhooks and http-message-signatures. Reads {method, url, headers,
// body_base64} from standard input, the secret from WEBHOOK_SECRET and the
// published keys from the file DIRECTORY; at least one of the two must be
// there. Exit code 0 and "ok", or 1 and the reason.
import { createHash, createPublicKey, verify as verifyBytes } from "node:crypto";
import { readFileSync } from "node:fs";
import signatures from "http-message-signatures";
import { Webhook } from "standardwebhooks";

// verifySecret checks the HMAC made with the secret, and that the message is
// at most five minutes old. The body is the bytes as received.
function verifySecret({ headers, body }, secret) {
  new Webhook(secret).verify(body, headers);
}

// verifyKey checks the signature of RFC 9421 under the server's published
// keys. url is the one that was registered, not what a proxy made of it.
async function verifyKey({ method, url, headers, body }, directory) {
  const verified = await signatures.httpbis.verifyMessage(
    {
      requiredParams: ["created", "expires", "keyid", "alg"],
      requiredFields: [
        "@method", "@target-uri", "content-type", "content-digest", "webhook-id",
        ...Object.keys(headers).filter((name) => name.startsWith("ce-")), // binary mode
      ],
      tolerance: 60, // seconds by which the clocks may differ
      keyLookup({ keyid }) {
        const jwk = directory.keys.find((key) => key.kid === keyid && key.crv === "Ed25519");
        if (!jwk) return null;
        const key = createPublicKey({ key: jwk, format: "jwk" });
        return { id: keyid, algs: ["ed25519"], verify: async (base, signature) => verifyBytes(null, base, key, signature) };
      },
    },
    { method, url, headers },
  );
  if (verified !== true) throw new Error("no signature of a published key matches");
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
  if (!secret && !directoryFile) throw new Error("set WEBHOOK_SECRET, DIRECTORY or both");
  if (secret) verifySecret(delivery, secret);
  if (directoryFile) await verifyKey(delivery, JSON.parse(readFileSync(directoryFile, "utf8")));
  console.log("ok");
} catch (error) {
  console.log(error.message);
  process.exitCode = 1;
}
