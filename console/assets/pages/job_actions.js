// Actions on a job, including submitting it again.
import { post } from "../api.js";
import { confirm } from "../dialogs.js";
import { h } from "../dom.js";
import { serviceNow } from "../format.js";
import { write } from "../exact.js";
import { copyButton, note } from "../parts.js";
import { DOES, one, override } from "./bulk_actions.js";

export async function retry(job, context) {
  const hint = job.can_retry ? "The job is queued for its next attempt, which starts after a backoff."
    : "This overrides the rules: the job's failure is not retryable, or no attempts are left.";
  await confirm({ title: "Retry this job?", text: hint, action: "Retry", fields: [override()], act: form => one.retry(job.job_id, form.has("override")) });
  context.refresh();
}

export async function cancel(job, context) {
  await confirm({ title: "Cancel this job?", text: job.state === "RUNNING" ? "The job is canceled immediately, and the worker stops it." : "The job is canceled immediately and will not run.",
    action: "Cancel the job", danger: true, act: () => one.cancel(job.job_id) });
  context.refresh();
}

export async function destroy(job, context) {
  const done = await confirm({ title: "Delete this job?", text: DOES.delete, action: "Delete", danger: true, act: () => one.delete(job.job_id).then(() => true) });
  if (done) context.go("#/jobs");
}

// submissionOf returns a request that submits the job again. Masked parameters stay masked.
export function submissionOf(job) {
  const submission = { type: job.type };
  if (job.type === "EMIT_EVENT") {
    const emitted = job.events.find(e => e.event_name === "event.emitted");
    submission.event = { name: emitted?.data?.name || "name", data: emitted?.data?.data };
  } else if (job.work_kind) submission.work_kind = job.work_kind;
  if (job.type === "DEFERRED") submission.execution_at = new Date(serviceNow() + 60000).toISOString();
  if (job.params) submission.params = job.params;
  if (job.callback) submission.callback = job.callback;
  if (job.auto_retry) submission.auto_retry = true;
  if (job.correlation_id && /^[A-Za-z0-9._-]+$/.test(job.correlation_id)) submission.correlation_id = job.correlation_id;
  return submission;
}

export const hides = job => write(job.params ?? null).includes("\"***\"") || (job.callback ?? "").includes("=***");

export async function submitAgain(job, context) {
  const submission = submissionOf(job);
  const made = await confirm({ title: "Submit it again?", action: "Submit",
    text: [h("p", {}, "A new job of the same client:"), h("pre", {}, write(submission, "  ")),
      hides(job) ? note("warn", h("p", {}, "Values that show as *** are hidden here; they would be sent as ***. To fill them in, use “Edit and submit”.")) : ""],
    act: () => post("jobs", { client_id: job.client_id, job: submission }) });
  if (made) context.go(`#/jobs/${made.job_id}?submitted`);
}

export function copies(job) {
  const submission = submissionOf(job);
  return [h("p", { class: "quiet" }, "$FORGERUN is the address of the public API, $KEY a key of the client.", hides(job) ? " Values that show as *** are hidden: fill them in." : ""),
    h("div", { class: "toolbar" }, copyButton(() => curlOf(submission), "Copy as curl"), copyButton(() => goOf(submission), "Copy as Go"), copyButton(() => write(submission, "  "), "Copy JSON")),
    h("details", {}, h("summary", {}, "curl"), h("pre", {}, curlOf(submission))), h("details", {}, h("summary", {}, "Go"), h("pre", {}, goOf(submission)))];
}

export const quoted = text => "'" + text.replaceAll("'", "'\\''") + "'";

export function curlOf(submission) {
  return `curl -X POST "$FORGERUN/v1/jobs" -H "Authorization: Bearer $KEY" -H 'Content-Type: application/json' \\\n  -d ${quoted(write(submission))}`;
}

// raw returns a Go literal: JSON in backquotes, unless it contains backquotes.
const raw = value => {
  const text = write(value);
  return text.includes("`") ? JSON.stringify(text) : "`" + text + "`";
};

export function goOf(submission) {
  const members = [`Type: ${JSON.stringify(submission.type)}`];
  if (submission.work_kind) members.push(`WorkKind: ${JSON.stringify(submission.work_kind)}`);
  if (submission.execution_at) members.push("ExecutionAt: time.Now().Add(time.Minute)");
  if (submission.params) members.push(`Params: json.RawMessage(${raw(submission.params)})`);
  if (submission.event) members.push(`Event: &client.Emission{Name: ${JSON.stringify(submission.event.name)}, Data: json.RawMessage(${raw(submission.event.data ?? null)})}`);
  if (submission.callback) members.push(`Callback: ${JSON.stringify(submission.callback)}`);
  if (submission.auto_retry) members.push("AutoRetry: true");
  if (submission.correlation_id) members.push(`CorrelationID: ${JSON.stringify(submission.correlation_id)}`);
  return `c, err := client.New(client.Config{URL: os.Getenv("FORGERUN"), Key: os.Getenv("KEY")})\nif err != nil {\n\treturn err\n}\n` +
    `accepted, err := c.Submit(ctx, client.JobRequest{\n${members.map(m => `\t${m},\n`).join("")}})`;
}
