import { get, optional } from "../api.js";
import { h } from "../dom.js";
import { age, count, number, time } from "../format.js";
import { badge, card, facts, heading, missing, mono } from "../parts.js";

export function page() {
  return {
    title: "System",
    async load(signal) {
      const [system, ready] = await Promise.all([optional(get("system", {}, signal)), readiness(signal)]);
      return { system, ready };
    },
    view: ({ system, ready }) => [heading("System"), system ? service(system) : missing("The state of the service"), thisProcess(ready), elsewhere()],
  };
}

// readiness returns the readiness of this process; null if it does not respond.
async function readiness(signal) {
  try {
    const response = await fetch(new URL("readyz", document.baseURI), { signal, cache: "no-store" });
    return await response.json();
  } catch (error) {
    if (signal.aborted) throw error;
    return null;
  }
}

function service(s) {
  const b = s.backlog;
  return card("The service, according to Postgres", facts([
    ["Version of this process", mono(s.version)], ["Schema", number(s.schema_version)], ["Time of the database", time(s.time)],
    ["Leader", s.leader ? [h("code", { class: "wrap" }, s.leader.leader_id), " until ", time(s.leader.expires_at)] : badge("NONE")],
    ["Workers alive", number(s.workers_alive)], ["Slots of these workers", number(s.slots)],
    ["Jobs that could run", count(b.queued)], ["Jobs not due yet", count(b.scheduled)], ["Jobs held by workers", count(b.held)], ["Oldest job due since", age(b.oldest_run_at)],
    ["Pending deliveries", count(b.deliveries)], ["Oldest delivery due since", age(b.oldest_delivery_at)],
  ]));
}

function thisProcess(ready) {
  return card("This process", ready ? facts([["Status", badge(String(ready.status || "unknown").toUpperCase())], ...Object.entries(ready.checks || {}).map(([k, v]) => [k, String(v)])])
    : h("p", { class: "quiet" }, "This process does not report whether it is ready."));
}

const PLACES = [
  ["asynqmon/", "Queues in Redis", "The tasks, read-only (asynqmon)."], ["process", "This process", "The process's activity since its start; works without the database."],
  ["metrics", "Metrics", "For Prometheus."], ["readyz", "Readiness", "Whether this process is ready."], ["debug/pprof/", "Profiles", "CPU and memory profiles of this process."],
  ["admin/v1/openapi.yaml", "Operator API", "The OpenAPI document of the operator API, for programs."],
];

const elsewhere = () => card("Elsewhere", h("ul", { class: "places" }, PLACES.map(([to, title, text]) => h("li", {}, h("a", { href: to }, title), h("span", { class: "quiet" }, " ", text)))));
