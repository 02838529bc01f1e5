import { h } from "../dom.js";
import { time } from "../format.js";
import { empty, heading, link, mono, table } from "../parts.js";
import { write } from "../exact.js";
import { filterBar, listing, read } from "./lists.js";

const PLACES = { job: "jobs", client: "clients", delivery: "deliveries", batch: "batches", bulk: "bulk" };

export function page(context) {
  return {
    title: "Audit", every: 5000,
    load: read("audit", context.query, ["operator", "action", "target_id"], 50),
    view: list => [heading("Audit"), h("p", { class: "quiet" }, "What operators changed, newest first."),
      filterBar("audit", context, [{ name: "operator", title: "Operator" }, { name: "action", title: "Action" }, { name: "target_id", title: "Target id" }]),
      listing("audit", context, list, empty("No changes recorded.", "The log records each change and its operator."), () => table([
        { title: "At", num: true, cell: a => time(a.at) }, { title: "Operator", cell: a => a.operator }, { title: "Action", cell: a => mono(a.action) },
        { title: "Target", class: "wrap", cell: target }, { title: "Status", num: true, cell: a => a.status },
        { title: "Detail", class: "wrap", cell: a => a.detail === null || a.detail === undefined ? "" : typeof a.detail === "string" ? a.detail : mono(write(a.detail)) },
        { title: "Request", cell: a => a.request_id ? h("code", { title: a.request_id }, "…" + a.request_id.slice(-8)) : "" },
      ], list.data, { key: a => a.audit_id, caption: "Audit" }))],
  };
}

function target(a) {
  const place = PLACES[a.target_type];
  return [a.target_type || "", " ", a.target_id ? place ? link(`${place}/${encodeURIComponent(a.target_id)}`, a.target_id) : mono(a.target_id) : ""];
}
