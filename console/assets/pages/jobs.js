import { get, optional, server } from "../api.js";
import { h } from "../dom.js";
import { age, number, serviceNow, span, time } from "../format.js";
import { button, clientLink, empty, filterLink, heading, jobLink, link, mono, pager, badge, STATES, table } from "../parts.js";
import { recall, remember } from "../store.js";
import { open } from "../dialogs.js";
import { changeMatching, changeSelected } from "./bulk_actions.js";
import { addressOf, filterBar, given, nextPage, orRefusal, refusal } from "./lists.js";

const NAMES = ["state", "type", "kind", "client_id", "batch_id", "schedule_id", "correlation_id", "failure_code", "from", "to"];
const LIMIT = 50, COUNT_EVERY = 10000; // ms

const COLUMNS = {
  job_id: { title: "Job", cell: j => jobLink(j.job_id, true) },
  state: { title: "State", cell: j => badge(j.state) },
  work_kind: { title: "Kind", class: "small", cell: j => filterLink("jobs", "kind", j.work_kind) },
  type: { title: "Type", cell: j => j.type },
  client_id: { title: "Client", cell: j => clientLink(j.client_id) },
  failure_code: { title: "Failure", class: "small", cell: j => filterLink("jobs", "failure_code", j.failure_code) },
  attempt: { title: "Attempt", num: true, cell: j => `${number(j.attempt)} of ${number(j.max_attempts)}` },
  duration: { title: "Ran", num: true, cell: ran },
  created_at: { title: "Created", num: true, cell: j => time(j.created_at) },
  updated_at: { title: "Changed", num: true, cell: j => age(j.updated_at) },
  execution_at: { title: "Meant for", num: true, cell: j => time(j.execution_at) },
  started_at: { title: "Started", num: true, cell: j => time(j.started_at) },
  finished_at: { title: "Ended", num: true, cell: j => time(j.finished_at) },
  batch_id: { title: "Batch", cell: j => filterLink("jobs", "batch_id", j.batch_id, j.batch_id && "…" + j.batch_id.slice(-12)) },
  correlation_id: { title: "Correlation", class: "wrap", cell: j => filterLink("jobs", "correlation_id", j.correlation_id) },
};
const STANDARD = ["job_id", "state", "work_kind", "client_id", "failure_code", "attempt", "duration", "created_at"];

// ran shows the duration of the last attempt. If it is running, it shows its progress and the time so far.
function ran(j) {
  if (!j.started_at || j.state !== "RUNNING" && !j.finished_at) return h("span", { class: "none" }, "–");
  const took = span((j.finished_at ? new Date(j.finished_at) : serviceNow()) - new Date(j.started_at));
  if (j.state !== "RUNNING") return took;
  const { percentage, phase } = j.progress || {}, far = j.progress ? `${percentage} %${phase ? ", " + phase : ""}` : "Progress unknown";
  return h("span", { class: "in-row", title: far }, j.progress ? h("progress", { max: 100, value: percentage, "aria-label": far }) : null, took);
}

export function page(context) {
  const filters = given(context.query, NAMES);
  delete filters.cursor;
  const selected = new Set();
  let counts = null, counted = 0, rows = [];
  const count = counter(filters);

  async function load(signal) {
    const list = await orRefusal(get("jobs", { ...given(context.query, NAMES), limit: LIMIT }, signal), signal);
    if (list.refused) return list;
    if (Date.now() - counted > COUNT_EVERY) {
      counted = Date.now();
      count(signal).then(c => { counts = c; context.draw(); }, () => {});
    }
    return list;
  }

  function view(list) {
    rows = list.data;
    for (const id of selected) if (!rows.some(r => r.job_id === id)) selected.delete(id);
    return [heading("Jobs", button("Columns", () => chooseColumns(context.draw)), link("new", h("span", { class: "button primary" }, "New job"))),
      h("div", { class: "with-side" }, side(filters, counts, context.query), h("div", {}, filterBar("jobs", context, bar()),
        changes(), list.refused ? refusal("jobs", list, context.query) : rows.length ? list_(rows) : nothing(filters, context.query), pager(list.page, nextPage("jobs", context.query), context.query.get("cursor"))))];
  }

  function changes() {
    if (context.session.read_only || rows.length === 0) return null;
    const chosen = rows.filter(r => selected.has(r.job_id)), all = server.bulk && Object.keys(filters).length > 0 && !filters.schedule_id && !filters.correlation_id?.includes("*");
    return h("div", { class: "bulk-bar", role: "toolbar", "aria-label": "Changes" },
      chosen.length
        ? [h("span", { class: "strong" }, `${chosen.length} selected`), ["retry", "cancel", "delete"].map(action =>
          button(capital(action), () => changeSelected(action, chosen, context).then(() => { selected.clear(); context.refresh(); }), { class: "small" })),
        button("Select none", () => { selected.clear(); context.draw(); }, { class: "small quiet" })]
        : h("span", { class: "quiet" }, "Select jobs to change them", all ? ", or change " : "."),
      all ? ["retry", "cancel", "delete"].map(action => button(`${capital(action)} all matching jobs…`, () => changeMatching(action, filters, context), { class: "small quiet" })) : null);
  }

  function list_(jobs) {
    const choose = context.session.read_only ? [] : [{
      class: "check", head: h("input", { type: "checkbox", "aria-label": "Select all of this page", checked: selected.size === jobs.length, onchange(event) {
        jobs.forEach(j => event.target.checked ? selected.add(j.job_id) : selected.delete(j.job_id));
        context.draw();
      } }), cell: j => h("input", { type: "checkbox", "aria-label": "Select " + j.job_id, checked: selected.has(j.job_id), onchange(event) {
        if (event.target.checked) selected.add(j.job_id);
        else selected.delete(j.job_id);
        context.draw();
      } }) }];
    return table([...choose, ...columns().map(name => COLUMNS[name])], jobs,
      { key: j => j.job_id, open: j => "#/jobs/" + j.job_id, caption: "Jobs", marked: j => selected.has(j.job_id) });
  }
  return { title: "Jobs", load, view, often: list => list.data.some(j => j.state === "RUNNING") }; // progress changes without an event
}

