import { NoAnswerError, type AnswerInfo, ProblemError, type ProblemDocument, type RequestInfo, UnexpectedAnswerError } from "./errors.js";

/** How to reach a service. */
export interface Options {
  /** Base address, such as `https://forgerun.example.com`. */
  url: string;
  /** API key, `frk_...`. Without it only public calls are answered. */
  apiKey?: string | undefined;
  /** Label of the test bed's session to which the requests belong, if not to the one without a label: that of a test. */
  session?: string;
  /** How long one try may take, in milliseconds, beside what `Prefer: wait` adds. 30,000 without it. */
  timeout?: number;
  /** How often one request is sent at most. 10 without it. */
  maxTries?: number;
  /** Called before a request is sent again, for a log. */
  onRetry?: (error: Error, wait: number) => void;
  /** In place of the global `fetch`. */
  fetch?: typeof fetch;
  /** Waits; for tests. */
  sleep?: (ms: number, signal?: AbortSignal) => Promise<void>;
}

/** What every call takes. */
export interface CallOptions {
  /** Ends the call. */
  signal?: AbortSignal | undefined;
  /** In place of a random key, for what is created or changed: a program that stores it can repeat the call after a crash of its own. */
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
  keyed?: boolean; // with an idempotency key: the same one in all tries
  once?: boolean; // not to be repeated
  holds?: number; // for how many seconds the service may hold the answer back
  headers?: Record<string, string>;
}

/** A complete answer of 2xx or 304. */
export interface Answer {
  readonly status: number;
  readonly headers: Headers;
  readonly body: Uint8Array;
}

const firstWait = 200;
const longestWait = 10_000;
const longestAsked = 90_000; // a request is not repeated if it has to wait longer; a rate limit can say 61 s

/** Sends requests to one service, again where that is safe and may help. */
export class Http {
  readonly base: string;
  readonly maxTries: number;
  readonly sleep: (ms: number, signal?: AbortSignal) => Promise<void>;
  readonly #timeout: number;
  readonly #key: string | undefined; // private, so that no console shows it
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

  /** Sends a request until there is an answer that counts. */
  async send(call: Call, options: CallOptions = {}): Promise<Answer> {
    const headers = this.headers({ ...call.headers, ...given(options) });
    if (call.keyed) headers["Idempotency-Key"] ??= randomKey();
    let body: string | undefined;
    if (call.body !== undefined) {
      body = JSON.stringify(call.body); // once: a repetition must have the same body
      headers["Content-Type"] = "application/json";
    }
    for (let tries = 1; ; tries++) {
      options.signal?.throwIfAborted();
      try {
        return await this.#try(call, headers, body, tries, options.signal);
      } catch (error) {
        const asked = passing(error) ?? (tries === 1 && statusOf(error) === 401 ? 0 : undefined); // a new key may not be known everywhere
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
      // That a request was refused is known without the rest of the answer's body.
      if (response === undefined || response.status < 400) throw new NoAnswerError(request, cause);
    } finally {
      limit.clear();
    }
    if (response.ok || (response.status === 304 && headers["If-None-Match"])) {
      return { status: response.status, headers: response.headers, body: bytes };
    }
    throw refusal(request, response, bytes);
  }

  /** Sends one request, and gives its answer when that begins. */
  open(call: Call, headers: Record<string, string>, signal: AbortSignal, body?: string): Promise<Response> {
    const request: RequestInit = { method: call.method, headers, signal }; // fetch sends the key to no other origin
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

  /** Reads the JSON of an answer. */
  json<T>(call: Call, answer: Answer): T {
    try {
      return JSON.parse(new TextDecoder().decode(answer.body)) as T;
    } catch {
      throw new UnexpectedAnswerError(this.info(call), about(answer), "it is not JSON");
    }
  }
}

/** Makes an error of an answer that is not 2xx. */
export function refusal(request: RequestInfo, response: { status: number; headers: Headers }, body: Uint8Array): Error {
  if (response.status >= 400 && /json/.test(response.headers.get("Content-Type") ?? "")) {
    let document: unknown;
    try {
      document = JSON.parse(new TextDecoder().decode(body));
    } catch {
      document = {}; // cut off: the status is known
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
 * Whether the same request may be answered otherwise soon: then the wait that the answer asks for, 0 without one. `lasting` is for
 * those who outlast a failure of the service, a 500, too.
 */
export function passing(error: unknown, lasting = false): number | undefined {
  if (error instanceof NoAnswerError) return 0;
  if (!(error instanceof ProblemError || error instanceof UnexpectedAnswerError)) return undefined;
  const limit = error.status === 403 && error.retryAfter !== undefined;
  return error.retryable || limit || (lasting && error.status === 500) ? (error.retryAfter ?? 0) : undefined;
}

/** The status of the answer that an error is about. */
export function statusOf(error: unknown): number | undefined {
  return error instanceof ProblemError || error instanceof UnexpectedAnswerError ? error.status : undefined;
}

/** Between a half and the whole of 200 ms, doubled with each try, up to 10 s. */
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

/** A signal that ends with the given one, or when the time is over. */
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

/** 32 random characters. The key is no secret: it must only not come again. Node 18 has no global crypto. */
function randomKey(): string {
  const bytes = new Uint8Array(16);
  if (globalThis.crypto) crypto.getRandomValues(bytes);
  else bytes.forEach((_, n) => (bytes[n] = Math.random() * 256));
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}
