// Faults of a test bed: the rules that disturb clients' traffic, with their counts.
import { get, optional } from "../api.js";
import { h } from "../dom.js";
import { number } from "../format.js";
import { clientLink, empty, heading, link, missing, table } from "../parts.js";
import { filterBar, given } from "./lists.js";

export function page(context) {
  return {
    title: "Faults", every: 3000, often: list => list?.data.length > 0,
    load: signal => optional(get("testbed/faults", given(context.query, ["client_id"]), signal)),
    view: list => !list ? [heading("Faults"), missing("The test bed")] : [
      heading("Faults", link("sessions", h("span", { class: "button" }, "Sessions"))),
      h("p", { class: "quiet" }, "Faults that clients of this test bed set for their own requests and deliveries. The first matching rule applies."),
      filterBar("faults", context, [{ name: "client_id", title: "Client" }]),
      list.data.length === 0 ? empty("No faults are active.", "A client sets rules with PUT /v1/testbed/faults, or starts a session with a profile.") : table([
        { title: "Client", cell: r => clientLink(r.client_id) }, ...list.data.some(r => r.label) ? [{ title: "Label", class: "wrap", cell: r => r.label || "" }] : [],
        { title: "Requests", class: "wrap", cell: r => matchOf(r.match) }, { title: "What happens", class: "wrap", cell: r => h("span", {}, members(r.effect)) },
        { title: "Seen", num: true, cell: r => number(r.seen) }, { title: "Applied", num: true, cell: r => r.applied ? h("span", { class: "strong" }, number(r.applied)) : number(r.applied) },
      ], list.data, { key: r => [r.client_id, r.label, r.rule_id].join(), caption: "Faults" }),
      list.more ? h("p", { class: "quiet" }, `These are the first ${number(list.data.length)}; there are more. Filter by client.`) : null],
  };
}

// matchOf shows which requests a rule matches, beginning with the operation.
function matchOf({ operation, ...rest }) {
  return h("span", {}, h("span", { class: "strong" }, operation || "any request"), " ", members(rest));
}

const members = object => Object.entries(object).map(([name, value], i) => [i ? " " : "", h("code", { class: "chip" }, `${name}: ${typeof value === "object" ? JSON.stringify(value) : value}`)]);
