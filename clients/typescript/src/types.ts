import type { components } from "./openapi.js";

/** The schemas of the OpenAPI document, by their names. */
export type Schemas = components["schemas"];

export type JobRequest = Schemas["JobRequest"];
export type JobReceipt = Schemas["JobReceipt"];
export type Job = Schemas["Job"];
export type JobSummary = Schemas["JobSummary"];
export type JobState = Schemas["State"];
export type JobType = Schemas["JobType"];
export type WorkKind = Schemas["WorkKind"];
export type JobChange = Schemas["JobChange"];
export type JobRetry = Schemas["JobRetry"];
export type Report = Schemas["Report"];
export type Attempt = Schemas["Attempt"];
export type Event = Schemas["Event"];
export type FailureDocument = Schemas["FailureDocument"];
export type OutcomeDocument = Schemas["OutcomeDocument"];
export type BatchItemRequest = Schemas["BatchItemRequest"];
export type BatchReceipt = Schemas["BatchReceipt"];
export type Batch = Schemas["Batch"];
export type BatchJob = Schemas["BatchJob"];
export type WebhookRequest = Schemas["WebhookRequest"];
export type IssuedWebhook = Schemas["IssuedWebhook"];
export type Webhook = Schemas["Webhook"];
export type Violation = Schemas["Violation"];
/** The codes of this version. Later versions of the service may add codes. */
export type Code = Schemas["Code"];

const finalStates: ReadonlySet<string> = new Set(["SUCCEEDED", "FAILED", "CANCELED"]);
const finalStatuses: ReadonlySet<string> = new Set(["COMPLETED", "COMPLETED_WITH_ERRORS", "FAILED", "CANCELLED", "TIMED_OUT"]);

/** Whether a job has ended. Unknown states are not final. */
export function isFinal(job: { readonly state: string }): boolean {
  return finalStates.has(job.state);
}

/** Whether a batch is complete. Unknown statuses are not final. */
export function isComplete(batch: { readonly status: string }): boolean {
  return finalStatuses.has(batch.status);
}
