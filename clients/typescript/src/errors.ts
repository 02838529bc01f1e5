import type { Code, Violation } from "./types.js";

/** Which request an error is about. The URL is without its query, which can have what a log must not. */
export interface RequestInfo {
  readonly method: string;
  readonly url: string;
  /** How many requests were sent for the call. With more than one, an earlier one may have had an effect. */
  readonly tries: number;
}

/** What all errors of this library have in common, but for those of wrong arguments. */
export abstract class ForgeRunError extends Error {
  readonly method: string;
  readonly url: string;
  readonly tries: number;

  /** Whether the same request, with the same idempotency key, may be answered otherwise later. It was sent as often as `maxTries` says. */
  abstract readonly retryable: boolean;

  constructor(message: string, request: RequestInfo, cause?: unknown) {
    super(`${message} (${request.method} ${request.url})`, cause === undefined ? undefined : { cause });
    this.name = new.target.name;
    this.method = request.method;
    this.url = request.url;
    this.tries = request.tries;
  }
}

/** What a problem document can tell (RFC 9457). */
export interface ProblemDocument {
  readonly type?: string;
  readonly title?: string;
  readonly detail?: string;
  readonly code?: Code | (string & {});
  readonly violations?: readonly Violation[];
  readonly [extension: string]: unknown;
}

/** What the headers of an answer tell. */
export interface AnswerInfo {
  /** The HTTP status, whatever the document says. */
  readonly status: number;
  /** `Retry-After` in milliseconds, if there is one. */
  readonly retryAfter: number | undefined;
  /** To be told to the operator. */
  readonly requestId: string | undefined;
}

/** The service refused the request. The failure of a job is no error: it is `job.failure`. */
export class ProblemError extends ForgeRunError {
  readonly retryable: boolean;
  readonly status: number;
  readonly retryAfter: number | undefined;
  readonly requestId: string | undefined;
  /** `RFA_...`; "" if the document has none. */
  readonly code: Code | (string & {});
  readonly title: string;
  readonly detail: string;
  /** All that is wrong with the request. */
  readonly violations: readonly Violation[];
  /** The whole document, with members that have no field here, such as `job_id` of a conflict. */
  readonly document: ProblemDocument;

  constructor(request: RequestInfo, answer: AnswerInfo, document: ProblemDocument) {
    const text = (value: unknown) => (typeof value === "string" ? value : ""); // of the wrong type: absent (RFC 9457, section 3.1)
    const violations = Array.isArray(document.violations) ? document.violations : [];
    const parts = [`ForgeRun answered ${answer.status}`, text(document.code), text(document.title), text(document.detail)];
    super(printable(parts.filter(Boolean).join(": ")), request);
    this.status = answer.status;
    this.retryAfter = answer.retryAfter;
    this.requestId = answer.requestId;
    this.code = text(document.code);
    this.retryable = passing(answer.status) && this.code !== "RFA_CONFIG_INVALID"; // which only the operator can change
    this.title = text(document.title);
    this.detail = text(document.detail);
    this.violations = violations;
    this.document = document;
  }
}

/** No complete answer came: what the request was to do may have been done or not. */
export class NoAnswerError extends ForgeRunError {
  readonly retryable = true;

  constructor(request: RequestInfo, cause: unknown) {
    super(printable(`no answer after ${request.tries} ${request.tries === 1 ? "try" : "tries"}: ${reason(cause)}`), request, cause);
  }
}

/** An answer that ForgeRun does not give: of something between it and the client, or of another service. */
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

/** Statuses of what may pass by itself. */
function passing(status: number): boolean {
  return [429, 502, 503, 504].includes(status);
}

/** fetch says "fetch failed", and why in the cause. */
function reason(cause: unknown): string {
  if (!(cause instanceof Error)) return String(cause);
  return cause.cause instanceof Error ? `${cause.message}: ${cause.cause.message}` : cause.message;
}

/** Control characters would break or colour a log or terminal. */
function printable(text: string): string {
  return text.replace(/[\u0000-\u001f\u007f-\u009f]/g, " ");
}
