// A form for new jobs. Its choices come from the server's catalogue.
import { get, optional, post } from "../api.js";
import { field } from "../dialogs.js";
import { h } from "../dom.js";
import { read, write } from "../exact.js";
import { plural } from "../format.js";
import { badge, button, card, copyButton, failed, heading, link, missing, note, table } from "../parts.js";
import { curlOf, hides, submissionOf } from "./job_actions.js";
import { local, utc } from "./lists.js";

const MOST = 1000, AT_ONCE = 4, SHOWN = 20;

export function page(context) {
  const from = context.query.get("from");
  const form = { type: "EXECUTE", work_kind: context.query.get("work_kind") || "", client_id: context.query.get("client_id") || "", params: "", execution_at: "",
    event: "order.paid", data: "{}", callback: "", correlation_id: "", auto_retry: false, n: 1 };
  const ui = { made: [], failure: null, busy: false, stop: false, filled: !from, warn: false };
  async function load(signal) {
    const [catalogue, clients, job] = await Promise.all([
      optional(get("catalogue", {}, signal)), get("clients", { limit: 100 }, signal), ui.filled ? null : get("jobs/" + encodeURIComponent(from), {}, signal)]);
    if (job) fill(job);
    form.client_id ||= clients.data[0]?.client_id || "";
    return { kinds: catalogue?.kinds || [], clients: clients.data, catalogue };
  }
  function fill(job) {
    const s = submissionOf(job);
    Object.assign(form, { type: s.type, work_kind: s.work_kind || "", client_id: job.client_id, params: s.params ? write(s.params, "  ") : "", execution_at: s.execution_at || "",
      callback: s.callback || "", correlation_id: s.correlation_id || "", auto_retry: !!s.auto_retry });
    if (s.event) Object.assign(form, { event: s.event.name, data: write(s.event.data ?? {}, "  ") });
    Object.assign(ui, { filled: true, warn: hides(job) });
  }
  const set = name => event => {
    form[name] = event.target.type === "checkbox" ? event.target.checked : event.target.value;
    context.draw();
  };
  return {
    title: "New job", load, every: 0, leave() { ui.stop = true; },
    view: data => [
      heading("New job"), context.session.read_only ? note("warn", h("p", {}, "This token has read access only: you cannot submit jobs.")) : null,
      data.catalogue ? null : missing("The catalogue of work kinds"), ui.warn ? note("warn", h("p", {}, "Values that show as *** were hidden: fill them in.")) : null,
      data.clients.length === 0 ? note("warn", h("p", {}, "Each job needs a client, and no client exists yet. ", h("a", { href: "#/clients" }, "Make one"))) : null,
      h("form", { class: "card form", onsubmit(event) { event.preventDefault(); submit(form, ui, context); } }, fields(form, data, set), controls(form, ui, context)),
      ui.failure ? failed(ui.failure) : null, ui.made.length ? made(ui) : null,
    ],
  };
}

function fields(form, { kinds, clients }, set) {
  const kind = kinds.find(k => k.work_kind === form.work_kind);
  return [
    field("Client", h("input", { list: "clients", name: "client_id", required: true, value: form.client_id, oninput: set("client_id"), spellcheck: "false", autocomplete: "off" }), "The owner of the job."),
    h("datalist", { id: "clients" }, clients.map(c => h("option", { value: c.client_id }))),
    field("Type", h("select", { name: "type", value: form.type, onchange: set("type") }, Object.entries(TYPES).map(([t, text]) => h("option", { value: t }, `${t}: ${text}`)))),
    form.type === "EMIT_EVENT" ? [
      field("Event's name", h("input", { value: form.event, oninput: set("event"), required: true })),
      field("Event's data, JSON", h("textarea", { rows: 4, value: form.data, oninput: set("data"), spellcheck: "false" })),
    ] : field("Kind", kinds.length ? h("select", { name: "work_kind", value: form.work_kind, onchange: set("work_kind") }, h("option", { value: "" }, "chosen by the server"),
      kinds.map(k => h("option", { value: k.work_kind }, k.work_kind))) : h("input", { value: form.work_kind, oninput: set("work_kind"), placeholder: "SUCCESS_FAST" }), kind?.description || "What the job does."),
    form.type === "DEFERRED" ? field("When", h("input", { type: "datetime-local", step: 1, required: true, value: local(form.execution_at), onchange: event => set("execution_at")({ target: { value: utc(event.target.value) } }) }), "In your time zone; the job does not start earlier.") : null,
    h("details", { open: !!(form.params || form.callback || form.correlation_id || form.work_kind === "CUSTOM") }, h("summary", {}, "Parameters, callback, correlation id"),
      field("Parameters, a JSON object", h("textarea", { rows: 6, value: form.params, oninput: set("params"), spellcheck: "false",
        placeholder: form.work_kind === "CUSTOM" ? "{\"behavior\": {\"duration\": \"2s\", \"steps\": 4}}" : "{\"customer\": 42}" }), "Stored exactly as sent, with all digits of numbers."),
      field("Callback", h("input", { type: "url", value: form.callback, oninput: set("callback"), placeholder: "https://…" }), "Receives each change of the job's state."),
      field("Correlation id", h("input", { value: form.correlation_id, oninput: set("correlation_id"), pattern: "[A-Za-z0-9._\\-]+", maxlength: 256 })),
      h("label", { class: "check" }, h("input", { type: "checkbox", checked: form.auto_retry, onchange: set("auto_retry") }), h("span", {}, "The server retries the job automatically"))),
    field("How many", h("input", { type: "number", min: 1, max: MOST, value: String(form.n), oninput: set("n") }), `Submit up to ${MOST} separate jobs at once.`),
  ];
}

