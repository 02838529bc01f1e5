import { get } from "../api.js";
import { h } from "../dom.js";
import { age, hms, number, short, span, time } from "../format.js";
import { badge, button, card, clientLink, copyButton, empty, facts, filterLink, heading, idLink, link, mono, note, outside, table } from "../parts.js";
import { timeline } from "../timeline.js";
import { tree } from "../tree.js";
import { cancel, copies, destroy, retry, submitAgain } from "./job_actions.js";
import { resultCard } from "./job_result.js";

export function page(context, id) {
  const ui = { even: false, result: null, hooks: new Map() };
  async function load(signal) {
    const job = await get("jobs/" + encodeURIComponent(id), {}, signal);
    if (job.deliveries.some(d => d.webhook_id && !ui.hooks.has(d.webhook_id))) await nameHooks(job, ui.hooks, signal);
    return job;
  }
  return {
    title: "Job …" + id.slice(-12),
    load, often: job => job.state === "RUNNING", // progress changes without an event
    view: job => [
      heading(["Job ", h("code", { class: "wrap" }, job.job_id)], copyButton(job.job_id, "Copy id")),
      submitted(job, context.query), summary(job), actions(job, context), waiting(job), failure(job), progress(job),
      card("Timeline", h("div", { class: "choice", role: "group", "aria-label": "Axis" },
        button("To scale", () => { ui.even = false; context.draw(); }, { pressed: !ui.even, class: "small" }),
        button("Evenly spaced", () => { ui.even = true; context.draw(); }, { pressed: ui.even, class: "small" })),
      timeline(job, { even: ui.even, receiver: d => receiverOf(d, ui.hooks) })),
      resultCard(job, ui, context.draw), attempts(job), eventLog(job), deliveries(job, ui.hooks),
      h("div", { class: "columns" }, card("Definition", job.definition ? tree(job.definition) : note("bad", h("p", {}, "The definition is damaged: the job cannot run."))),
        card("Parameters", job.params ? tree(job.params) : h("p", { class: "quiet" }, "The job was submitted without parameters."))),
      card("All members", details(job)), card("Submit it elsewhere", copies(job)),
    ],
  };
}

// nameHooks reads the addresses of the client's webhooks. Webhooks that are not in the list are shown by id.
async function nameHooks(job, hooks, signal) {
  const list = await get("webhooks", { client_id: job.client_id, limit: 100 }, signal).catch(() => ({ data: [] }));
  list.data.forEach(w => hooks.set(w.webhook_id, w.url));
  job.deliveries.forEach(d => { if (d.webhook_id && !hooks.has(d.webhook_id)) hooks.set(d.webhook_id, ""); });
}

// receiverOf returns the name of a delivery's receiver: the host, and the webhook's id or "callback".
function receiverOf(d, hooks) {
  const address = d.webhook_id ? hooks.get(d.webhook_id) : d.url, host = URL.canParse(address) ? new URL(address).host : "";
  return [host, d.webhook_id ? "webhook " + short(d.webhook_id) : "callback"].filter(Boolean).join(" · ");
}

// submitted shows the result of a submission to its user.
function submitted(job, query) {
  if (!query.has("submitted")) return null;
  return h("div", { class: "note good line", role: "status" }, h("p", {}, h("span", { class: "strong" }, "1 job submitted."), " ", mono(job.job_id)), copyButton(job.job_id, "Copy id"),
    link(`new?from=${job.job_id}`, "Submit a similar job"));
}

function summary(job) {
  return facts([
    ["State", badge(job.state)], ["Kind", filterLink("jobs", "kind", job.work_kind)], ["Type", job.type],
    ["Client", clientLink(job.client_id)], ["Attempt", `${number(job.attempt)} of ${number(job.max_attempts)}`],
    ["Created", time(job.created_at)], ["Changed", age(job.updated_at)], job.finished_at ? ["Ran", ran(job)] : null,
  ]);
}

const ran = job => job.started_at && job.finished_at ? span(new Date(job.finished_at) - new Date(job.started_at)) : "–";

function actions(job, context) {
  if (context.session.read_only) return h("p", { class: "quiet" }, "This token has read access only.");
  const final = ["SUCCEEDED", "FAILED", "CANCELED"].includes(job.state);
  return h("div", { class: "toolbar", role: "toolbar", "aria-label": "What can be done with this job" },
    button("Retry…", () => retry(job, context), { disabled: job.state !== "FAILED", class: job.can_retry ? "primary" : "", title: job.state === "FAILED" ? false : "Only FAILED jobs can be retried" }),
    button("Cancel…", () => cancel(job, context), { disabled: final, title: final ? "The job has ended" : false }),
    button("Submit again…", () => submitAgain(job, context)),
    link(`new?from=${job.job_id}`, h("span", { class: "button" }, "Edit and submit")),
    button("Delete…", () => destroy(job, context), { disabled: !final, class: "danger", title: final ? false : "Only finished jobs can be deleted" }));
}

const ADVICE = { PAUSED: link("queues", "Pauses and drains"), CLIENT_LIMIT: link("clients", "Clients and their limits"), NO_WORKERS: link("workers", "Workers"), QUEUE: link("queues", "Queues") };

function waiting(job) {
  if (!job.waiting) return null;
  return note("plain", h("p", {}, h("span", { class: "strong" }, "The job is waiting. "), job.waiting.detail, job.waiting.until ? [" Until ", time(job.waiting.until), ", ", age(job.waiting.until), "."] : null,
    " ", ADVICE[job.waiting.reason] || null));
}

