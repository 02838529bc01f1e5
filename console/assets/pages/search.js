// The results of a search: everything that has the text as its id or name. A single result opens at once.
import { get } from "../api.js";
import { h } from "../dom.js";
import { empty, heading, link, mono, table } from "../parts.js";
import { isID } from "../search.js";
import { kindNames } from "./lists.js";

const TYPES = { jobs: "Job", batches: "Batch", clients: "Client", webhooks: "Webhook", deliveries: "Delivery", bulk: "Bulk change", schedules: "Schedule", workers: "Worker" };
const CORRELATION = /^[A-Za-z0-9._-]{1,256}$/;

export function page(context) {
  const text = context.query.get("q") || "";
  return {
    title: "Search", every: 0,
    async load(signal) {
      const answer = await find(text, signal);
      if (answer.found.length === 1) context.replace("#/" + answer.found[0].to);
      return answer;
    },
    view: ({ found, older }) => [heading(["Search ", h("span", { class: "quiet wrap" }, text)]),
      found.length ? table([
        { title: "What", cell: f => f.type }, { title: "Name", class: "wrap", cell: f => h("a", { class: "open wrap", href: "#/" + f.to }, f.name) },
        { title: "Found by", cell: f => f.by },
      ], found, { key: f => f.to, open: f => "#/" + f.to, caption: "Results" })
        : empty(`Nothing was found for “${text}”.`, "You can search for any id, part of a job's correlation id, a client name, a webhook address or a work kind.",
          ["Jobs are filtered by ", mono("state:FAILED"), ", ", mono("kind:…"), ", ", mono("client:…"), ", ", mono("since:2h"), " and others: ", h("kbd", {}, "?"), " lists them."]),
      older ? h("p", {}, link("jobs?" + new URLSearchParams({ correlation_id: `*${text}*` }), "Also search older jobs for the correlation id")) : null],
  };
}

async function find(text, signal) {
  if (isID(text)) {
    const { data } = await get("find", { id: text.toLowerCase() }, signal);
    if (data.length) return { found: data.map(entry) };
  }
  const [jobs, ...others] = await Promise.all([correlated(text, signal), ...isID(text) ? [] : [kinds(text, signal), clients(text, signal), webhooks(text, signal)]]);
  return { found: [jobs.found, ...others].flat(), older: jobs.older };
}

// entry links to the page of a found object, or to the list if the object has no page of its own.
function entry({ type, id }) {
  const to = { workers: "workers" }[type] || `${type}/${id}`;
  return { type: TYPES[type] || type, name: id, to, by: "id" };
}

async function correlated(text, signal) {
  if (!CORRELATION.test(text)) return { found: [] };
  const part = `*${text}*`, { data, page } = await get("jobs", { correlation_id: part, limit: 2 }, signal);
  const to = data.length === 1 && !page.next_cursor ? "jobs/" + data[0].job_id : "jobs?" + new URLSearchParams({ correlation_id: part });
  return { found: data.length ? [{ type: data.length > 1 ? "Jobs" : "Job", name: text, to, by: "correlation id" }] : [], older: data.length === 0 && page.next_cursor !== null };
}

const like = (value, text) => (value || "").toLowerCase().includes(text.toLowerCase());

async function kinds(text, signal) {
  const names = await kindNames(signal), exact = names.filter(k => k === text.toUpperCase());
  return (exact.length ? exact : names.filter(k => like(k, text))).map(k => ({ type: "Work kind", name: k, to: "jobs?kind=" + k, by: "name" }));
}

const clients = async (text, signal) => (await get("clients", { named: true, limit: 100 }, signal)).data.filter(c => like(c.name, text))
  .map(c => ({ type: "Client", name: c.name, to: "clients/" + c.client_id, by: "name" }));

const webhooks = async (text, signal) => (await get("webhooks", { limit: 100 }, signal)).data.filter(w => like(w.url, text) || like(w.description, text))
  .map(w => ({ type: "Webhook", name: w.url, to: "webhooks/" + w.webhook_id, by: like(w.url, text) ? "address" : "description" }));
