import { get, server } from "../api.js";
import { h } from "../dom.js";
import { age, number, serviceNow } from "../format.js";
import { button, empty, heading, jobLink, table } from "../parts.js";
import { changeMatching } from "./bulk_actions.js";
import { addressOf, filterBar, given, orRefusal, refusal } from "./lists.js";

const HOURS = [1, 6, 24, 168];

export function page(context) {
  const hours = Number(context.query.get("hours")) || 24;
  const names = ["client_id", "kind", "code", "from", "to"];
  const fromOf = () => context.query.get("from") || new Date(serviceNow() - hours * 3600000).toISOString();
  return {
    title: "Failures", every: 5000,
    load: signal => orRefusal(get("failures", { ...given(context.query, names), from: fromOf() }, signal), signal),
    view: list => [heading("Failures", h("div", { class: "choice", role: "group", "aria-label": "Time" }, HOURS.map(n =>
      h("a", { href: addressOf("failures", context.query, { hours: n, from: "" }), "aria-current": n === hours && !context.query.get("from") ? "true" : false }, n < 48 ? `${n} h` : `${n / 24} d`)))),
    h("p", { class: "quiet" }, "Failed jobs grouped by code, kind and detail, largest group first."),
    filterBar("failures", context, [{ name: "kind", title: "Kind" }, { name: "code", title: "Code", placeholder: "RFA_…" }, { name: "client_id", title: "Client" },
      { name: "from", title: "From", type: "datetime-local" }, { name: "to", title: "before", type: "datetime-local" }]),
    list.refused ? refusal("failures", list, context.query) : list.data.length === 0 ? empty("No job failed in this time.") : table([
      { title: "Jobs", num: true, cell: f => h("a", { class: "open", href: jobsOf(f, context.query) }, number(f.count)) }, { title: "Code", cell: f => h("code", {}, f.code) },
      { title: "Kind", cell: f => f.work_kind }, { title: "What happened", class: "wrap", cell: f => f.detail },
      { title: "First", num: true, cell: f => age(f.first_at) }, { title: "Last", num: true, cell: f => age(f.last_at) }, { title: "Last job", cell: f => jobLink(f.last_job_id) },
      { title: "Retryable", num: true, cell: f => again(f, context) },
    ], list.data, { key: f => [f.code, f.work_kind, f.detail].join("\n"), open: f => jobsOf(f, context.query), caption: "Failures" }),
    list.more ? h("p", { class: "quiet" }, "Only the last 100,000 finished jobs are counted, but there are more.") : null],
  };
}

// again returns a button that retries all retryable jobs of a group, regardless of when they failed.
function again(f, context) {
  if (!f.retryable) return h("span", { class: "none", title: "Another attempt would fail in the same way, or no attempts are left" }, "none");
  if (!server.bulk || context.session.read_only) return number(f.retryable);
  return button(`Retry ${number(f.retryable)}…`, () => changeMatching("retry", { ...filterOf(f, context.query), failure_detail: f.detail }, context), { class: "small" });
}

// filterOf returns the filter for the jobs of a group, with the names that the list of jobs uses.
function filterOf(f, query) {
  const filter = { state: "FAILED", failure_code: f.code, kind: f.work_kind };
  return query.get("client_id") ? { ...filter, client_id: query.get("client_id") } : filter;
}

const jobsOf = (f, query) => "#/jobs?" + new URLSearchParams(filterOf(f, query));
