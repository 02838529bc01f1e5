import { get } from "../api.js";
import { shares } from "../charts.js";
import { h } from "../dom.js";
import { number, span, time } from "../format.js";
import { badge, card, clientLink, empty, facts, filterLink, heading, idLink, link, table } from "../parts.js";
import { filterBar, listing, read } from "./lists.js";

export function page(context) {
  return {
    title: "Batches",
    load: read("batches", context.query, ["client_id", "from", "to"], 50),
    view: list => [heading("Batches"), filterBar("batches", context, [{ name: "client_id", title: "Client" },
      { name: "from", title: "Created from", type: "datetime-local" }, { name: "to", title: "before", type: "datetime-local" }]),
    listing("batches", context, list, empty("No batches.", "Clients create them with POST /v1/jobs/batch."), () => table([
      { title: "Batch", cell: b => idLink("batches", b.batch_id, true) }, { title: "Status", cell: b => b.status ? badge(b.status) : h("span", { class: "quiet" }, "under way") },
      { title: "Items", num: true, cell: b => number(b.total) }, { title: "Client", cell: b => clientLink(b.client_id) },
      { title: "Correlation", class: "wrap", cell: b => filterLink("jobs", "correlation_id", b.correlation_id) },
      { title: "Created", num: true, cell: b => time(b.created_at) }, { title: "Took", num: true, cell: b => took(b) },
    ], list.data, { key: b => b.batch_id, open: b => "#/batches/" + b.batch_id, caption: "Batches" }))],
  };
}

const took = b => b.completed_at ? span(new Date(b.completed_at) - new Date(b.created_at)) : "–";

export function one(context, id) {
  return {
    title: "Batch …" + id.slice(-12),
    load: signal => get("batches/" + encodeURIComponent(id), {}, signal),
    view(b) {
      const counts = Object.entries(b.counts || {});
      return [heading(["Batch ", h("code", { class: "wrap" }, b.batch_id)], link("jobs?batch_id=" + b.batch_id, h("span", { class: "button" }, "Its jobs"))),
        facts([["Status", b.status ? badge(b.status) : "under way"], ["Items", number(b.total)], ["Client", clientLink(b.client_id)],
          ["Correlation id", filterLink("jobs", "correlation_id", b.correlation_id)], ["Created", time(b.created_at)], ["Completed", time(b.completed_at)], ["Took", took(b)]]),
        card("Items by current state", shares(counts.map(([name, value]) => ({ name, value, class: "f-" + name }))),
          h("ul", { class: "states" }, counts.map(([name, n]) => h("li", {}, name === "refused" ? h("span", { class: "plain" }, badge("REFUSED"), h("span", { class: "num" }, number(n)))
            : h("a", { href: `#/jobs?batch_id=${b.batch_id}&state=${name.toUpperCase()}` }, badge(name.toUpperCase()), h("span", { class: "num" }, number(n)))))))];
    },
  };
}