const capital = word => word[0].toUpperCase() + word.slice(1);
const columns = () => recall("columns", STANDARD).filter(name => COLUMNS[name]);

const bar = () => [
  { name: "kind", title: "Kind" }, { name: "type", title: "Type", options: ["EXECUTE", "DEFERRED", "EMIT_EVENT"] },
  { name: "client_id", title: "Client" }, { name: "batch_id", title: "Batch" }, { name: "correlation_id", title: "Correlation id" },
  { name: "failure_code", title: "Failure code", placeholder: "RFA_…" },
  { name: "from", title: "Created from", type: "datetime-local" }, { name: "to", title: "before", type: "datetime-local" },
];

// counter returns a function that counts the jobs in each state. With other filters it sends a request per state; otherwise it uses the
// numbers of the overview.
function counter(filters) {
  const { state: _, ...others } = filters;
  if (Object.keys(others).length === 0) {
    return async signal => {
      const overview = await optional(get("overview", { window: "15m" }, signal));
      return overview ? Object.fromEntries(STATES.map(s => [s, { count: overview.states?.[s]?.count ?? overview.states?.[s] ?? 0 }])) : each(others, signal);
    };
  }
  return signal => each(others, signal);
}

async function each(filters, signal) {
  const wanted = STATES.filter(s => !filters.failure_code || s === "FAILED");
  return Object.fromEntries(await Promise.all(wanted.map(async state => [state, await get("jobs/count", { ...filters, state }, signal)])));
}

function side(filters, counts, query) {
  const entry = (state, text, c) => h("li", {}, h("a", { href: addressOf("jobs", query, { state }), "aria-current": (filters.state || "") === state ? "true" : false },
    text, h("span", { class: "num" }, c ? number(c.count) + (c.more ? "+" : "") : "")));
  return h("nav", { class: "side", "aria-label": "States" }, h("ul", {}, entry("", "All states"), STATES.map(s => entry(s, badge(s), counts?.[s]))));
}

function nothing(filters, query) {
  if (query.get("cursor")) return empty("This page is empty.", "There may be more: see below.");
  if (Object.keys(filters).length === 0) return empty("There are no jobs yet.", [link("new", "Submit the first one"), " – or let a client do it."]);
  return empty("No job matches.", ["The filters are combined: ", mono(Object.entries(filters).map(([k, v]) => `${k}=${v}`).join(" ")), "."],
    h("a", { href: "#/jobs" }, "Show all jobs"));
}

function chooseColumns(draw) {
  const form = h("form", { method: "dialog" }, h("fieldset", {}, h("legend", { class: "quiet" }, "These choices are remembered in this browser."),
    Object.entries(COLUMNS).filter(([name]) => name !== "job_id").map(([name, c]) => h("label", { class: "check" },
      h("input", { type: "checkbox", checked: columns().includes(name), onchange(event) {
        const now = columns().filter(n => n !== name);
        if (event.target.checked) now.push(name);
        remember("columns", Object.keys(COLUMNS).filter(n => n === "job_id" || now.includes(n)));
        draw();
      } }), h("span", {}, c.title)))),
  h("div", { class: "buttons" }, h("button", { type: "button", onclick() { remember("columns", STANDARD); form.closest("dialog").close(); draw(); } }, "Standard"),
    h("button", { class: "primary" }, "Close")));
  open("Columns", form);
}
