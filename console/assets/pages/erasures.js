import { get, post } from "../api.js";
import { confirm, field } from "../dialogs.js";
import { h } from "../dom.js";
import { number, span, time } from "../format.js";
import { badge, card, empty, facts, heading, idLink, mono, note, table } from "../parts.js";
import { listing, read } from "./lists.js";

const sum = counts => Object.values(counts || {}).reduce((a, b) => a + b, 0);

// ask erases a client after the operator has typed the client's id.
export const ask = (context, client) => confirm({
  title: "Erase this client with all its data?", action: "Erase permanently", danger: true,
  text: ["This immediately revokes its keys, cancels its jobs and removes all its data. It cannot be undone or stopped.", mono(client)],
  fields: [
    field("Type the id of the client", h("input", { name: "confirm", autocomplete: "off", spellcheck: "false", required: true, pattern: client })),
    field("Why", h("input", { name: "reason", maxlength: 1000, autocomplete: "off" }), "The record keeps this text. Do not name a person."),
  ],
  act: form => post(`clients/${encodeURIComponent(client)}/erase`, { confirm: form.get("confirm").trim(), reason: form.get("reason") }),
}).then(begun => begun && context.go("#/erasures/" + begun.erasure_id));

export function page(context) {
  return {
    title: "Erasures",
    load: read("erasures", context.query, [], 50), every: 5000,
    view: list => [heading("Erasures"), listing("erasures", context, list, empty("No client was erased.", "To erase a client, open its page."), () => table([
      { title: "Erasure", cell: e => idLink("erasures", e.erasure_id, true) }, { title: "Client", cell: e => mono(e.client_id) },
      { title: "State", cell: e => badge(e.state) }, { title: "Rows removed", num: true, cell: e => number(sum(e.removed)) },
      { title: "By", cell: e => e.operator }, { title: "Asked for", num: true, cell: e => time(e.created_at) },
    ], list.data, { key: e => e.erasure_id, open: e => "#/erasures/" + e.erasure_id, caption: "Erasures" }))],
  };
}

export function one(context, id) {
  return {
    title: "Erasure",
    load: signal => get("erasures/" + encodeURIComponent(id), {}, signal), every: 1000, often: e => e.state !== "DONE",
    view: e => [
      heading(["Erasure of client ", h("code", { class: "wrap" }, e.client_id)]),
      card(null, h("div", { class: "progress" }, badge(e.state), e.state === "DONE" ? null : h("span", { class: "quiet" }, e.step.replaceAll("_", " "))), facts([
        ["Rows removed", number(sum(e.removed))], ["By", e.operator], ["Why", e.reason || "–"], ["Asked for", time(e.created_at)], ["Done", time(e.finished_at)],
        ["Took", e.finished_at ? span(new Date(e.finished_at) - new Date(e.created_at)) : undefined],
      ])),
      e.proof ? note("good", h("p", {}, `${number(sum(e.proof.remaining))} rows remain.`), h("p", {}, "SHA-256 of the record: ", h("code", { class: "wrap" }, e.proof.sha256))) : null,
      card("Tables", table([
        { title: "Table", cell: ([name]) => mono(name) }, { title: "Removed", num: true, cell: ([, n]) => number(n) },
        { title: "Remain", num: true, cell: ([name]) => e.proof ? number(e.proof.remaining[name]) : "" },
      ], Object.entries(e.removed).sort(), { key: ([name]) => name, caption: "Rows by table" })),
    ],
  };
}
