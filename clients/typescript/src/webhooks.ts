/** Verifies webhook deliveries and callbacks, as docs/reference/webhooks.md of ForgeRun describes. Needs Node's crypto. */
import { Buffer } from "node:buffer";
import { createHash, createHmac, createPublicKey, type JsonWebKey, type KeyObject } from "node:crypto";
import { timingSafeEqual, verify as verifyBytes } from "node:crypto";

/** Headers as Node (`request.headers`) or the Fetch API (`request.headers`) have them. */
export type ReceivedHeaders = Headers | Readonly<Record<string, string | readonly string[] | undefined>>;

/** A received request. The body must be the original bytes, not parsed and encoded again. */
export interface ReceivedRequest {
  readonly method: string;
  readonly headers: ReceivedHeaders;
  readonly body: Uint8Array;
}

/** The message is forged, changed or too old: answer 401. After any other error answer 503, and the message is sent again. */
export class SignatureError extends Error {
  override name = "SignatureError";
}

/** A verified delivery. */
export interface WebhookMessage {
  /** The same each time the delivery is sent. Store it to recognize duplicates. */
  readonly webhookId: string;
  readonly eventId: string;
  /** `job.failed`, ... */
  readonly name: string;
  readonly source: string;
  readonly subject: string;
  readonly time: string;
  /** Position in the job's log, from 1; undefined for messages without a job. */
  readonly sequence: number | undefined;
  /** Undefined for messages without a job. */
  readonly jobId: string | undefined;
  /** For messages about jobs and batches, an outcome document. */
  readonly data: unknown;
}

/** Options of a `Verifier`. At least one of `secret` and `keys` is required. */
export interface VerifierOptions {
  /**
   * The secret of the webhook, `whsec_...` (Standard Webhooks). It proves that the message belongs to that webhook. It does not protect
   * `ce-` headers. In binary content mode, all fields except `webhookId` and `data` come from these headers.
   */
  secret?: string;
  /**
   * The published keys (RFC 9421, ed25519). They prove that ForgeRun sent exactly this message to `url`, but not for which client: any
   * client can use your URL as a callback. A callback has no secret, so check that you submitted the job `jobId` before you act.
   */
  keys?: KeySource;
  /** The registered URL, not one rewritten by a proxy. Required with `keys`. */
  url?: string;
  /** Replaces `Date.now` in tests. */
  now?: () => number;
}

/** Finds a published key by its id; undefined if there is none. */
export interface KeySource {
  key(id: string): Promise<KeyObject | undefined>;
}

const maxAge = 300; // seconds, by webhook-timestamp
const skew = 60; // seconds; allowed clock difference for created and expires
const maxEntries = 16; // maximum number of signatures to try
const mustCover = ["@method", "@target-uri", "content-type", "content-digest", "webhook-id"];

/** Checks the signatures of deliveries. */
export class Verifier {
  readonly #secret: Buffer | undefined;
  readonly #keys: KeySource | undefined;
  readonly #target: string;
  readonly #now: () => number;

