import { NoAnswerError, type AnswerInfo, ProblemError, type ProblemDocument, type RequestInfo, UnexpectedAnswerError } from "./errors.js";

/** How to reach a service. */
export interface Options {
  /** Base address, such as `https://forgerun.example.com`. */
  url: string;
  /** API key, `frk_...`. Public calls need none. */
  apiKey?: string | undefined;
  /** Label of the test bed's session for the requests, such as a test's name. Default: the session without a label. */
  session?: string;
  /** Time limit of one try in milliseconds, plus the time of `Prefer: wait`. Default: 30,000. */
  timeout?: number;
  /** Maximum number of times that one request is sent. Default: 10. */
  maxTries?: number;
  /** Called before each retry, for logging. */
  onRetry?: (error: Error, wait: number) => void;
  /** Replaces the global `fetch`. */
  fetch?: typeof fetch;
  /** Replaces waiting in tests. */
  sleep?: (ms: number, signal?: AbortSignal) => Promise<void>;
}

/** Options of every call. */
export interface CallOptions {
  /** Ends the call. */
  signal?: AbortSignal | undefined;
  /** Idempotency key of a change, instead of a random one. A program that stores the key can repeat the call after a crash. */
  idempotencyKey?: string | undefined;
  /** `X-Correlation-ID`. */
  correlationId?: string | undefined;
  /** Further headers, such as `traceparent`. */
  headers?: Readonly<Record<string, string>> | undefined;
}

/** One call, which may take several tries. */
export interface Call {
  method: string;
  path: string; // after the base address, escaped, with its query
  body?: unknown;
  keyed?: boolean; // has an idempotency key, the same one in all tries
  once?: boolean; // is not retried
  holds?: number; // seconds that the service may delay the response
  headers?: Record<string, string>;
}

/** A complete response with status 2xx or 304. */
export interface Answer {
  readonly status: number;
  readonly headers: Headers;
  readonly body: Uint8Array;
}

const firstWait = 200;
const longestWait = 10_000;
const longestAsked = 90_000; // no retry after a longer wait; a rate limit can ask for 61 s

/** Sends requests to one service, and retries them if that is safe and may help. */
export class Http {
  readonly base: string;
  readonly maxTries: number;
  readonly sleep: (ms: number, signal?: AbortSignal) => Promise<void>;
  readonly #timeout: number;
  readonly #key: string | undefined; // a private field, so that printing the object does not show it
  readonly #session: string | undefined;
  readonly #fetch: typeof fetch;
  readonly #onRetry: (error: Error, wait: number) => void;

  constructor(options: Options) {
    const url = new URL(options.url);
    if (url.protocol !== "http:" && url.protocol !== "https:") throw new TypeError(`the URL must begin with http:// or https://`);
    if (url.username || url.password || url.search || url.hash) throw new TypeError("the URL must not have a user, a query or a fragment");
    this.base = url.origin + url.pathname.replace(/\/+$/, "").replace(/\/v1$/, "");
    this.maxTries = options.maxTries ?? 10;
    this.sleep = options.sleep ?? sleep;
    this.#timeout = options.timeout ?? 30_000;
    this.#key = options.apiKey;
    this.#session = options.session;
    this.#fetch = options.fetch ?? ((...request) => fetch(...request));
    this.#onRetry = options.onRetry ?? (() => undefined);
  }

  /** Sends a request and retries it after temporary failures. */
  async send(call: Call, options: CallOptions = {}): Promise<Answer> {
    const headers = this.headers({ ...call.headers, ...given(options) });
    if (call.keyed) headers["Idempotency-Key"] ??= randomKey();
    let body: string | undefined;
    if (call.body !== undefined) {
      body = JSON.stringify(call.body); // encoded once, because a retry must have the same body
      headers["Content-Type"] = "application/json";
    }
    for (let tries = 1; ; tries++) {
      options.signal?.throwIfAborted();
      try {
        return await this.#try(call, headers, body, tries, options.signal);
      } catch (error) {
        const asked = passing(error) ?? (tries === 1 && statusOf(error) === 401 ? 0 : undefined); // a new key may be unknown at first
        if (options.signal?.aborted || call.once || tries >= this.maxTries || asked === undefined || asked > longestAsked) throw error;
        const wait = Math.max(asked, backoff(tries)) + Math.random() * firstWait;
        this.retrying(error, wait);
        await this.sleep(wait, options.signal);
      }
    }
  }

  async #try(call: Call, headers: Record<string, string>, body: string | undefined, tries: number, signal?: AbortSignal): Promise<Answer> {
    const request = this.info(call, tries);
    const limit = limited(this.#timeout + (call.holds ?? 0) * 1000, signal);
    let response: Response | undefined;
    let bytes = new Uint8Array();
    try {
      response = await this.open(call, headers, limit.signal, body);
      bytes = new Uint8Array(await response.arrayBuffer());
    } catch (cause) {
      if (signal?.aborted) throw signal.reason;
      // A refusal is valid even if its body is incomplete.
      if (response === undefined || response.status < 400) throw new NoAnswerError(request, cause);
    } finally {
      limit.clear();
    }
    if (response.ok || (response.status === 304 && headers["If-None-Match"])) {
      return { status: response.status, headers: response.headers, body: bytes };
    }
    throw refusal(request, response, bytes);
  }

