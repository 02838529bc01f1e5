import { get } from "../api.js";
import { h } from "../dom.js";
import { age, number } from "../format.js";
import { button, clientLink, empty, filterLink, heading, link, table } from "../parts.js";
import { filterBar, given } from "./lists.js";
import { begin, list as stopped, read } from "./pauses.js";

export function page(context) {
  return {
    title: "Queues",
    load: async signal => {
      const [waiting, pauses] = await Promise.all([get("queues", given(context.query, ["client_id", "kind"]), signal), read(signal)]);
      return { ...waiting, pauses };
    },
    every: 3000,
    view: list => [heading("Queues", list.pauses && !context.session.read_only ? button("Stop jobs…", () => stop(context)) : null, h("a", { class: "button", href: "asynqmon/" }, "Tasks in Redis")),
      h("p", { class: "quiet" }, "Waiting jobs in Postgres by client and kind, longest queue first."),
      stopped(context, list.pauses),
      filterBar("queues", context, [{ name: "client_id", title: "Client" }, { name: "kind", title: "Kind" }]),
      list.data.length === 0 ? empty("No jobs are waiting.", [link("new", "Submit a job"), ", or look at ", link("jobs?state=RUNNING", "what runs"), "."]) : table([
        { title: "Kind", cell: q => filterLink("jobs", "kind", q.work_kind) }, { title: "Client", cell: q => clientLink(q.client_id) },
        { title: "Ready", num: true, cell: q => jobs(q, "QUEUED", q.queued) }, { title: "For later", num: true, cell: q => jobs(q, "CREATED", q.scheduled) },
        { title: "Oldest ready since", num: true, cell: q => age(q.oldest_run_at) },
      ], list.data, { key: q => q.client_id + q.work_kind, caption: "Queues" }),
      list.more ? h("p", { class: "quiet" }, "Only the first 100,000 waiting jobs are counted; there are more.") : null],
  };
}

const stop = async context => begin(context, "ALL", "", (await get("catalogue")).kinds.map(k => k.work_kind));

const jobs = (q, state, n) => n ? h("a", { href: "#/jobs?" + new URLSearchParams({ state, kind: q.work_kind, client_id: q.client_id }) }, number(n)) : "0";