  constructor(options: VerifierOptions) {
    if (options.secret === undefined && !options.keys) throw new TypeError("a Verifier needs a secret, keys or both");
    if (options.keys && !options.url) throw new TypeError("a Verifier with keys needs the URL that was registered");
    if (options.secret !== undefined) {
      this.#secret = Buffer.from(options.secret.replace(/^whsec_/, ""), "base64");
      if (this.#secret.length === 0) throw new TypeError("the secret must be whsec_ followed by base64");
    }
    this.#keys = options.keys;
    this.#target = options.url ? signedURI(options.url) : "";
    this.#now = options.now ?? Date.now;
  }

  /** Verifies a request with the secret and the keys, if set, and returns its message. */
  async verify(request: ReceivedRequest): Promise<WebhookMessage> {
    const headers = lowered(request.headers);
    if (this.#secret) this.#verifySecret(this.#secret, headers, request.body);
    if (this.#keys) await this.#verifyKey(this.#keys, request.method, headers, request.body);
    return read(headers, request.body);
  }

  #verifySecret(secret: Buffer, headers: Fields, body: Uint8Array): void {
    const id = headers.get("webhook-id") ?? "";
    const timestamp = headers.get("webhook-timestamp") ?? "";
    // Dots separate the signed parts. With a dot in the id, the same text could be split differently into id, time and body.
    if (id === "" || id.includes(".") || !/^\d{1,12}$/.test(timestamp)) {
      throw new SignatureError("webhook-id or webhook-timestamp is missing or wrong");
    }
    if (Math.abs(this.#now() / 1000 - Number(timestamp)) > maxAge) throw new SignatureError("its timestamp is too old or in the future");
    const wanted = createHmac("sha256", secret).update(`${id}.${timestamp}.`).update(body).digest();
    const entries = (headers.get("webhook-signature") ?? "").split(/\s+/).slice(0, maxEntries);
    const matches = entries.some((entry) => {
      const given = Buffer.from(entry.replace(/^v1,/, ""), "base64");
      return entry.startsWith("v1,") && given.length === wanted.length && timingSafeEqual(given, wanted);
    });
    if (!matches) throw new SignatureError("no signature matches the secret");
  }

  async #verifyKey(keys: KeySource, method: string, headers: Fields, body: Uint8Array): Promise<void> {
    const digest = `sha-256=:${createHash("sha256").update(body).digest("base64")}:`;
    if (!(headers.get("content-digest") ?? "").split(/,\s*/).includes(digest)) {
      throw new SignatureError("the body does not match Content-Digest");
    }
    let refused = new SignatureError("it has no signature");
    for (const input of inputs(headers).slice(0, maxEntries)) {
      try {
        const { base, keyId, signature } = this.#signed(input, method, headers);
        const key = await keys.key(keyId);
        if (!key) throw new SignatureError("the signature's key is not published");
        if (!verifyBytes(null, base, key, signature)) throw new SignatureError("the signature does not match");
        return;
      } catch (error) {
        if (!(error instanceof SignatureError)) throw error;
        refused = error;
      }
    }
    throw refused;
  }

  /** Returns the signed text (RFC 9421, section 2.5), the id of the key, and the signature. */
  #signed(input: Input, method: string, headers: Fields): { base: Buffer; keyId: string; signature: Buffer } {
    const now = this.#now() / 1000;
    const { created, expires, alg, keyid = "" } = input.params;
    if (!(Number(created) <= now + skew && Number(expires) >= now - skew)) {
      throw new SignatureError("the signature is expired or dated in the future");
    }
    if (alg !== "ed25519") throw new SignatureError("the signature's algorithm is not ed25519");
    const required = [...mustCover, ...[...headers.keys()].filter((name) => name.startsWith("ce-"))];
    const missing = required.filter((name) => !input.components.includes(name));
    if (missing.length > 0) throw new SignatureError(`the signature does not cover ${missing.join(", ")}`);
    if (new Set(input.components).size < input.components.length) throw new SignatureError("a component is signed twice");
    const lines = input.components.map((name) => {
      const value = name === "@method" ? method : name === "@target-uri" ? this.#target : headers.get(name);
      if (value === undefined) throw new SignatureError(`there is no component ${name}`);
      return `"${name}": ${value}\n`;
    });
    const member = (headers.get("signature") ?? "").split(/,\s*/).find((text) => text.startsWith(`${input.name}=:`)) ?? "";
    const signature = Buffer.from(member.slice(input.name.length + 2).replace(/:$/, ""), "base64");
    if (signature.length !== 64) throw new SignatureError("the Signature header has no valid signature for the entry in Signature-Input");
    return { base: Buffer.from(`${lines.join("")}"@signature-params": ${input.signed}`), keyId: keyid, signature };
  }
}

/** A member of Signature-Input in ForgeRun's form. Members in other forms are skipped. */
interface Input {
  name: string;
  signed: string;
  components: string[];
  params: Record<string, string | undefined>;
}

function inputs(headers: Fields): Input[] {
  const member = /(?:^|,\s*)([a-z*][a-z0-9_.*-]*)=(\(((?:"[a-z0-9@-]+" ?)*)\)((?:;[a-z]+=(?:"[^"\\]*"|\d+))+))(?=\s*,|$)/g;
  return [...(headers.get("signature-input") ?? "").matchAll(member)].map(([, name = "", signed = "", components = "", params = ""]) => ({
    name,
    signed,
    components: [...components.matchAll(/"([^"]+)"/g)].map((match) => match[1] ?? ""),
    params: Object.fromEntries([...params.matchAll(/;([a-z]+)=(?:"([^"]*)"|(\d+))/g)].map((match) => [match[1], match[2] ?? match[3]])),
  }));
}

/** Normalizes a URL as the service does for signing: scheme and host in lower case, no default port, a path, no fragment, ASCII only. */
export function signedURI(url: string): string {
  const [, scheme = "", host = "", path = "", search = ""] = /^(https?):\/\/([^/?#]+)([^?#]*)(\?[^#]*)?/i.exec(url) ?? [];
  if (host === "") throw new TypeError("the URL must begin with http:// or https:// and a host");
  const port = scheme.toLowerCase() === "https" ? /:443$/ : /:80$/;
  const ascii = (path || "/").concat(search).replace(/[^\x21-\x7e]+/g, encodeURIComponent);
  return `${scheme.toLowerCase()}://${host.toLowerCase().replace(port, "")}${ascii}`;
}

/** Headers by lower-case name. Values of the same name are joined. */
type Fields = ReadonlyMap<string, string>;

function lowered(headers: ReceivedHeaders): Fields {
  if (headers instanceof Headers) return new Map([...headers].map(([name, value]) => [name.toLowerCase(), value]));
  const fields = new Map<string, string>();
  for (const [name, value] of Object.entries(headers)) {
    if (value !== undefined) fields.set(name.toLowerCase(), typeof value === "string" ? value : value.join(", "));
  }
  return fields;
}

/** Parses the CloudEvent in binary or structured mode. */
function read(headers: Fields, body: Uint8Array): WebhookMessage {
  let json: unknown;
  try {
    json = JSON.parse(new TextDecoder("utf-8", { fatal: true }).decode(body));
  } catch {
    throw new SignatureError("it is signed, but not JSON");
  }
  const structured = /^application\/cloudevents\+json\b/i.test(headers.get("content-type") ?? "");
  const attributes = [...headers].filter(([name]) => name.startsWith("ce-")).map(([name, value]) => [name.slice(3), value] as const);
  const event = (structured ? json : Object.fromEntries(attributes)) as Record<string, unknown>;
  if (typeof event !== "object" || event === null) throw new SignatureError("it is signed, but no CloudEvent");
  const text = (name: string) => (typeof event[name] === "string" ? event[name] : "");
  if (!text("id") || !text("type")) throw new SignatureError("it is signed, but no CloudEvent: it has no id or no type");
  const sequence = Number(text("sequence"));
  return {
    webhookId: headers.get("webhook-id") ?? "",
    eventId: text("id"),
    name: text("type"),
    source: text("source"),
    subject: text("subject"),
    time: text("time"),
    sequence: Number.isInteger(sequence) && sequence > 0 ? sequence : undefined,
    jobId: /^jobs\/(.+)$/.exec(text("subject"))?.[1],
    data: structured ? event["data"] : json,
  };
}

/** Reads the published keys. `ForgeRun` implements it. */
export interface KeyReader {
  signingKeys(options: { signal: AbortSignal }): Promise<{ keys: readonly { kty: string; crv: string; kid: string; x: string }[] }>;
}

const keepKeys = 5 * 60_000;
const askAgain = 60_000; // wait before another read for an unknown key
const afterError = 5_000;
const useOldKeys = 60 * 60_000; // keys stay valid for this time while reads fail
const waitForKeys = 10_000;

/** Caches the published keys of a service for five minutes. For an unknown key it reads them again, at most once a minute. */
export class Keys implements KeySource {
  readonly #reader: KeyReader;
  readonly #now: () => number;
  #keys = new Map<string, KeyObject>();
  #read = -Infinity;
  #next = -Infinity; // time of the next allowed read
  #asking: Promise<void> | undefined;
  #error: unknown;

  constructor(reader: KeyReader, now: () => number = Date.now) {
    this.#reader = reader;
    this.#now = now;
  }

  async key(id: string): Promise<KeyObject | undefined> {
    const fresh = this.#now() - this.#read < keepKeys;
    if (!(fresh && this.#keys.has(id)) && (this.#asking || this.#now() >= this.#next)) {
      await (this.#asking ??= this.#ask().finally(() => (this.#asking = undefined)));
    }
    const found = this.#keys.get(id);
    // While reads fail, an unknown key may be a new one, so throw the read's error instead of refusing the message.
    if (this.#error !== undefined && (!found || this.#now() - this.#read >= useOldKeys)) throw this.#error;
    return found;
  }

  async #ask(): Promise<void> {
    const now = this.#now();
    try {
      const { keys } = await this.#reader.signingKeys({ signal: AbortSignal.timeout(waitForKeys) });
      const known = keys.filter((key) => key.kty === "OKP" && key.crv === "Ed25519");
      this.#keys = new Map(known.map((key) => [key.kid, createPublicKey({ key: key as unknown as JsonWebKey, format: "jwk" })]));
      this.#error = undefined;
      this.#read = now;
      this.#next = now + askAgain;
    } catch (error) {
      this.#error = error;
      this.#next = now + afterError;
    }
  }
}