  /** Sends one request, and returns the response when its header has arrived. */
  open(call: Call, headers: Record<string, string>, signal: AbortSignal, body?: string): Promise<Response> {
    const request: RequestInit = { method: call.method, headers, signal }; // fetch does not send the key to another origin on redirects
    if (body !== undefined) request.body = body;
    return this.#fetch(this.base + call.path, request);
  }

  headers(more: Record<string, string>): Record<string, string> {
    const headers: Record<string, string> = { Accept: "application/json, application/problem+json", ...more };
    if (this.#key) headers["Authorization"] = `Bearer ${this.#key}`;
    if (this.#session) headers["ForgeRun-Session"] = this.#session;
    return headers;
  }

  retrying(error: unknown, wait: number): void {
    this.#onRetry(error as Error, wait);
  }

  info(call: Call, tries = 1): RequestInfo {
    return { method: call.method, url: this.base + call.path.replace(/\?.*/s, ""), tries };
  }

  /** Parses the JSON of a response. */
  json<T>(call: Call, answer: Answer): T {
    try {
      return JSON.parse(new TextDecoder().decode(answer.body)) as T;
    } catch {
      throw new UnexpectedAnswerError(this.info(call), about(answer), "it is not JSON");
    }
  }
}

/** Returns the error for a response that is not 2xx. */
export function refusal(request: RequestInfo, response: { status: number; headers: Headers }, body: Uint8Array): Error {
  if (response.status >= 400 && /json/.test(response.headers.get("Content-Type") ?? "")) {
    let document: unknown;
    try {
      document = JSON.parse(new TextDecoder().decode(body));
    } catch {
      document = {}; // the body is incomplete, but the status is known
    }
    if (typeof document === "object" && document !== null) return new ProblemError(request, about(response), document as ProblemDocument);
  }
  return new UnexpectedAnswerError(request, about(response), "it is not a problem document");
}

export function about(answer: { status: number; headers: Headers }): AnswerInfo {
  return { status: answer.status, retryAfter: retryAfter(answer.headers), requestId: answer.headers.get("X-Request-Id") ?? undefined };
}

/** Reads `Retry-After`, seconds or a date, in milliseconds. */
export function retryAfter(headers: Headers): number | undefined {
  const value = headers.get("Retry-After");
  if (value === null) return undefined;
  if (/^\d+$/.test(value)) return Number(value) * 1000;
  const date = Date.parse(value);
  return Number.isNaN(date) ? undefined : Math.max(0, date - Date.now());
}

/**
 * Returns the wait of Retry-After, or 0, if the same request may succeed soon, otherwise undefined. With `lasting`, a 500 also counts as
 * a failure that passes.
 */
export function passing(error: unknown, lasting = false): number | undefined {
  if (error instanceof NoAnswerError) return 0;
  if (!(error instanceof ProblemError || error instanceof UnexpectedAnswerError)) return undefined;
  const limit = error.status === 403 && error.retryAfter !== undefined;
  return error.retryable || limit || (lasting && error.status === 500) ? (error.retryAfter ?? 0) : undefined;
}

/** The status of the response that an error is about. */
export function statusOf(error: unknown): number | undefined {
  return error instanceof ProblemError || error instanceof UnexpectedAnswerError ? error.status : undefined;
}

/** Returns a random wait between half and all of a limit. The limit is 200 ms, doubles with each try, and is at most 10 s. */
export function backoff(tries: number): number {
  return Math.min(longestWait, firstWait * 2 ** (tries - 1)) * (0.5 + Math.random() / 2);
}

export interface Limit {
  readonly signal: AbortSignal;
  readonly clear: () => void;
  readonly pause: () => void;
  readonly restart: () => void;
  readonly abort: () => void;
}

/** Returns a signal that aborts with the given one, or when the time is over. */
export function limited(ms: number, signal?: AbortSignal): Limit {
  const abort = new AbortController();
  const expired = () => abort.abort(new Error(`nothing came within ${ms / 1000} s`));
  const ended = () => abort.abort(signal?.reason);
  let timer = setTimeout(expired, ms);
  if (signal?.aborted) ended();
  signal?.addEventListener("abort", ended);
  const clear = () => {
    clearTimeout(timer);
    signal?.removeEventListener("abort", ended);
  };
  const restart = () => {
    clearTimeout(timer);
    timer = setTimeout(expired, ms);
  };
  return { signal: abort.signal, clear, pause: () => clearTimeout(timer), restart, abort: () => abort.abort() };
}

export function sleep(ms: number, signal?: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    const ended = () => {
      clearTimeout(timer);
      reject(signal?.reason);
    };
    const timer = setTimeout(() => {
      signal?.removeEventListener("abort", ended);
      resolve();
    }, ms);
    if (signal?.aborted) ended();
    signal?.addEventListener("abort", ended, { once: true });
  });
}

function given(options: CallOptions): Record<string, string> {
  const headers: Record<string, string> = { ...options.headers };
  if (options.idempotencyKey !== undefined) headers["Idempotency-Key"] = options.idempotencyKey;
  if (options.correlationId !== undefined) headers["X-Correlation-ID"] = options.correlationId;
  return headers;
}

/** Returns 32 random characters. Math.random is good enough, since the key must be unique but not secret; Node 18 has no global crypto. */
function randomKey(): string {
  const bytes = new Uint8Array(16);
  if (globalThis.crypto) crypto.getRandomValues(bytes);
  else bytes.forEach((_, n) => (bytes[n] = Math.random() * 256));
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}