const TYPES = { EXECUTE: "as soon as possible", DEFERRED: "at its time", EMIT_EVENT: "publishes an event" };

function submissionFrom(form) {
  const s = { type: form.type };
  if (form.type === "EMIT_EVENT") s.event = { name: form.event, data: parse(form.data || "{}", "The event's data") };
  else if (form.work_kind) s.work_kind = form.work_kind;
  if (form.type === "DEFERRED") s.execution_at = form.execution_at;
  if (form.params.trim()) s.params = parse(form.params, "The parameters");
  if (form.callback) s.callback = form.callback;
  if (form.correlation_id) s.correlation_id = form.correlation_id;
  if (form.auto_retry) s.auto_retry = true;
  return s;
}

function parse(text, what) {
  try {
    return read(text);
  } catch (error) {
    throw new Error(`${what}: ${error.message}.`, { cause: error });
  }
}

function controls(form, ui, context) {
  return h("div", { class: "toolbar" },
    h("button", { class: "primary", disabled: ui.busy || context.session.read_only }, Number(form.n) > 1 ? `Submit ${form.n} jobs` : "Submit"),
    ui.busy ? [h("progress", { max: Number(form.n), value: ui.made.length }), button("Stop", () => { ui.stop = true; })] : null,
    copyButton(() => {
      try {
        return curlOf(submissionFrom(form));
      } catch (error) {
        return String(error.message);
      }
    }, "Copy as curl"));
}

async function submit(form, ui, context) {
  Object.assign(ui, { made: [], failure: null, busy: true, stop: false });
  context.draw();
  try {
    ui.client = form.client_id.trim();
    const body = { client_id: ui.client, job: submissionFrom(form) };
    let left = Math.min(MOST, Number(form.n) || 1);
    await Promise.all(Array.from({ length: Math.min(AT_ONCE, left) }, async () => {
      while (left-- > 0 && !ui.stop) {
        ui.made.push(await post("jobs", body).catch(failure => {
          ui.stop = true;
          throw failure;
        }));
        context.draw();
      }
    }));
    context.say(`${plural(ui.made.length, "job")} submitted.`);
    if (ui.made.length === 1) context.go(`#/jobs/${ui.made[0].job_id}?submitted`);
  } catch (failure) {
    ui.failure = failure;
  }
  ui.busy = false;
  context.draw();
}

// made lists the jobs that a burst has created. A single new job is shown on its own page instead.
function made(ui) {
  const first = ui.made[0];
  return card(`${plural(ui.made.length, "job")} submitted`,
    h("p", {}, ui.made.length > SHOWN ? h("span", { class: "quiet" }, `These are the first ${SHOWN}. `) : null,
      link("jobs?" + new URLSearchParams({ client_id: ui.client, from: first.created_at }), "All of them, with current states")),
    table([
      { title: "Job", class: "wrap", cell: m => h("a", { class: "wrap open", href: "#/jobs/" + m.job_id }, h("code", {}, m.job_id)) }, { title: "State when accepted", cell: m => badge(m.state) },
      { title: "", cell: m => copyButton(m.job_id, "Copy id") },
    ], ui.made.slice(0, SHOWN), { key: m => m.job_id, open: m => "#/jobs/" + m.job_id, caption: "Jobs submitted" }));
}