function failure(job) {
  const f = job.failure;
  if (!f) return null;
  return note("bad", h("p", { class: "strong" }, f.detail), h("p", {}, mono(f.code), ` at stage ${f.stage}, reason ${f.reason}; `,
    f.retryable ? "the same job may succeed if it is tried again." : "trying the same job again would not help."),
  h("p", {}, link("jobs?failure_code=" + f.code, "Jobs that failed with this code"), " · ", link("failures", "All failures in groups")));
}

function progress(job) {
  const p = job.progress;
  if (!p) return null;
  return card("Progress", h("div", { class: "progress" }, h("progress", { max: 100, value: p.percentage, "aria-label": "Progress" }), h("span", { class: "num" }, `${p.percentage} %`), p.phase),
    h("p", { class: "quiet" }, `${number(p.steps_completed)} of ${number(p.steps_total)} steps, ${number(p.items_processed)} of ${number(p.items_total)} items, `, age(p.updated_at)));
}

function attempts(job) {
  if (job.attempts_log.length === 0) return null;
  return card("Attempts that ended", table([
    { title: "Attempt", num: true, cell: a => number(a.attempt) }, { title: "Outcome", cell: a => badge(a.outcome === "SUCCESS" ? "SUCCEEDED" : a.outcome) },
    { title: "Started", num: true, cell: a => time(a.started_at) }, { title: "Ended", num: true, cell: a => time(a.finished_at) },
    { title: "Ran", num: true, cell: a => span(a.duration_ms) }, { title: "Worker", cell: a => a.worker_id ? mono("…" + a.worker_id.slice(-12)) : "–" },
    { title: "Failure", class: "wrap", cell: a => a.failure ? [mono(a.failure.code), " ", a.failure.detail] : "" },
  ], job.attempts_log, { key: a => a.attempt, caption: "Attempts that ended" }));
}

function eventLog(job) {
  return card(`Events (${job.events.length}${job.more_events ? "+" : ""})`, job.events.length === 0 ? h("p", { class: "quiet" }, "None.") : table([
    { title: "No.", num: true, cell: e => number(e.seq) }, { title: "Time", num: true, cell: e => time(e.timestamp) }, { title: "Event", cell: e => mono(e.event_name) },
    { title: "State", cell: e => e.next_state ? badge(e.next_state) : "" }, { title: "Attempt", num: true, cell: e => number(e.attempt) },
    { title: "After", num: true, cell: e => e.after },
    { title: "Data", cell: e => h("details", {}, h("summary", {}, `${Object.keys(e.data || {}).length} members`), tree(e.data || {})) },
  ], withSteps(job.events), { key: e => e.event_id, caption: "Events" }), job.more_events ? h("p", { class: "quiet" }, "There are more events; these are the first.") : null);
}

// withSteps adds to each event the time since the previous event.
const withSteps = events => events.map((e, i) => ({ ...e, after: i === 0 ? "" : "+" + span(new Date(e.timestamp) - new Date(events[i - 1].timestamp)) }));

function deliveries(job, hooks) {
  if (job.deliveries.length === 0) return card("Deliveries", empty("No deliveries for this job.", "The job has no callback, and its client has no webhook for its events."));
  return card("Deliveries", table([
    { title: "Delivery", cell: d => idLink("deliveries", d.delivery_id) }, { title: "Event", cell: d => mono(d.event_name) }, { title: "State", cell: d => badge(d.state) },
    { title: "To", class: "wrap", cell: d => d.webhook_id ? link("webhooks/" + d.webhook_id, receiverOf(d, hooks)) : outside(d.url) },
    { title: "Attempts", num: true, cell: d => number(d.attempts) }, { title: "Response", num: true, cell: d => d.last_status ?? "–" },
    { title: "Error", class: "wrap", cell: d => d.last_error ? d.last_error.detail : "" }, { title: "Next", num: true, cell: d => d.next_attempt_at ? age(d.next_attempt_at) : "–" },
  ], job.deliveries, { key: d => d.delivery_id, open: d => "#/deliveries/" + d.delivery_id, caption: "Deliveries" }),
  job.more_deliveries ? h("p", {}, link("deliveries?job_id=" + job.job_id, "All deliveries of this job")) : null);
}

const traceLink = job => job.trace_url ? h("a", { href: job.trace_url, rel: "noreferrer noopener", target: "_blank" }, h("code", {}, job.trace_id)) : mono(job.trace_id);

function details(job) {
  return facts([
    ["Queued", time(job.queued_at)], ["Does not run before", time(job.run_at)], ["Meant for", time(job.execution_at)], ["Assigned", time(job.assigned_at)],
    ["Started", time(job.started_at)], ["Ended", time(job.finished_at)], ["Canceled", time(job.canceled_at)],
    ["Worker", job.worker_id ? mono(job.worker_id) : mono("")], ["Lease", number(job.fence), "The number of the job's current lease (fence)"], ["Leases expired", number(job.lease_expiries)],
    ["Retries automatically", job.auto_retry ? "yes" : "no"], ["Callback", outside(job.callback)], ["Batch", idLink("batches", job.batch_id)],
    ["Correlation id", filterLink("jobs", "correlation_id", job.correlation_id)], ["Request", mono(job.request_id)], ["Trace", traceLink(job)], ["As of", hms(new Date())],
  ]);
}
