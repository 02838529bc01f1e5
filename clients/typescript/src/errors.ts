import type { Code, Violation } from "./types.js";

/** The request that an error is about. The URL has no query, because a query may have private values. */
export interface RequestInfo {
  readonly method: string;
  readonly url: string;
  /** Number of requests sent for the call. If there were several, an earlier one may have had an effect. */
  readonly tries: number;
}

/** The base class of all errors of this library, except errors of invalid arguments. */
export abstract class ForgeRunError extends Error {
  readonly method: string;
  readonly url: string;
  readonly tries: number;

  /** Whether the same request, with the same idempotency key, may succeed later. It was already retried, up to `maxTries`. */
  abstract readonly retryable: boolean;

  constructor(message: string, request: RequestInfo, cause?: unknown) {
    super(`${message} (${request.method} ${request.url})`, cause === undefined ? undefined : { cause });
    this.name = new.target.name;
    this.method = request.method;
    this.url = request.url;
    this.tries = request.tries;
  }
}

/** The members of a problem document (RFC 9457). */
export interface ProblemDocument {
  readonly type?: string;
  readonly title?: string;
  readonly detail?: string;
  readonly code?: Code | (string & {});
  readonly violations?: readonly Violation[];
  readonly [extension: string]: unknown;
}

/** The status and headers of a response. */
export interface AnswerInfo {
  /** The HTTP status, even if the document has another. */
  readonly status: number;
  /** `Retry-After` in milliseconds, if there is one. */
  readonly retryAfter: number | undefined;
  /** Give this id to the operator when you report a problem. */
  readonly requestId: string | undefined;
}

/** The service refused the request. The failure of a job is not an error but `job.failure`. */
export class ProblemError extends ForgeRunError {
  readonly retryable: boolean;
  readonly status: number;
  readonly retryAfter: number | undefined;
  readonly requestId: string | undefined;
  /** `RFA_...`; "" if the document has none. */
  readonly code: Code | (string & {});
  readonly title: string;
  readonly detail: string;
  /** All violations in the request. */
  readonly violations: readonly Violation[];
  /** The whole document, including members without a field here, such as the `job_id` of a conflict. */
  readonly document: ProblemDocument;

  constructor(request: RequestInfo, answer: AnswerInfo, document: ProblemDocument) {
    const text = (value: unknown) => (typeof value === "string" ? value : ""); // ignores wrong types (RFC 9457, section 3.1)
    const violations = Array.isArray(document.violations) ? document.violations : [];
    const parts = [`ForgeRun answered ${answer.status}`, text(document.code), text(document.title), text(document.detail)];
    super(printable(parts.filter(Boolean).join(": ")), request);
    this.status = answer.status;
    this.retryAfter = answer.retryAfter;
    this.requestId = answer.requestId;
    this.code = text(document.code);
    this.retryable = passing(answer.status) && this.code !== "RFA_CONFIG_INVALID"; // only the operator can fix that
    this.title = text(document.title);
    this.detail = text(document.detail);
    this.violations = violations;
    this.document = document;
  }
}

/** No complete response arrived. The request may have had its effect. */
export class NoAnswerError extends ForgeRunError {
  readonly retryable = true;

  constructor(request: RequestInfo, cause: unknown) {
    super(printable(`no answer after ${request.tries} ${request.tries === 1 ? "try" : "tries"}: ${reason(cause)}`), request, cause);
  }
}

/** A response that ForgeRun does not send: from a proxy, or from another service. */
export class UnexpectedAnswerError extends ForgeRunError {
  readonly retryable: boolean;
  readonly status: number;
  readonly retryAfter: number | undefined;
  readonly requestId: string | undefined;

  constructor(request: RequestInfo, answer: AnswerInfo, why: string) {
    super(`unexpected answer ${answer.status}: ${why}`, request);
    this.retryable = passing(answer.status);
    this.status = answer.status;
    this.retryAfter = answer.retryAfter;
    this.requestId = answer.requestId;
  }
}

/** Reports whether a status is a temporary failure. */
function passing(status: number): boolean {
  return [429, 502, 503, 504].includes(status);
}

/** Returns the reason of a failed fetch. Its error only says "fetch failed"; the cause has the reason. */
function reason(cause: unknown): string {
  if (!(cause instanceof Error)) return String(cause);
  return cause.cause instanceof Error ? `${cause.message}: ${cause.cause.message}` : cause.message;
}

/** Replaces control characters, which could break or colour a log or terminal. */
function printable(text: string): string {
  return text.replace(/[\u0000-\u001f\u007f-\u009f]/g, " ");
}
