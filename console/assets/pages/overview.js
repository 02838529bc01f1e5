import { get } from "../api.js";
import { chart, shares } from "../charts.js";
import { h } from "../dom.js";
import { age, count, number, span } from "../format.js";
import { badge, card, heading, link, STATES } from "../parts.js";
import { clock } from "./clock.js";

const WINDOWS = ["15m", "1h", "24h"];

export function page(context) {
  const chosen = WINDOWS.includes(context.query.get("window")) ? context.query.get("window") : "15m";
  return {
    title: "Overview",
    load: signal => get("overview", { window: chosen }, signal),
    view(overview) {
      return [
        heading("Overview", h("div", { class: "choice", role: "group", "aria-label": "Time shown" }, WINDOWS.map(w =>
          h("a", { href: `#/overview?window=${w}`, "aria-current": w === chosen ? "true" : false }, w.replace("m", " min").replace("h", " h"))))),
        attention(overview.attention),
        clock(context),
        numbers(overview),
        counts("Open jobs by state", overview.states, name => "jobs?state=" + name),
        counts("Jobs that ended in the last 24 hours", overview.ended, name => name === "FAILED" ? "failures" : null, "A retried job is counted each time it ends."),
        charts(overview.history),
        newcomer(),
      ];
    },
  };
}

function attention(list) {
  if (list.length === 0) return h("div", { class: "note good" }, h("p", {}, h("span", { class: "strong" }, "Nothing needs attention."), " Workers are alive and take waiting jobs."));
  return h("section", { class: "note warn", "aria-label": "Needs attention" }, h("h2", {}, "Needs attention"),
    h("ul", { class: "attention" }, list.map(a => h("li", { "data-key": a.code + a.href + list.filter(b => b.code === a.code).indexOf(a) }, inside(a.href, a.text)))));
}

// inside returns a link with the text. The server names the console's pages by path; within this page their addresses begin with #.
function inside(href, text) {
  if (!href) return text;
  return h("a", { href: href.startsWith("/") ? "#" + href : href }, text);
}

function numbers({ as_of: now, waiting, workers, deliveries }) {
  const share = workers.slots ? `${Math.round(100 * workers.held / workers.slots)} %` : workers.held ? "held only by dead workers" : "no slots";
  return h("dl", { class: "key" },
    tile("Waiting for a worker", count({ count: waiting.due, more: waiting.more && waiting.due === waiting.count }), due(waiting), "#/queues"),
    tile("Slots in use", `${number(workers.held)} of ${number(workers.slots)}`, share, "#/jobs?state=RUNNING"),
    tile("Workers alive", number(workers.alive), workers.alive ? "with a valid lease" : "no job can run", "#/workers"),
    tile("Deliveries pending", count(deliveries), pending(deliveries, now), "#/deliveries?state=PENDING"));
}

// due shows how long due jobs have waited for a worker, and how many jobs are not due yet.
function due({ count: all, more, due: n, oldest_run_at: oldest, next_run_at: next }) {
  const later = all - n;
  return [n ? ["the oldest was due ", age(oldest)] : "none is due", later === 0 ? null
    : [` · ${number(later)}${more ? "+" : ""} later`, next ? [", the next ", age(next)] : ", all paused or at a limit"]];
}

function pending({ count: all, first_due_at: first }, now) {
  if (all === 0) return "none waiting";
  if (!first) return "being sent";
  return first <= now ? ["the oldest was due ", age(first)] : ["none is due · next attempt ", age(first)];
}

const tile = (name, value, small, to) => h("div", {}, h("dt", {}, h("a", { href: to }, name)), h("dd", {}, value, h("small", {}, small)));

// counts shows the number of jobs in each state. to(state) returns the address of the matching list, or null.
function counts(title, of, to, text) {
  const parts = STATES.filter(name => name in of).map(name => ({ name, value: Number(of[name]), class: "f-" + name.toLowerCase() }));
  const item = p => [badge(p.name), h("span", { class: "num" }, number(p.value))];
  return card(title, text ? h("p", { class: "quiet" }, text) : null, shares(parts), h("ul", { class: "states" }, parts.map(p => h("li", {},
    to(p.name) ? h("a", { href: "#/" + to(p.name) }, item(p)) : h("span", { class: "plain" }, item(p))))));
}

function charts(history) {
  const buckets = history?.buckets || [], times = buckets.map(b => b.at), per = (history?.step_seconds || 60) + " s";
  const of = name => buckets.map(b => b[name] ?? null);
  const series = (name, key, c, dash) => ({ name, values: of(key), class: c, dash });
  return h("div", { class: "plots" },
    chart({ title: "Throughput", note: `jobs per ${per}`, times,
      series: [series("submitted", "submitted", "c-queued", true), series("succeeded", "succeeded", "c-succeeded")] }),
    chart({ title: "Failed and canceled", note: `jobs per ${per}`, times,
      series: [series("failed", "failed", "c-failed"), series("canceled", "canceled", "c-canceled")] }),
    chart({ title: "Wait until the start", times, unit: span, series: [series("p50", "wait_ms_p50", "c-running"), series("p99", "wait_ms_p99", "c-high", true)] }),
    chart({ title: "Run", times, unit: span, series: [series("p50", "run_ms_p50", "c-running"), series("p99", "run_ms_p99", "c-high", true)] }));
}

const newcomer = () => card("New here?", h("ol", { class: "steps" },
  h("li", {}, link("new?work_kind=SUCCESS_FAST", "Submit a job"), " that takes a second, and see it pass from state to state."),
  h("li", {}, link("jobs?state=FAILED", "Look at failed jobs"), " and why each of them failed."),
  h("li", {}, link("workers", "See the workers"), ": their slots and the jobs that they hold.")));
