/**
 * Client of ForgeRun: submits jobs, waits for them, follows them, without dependencies. What verifies deliveries is in
 * `@forgerun/client/webhooks`, since that needs Node's crypto.
 */
export { ForgeRun, type JobFilter, type Result } from "./client.js";
export { ForgeRunError, NoAnswerError, type ProblemDocument, ProblemError, type RequestInfo, UnexpectedAnswerError } from "./errors.js";
export type { CallOptions, Options } from "./http.js";
export type { StreamEvent, StreamOptions } from "./stream.js";
export * from "./types.js";
