import { h } from "../dom.js";
import { age, number, time } from "../format.js";
import { badge, button, empty, filterLink, heading, jobLink, table, clientLink } from "../parts.js";
import { filterBar, listing, read } from "./lists.js";
import { begin, read as pauses, resume } from "./pauses.js";

export function page(context) {
  return {
    title: "Workers",
    load: read("workers", context.query, ["state"], 50),
    view: list => [heading("Workers"), filterBar("workers", context, [{ name: "state", title: "State", options: ["ALIVE", "DEAD", "STOPPED"] }]),
      listing("workers", context, list, empty("No workers.", ["Jobs need a worker: start one with ", h("code", {}, "forgerun worker"), "."]), () => aliveFirst(list.data).map(w => worker(w, context)))],
  };
}

const aliveFirst = workers => [...workers].sort((a, b) => (b.state === "ALIVE") - (a.state === "ALIVE"));

async function goOn(w, context) {
  const drain = (await pauses())?.find(p => p.scope === "WORKER" && p.target === w.worker_id);
  if (drain) await resume(context, drain);
}

function worker(w, context) {
  const change = context.session.read_only || w.state !== "ALIVE" ? null
    : w.drained ? button("Resume…", () => goOn(w, context), { class: "small" }) : button("Drain…", () => begin(context, "WORKER", w.worker_id), { class: "small" });
  const idle = w.state !== "ALIVE" && !w.held;
  return h("section", { class: "card worker", "data-key": w.worker_id },
    h("div", { class: "line" }, h("h2", {}, w.name || w.worker_id), badge(w.silent ? "SILENT" : w.state), w.drained ? badge("DRAIN") : null,
      h("span", { class: w.silent ? "tone-bad" : "quiet" }, w.state === "ALIVE" ? "heartbeat " : "last heartbeat ", age(w.heartbeat_at)),
      h("span", { class: "push num" }, idle ? "holds no jobs" : `${number(w.held)} of ${number(w.slots)} slots`), change),
    idle ? null : h("meter", { min: 0, max: Math.max(1, w.slots), value: Math.min(w.held, w.slots), "aria-label": `${w.held} of ${w.slots} slots are in use` }),
    w.silent ? h("p", { class: "tone-bad" }, "The worker hangs, is stopped, or cannot reach Postgres. Its jobs are requeued ", age(w.expires_at), ".") : null,
    h("p", { class: "quiet" }, h("code", { class: "wrap" }, w.worker_id), " started ", time(w.started_at), future(w)),
    w.jobs.length === 0 ? null : h("details", {}, h("summary", {}, `The jobs that it holds${w.held > w.jobs.length ? ` (the first ${w.jobs.length} of ${number(w.held)})` : ""}`), table([
      { title: "Job", cell: j => jobLink(j.job_id, true) }, { title: "State", cell: j => badge(j.state) }, { title: "Kind", cell: j => filterLink("jobs", "kind", j.work_kind) },
      { title: "Client", cell: j => clientLink(j.client_id) }, { title: "Attempt", num: true, cell: j => number(j.attempt) },
      { title: "Assigned", num: true, cell: j => age(j.assigned_at) }, { title: "Started", num: true, cell: j => age(j.started_at) },
    ], w.jobs, { key: j => j.job_id, open: j => "#/jobs/" + j.job_id, caption: "Jobs that it holds" })));
}

// future describes what will happen to a worker and its jobs.
function future(w) {
  if (w.state === "ALIVE") return w.silent ? null : [", considered dead without a heartbeat ", age(w.expires_at)];
  return w.held ? ", its jobs are not yet requeued" : null;
}
