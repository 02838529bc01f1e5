import { get, post } from "../api.js";
import { confirm } from "../dialogs.js";
import { h } from "../dom.js";
import { age, number, span, time } from "../format.js";
import { badge, button, card, clientLink, empty, facts, heading, idLink, jobLink, mono, note, outside, table } from "../parts.js";
import { filterBar, listing, read } from "./lists.js";

const NAMES = ["client_id", "webhook_id", "job_id", "state", "event_name", "from", "to"];

const to = d => d.webhook_id ? idLink("webhooks", d.webhook_id) : outside(d.url);

// columns returns the columns of a list of deliveries. The list of one webhook has no column for the webhook.
export const columns = ofOne => [
  { title: "Delivery", cell: d => idLink("deliveries", d.delivery_id, true) }, { title: "State", cell: d => badge(d.state) }, { title: "Event", cell: d => mono(d.event_name) },
  ofOne ? null : { title: "To", class: "wrap", cell: to }, { title: "Job", cell: d => jobLink(d.job_id) }, ofOne ? null : { title: "Client", cell: d => clientLink(d.client_id) },
  { title: "Attempts", num: true, cell: d => number(d.attempts) }, { title: "Response", num: true, cell: d => d.last_status ?? "–" },
  { title: "Error", class: "wrap", cell: d => d.last_error ? h("span", { title: d.last_error.code }, d.last_error.detail) : "" },
  { title: "Next", num: true, cell: d => d.next_attempt_at ? age(d.next_attempt_at) : "–" }, { title: "Event at", num: true, cell: d => time(d.created_at) },
].filter(Boolean);

// again asks whether to send the event of a delivery again, and returns the new delivery.
export const again = id => confirm({ title: "Send it again?", text: "The event is sent once more, with the usual retries.", action: "Send",
  act: () => post(`deliveries/${encodeURIComponent(id)}/redeliver`).then(r => r || true) });

export function page(context) {
  return {
    title: "Deliveries",
    load: read("deliveries", context.query, NAMES, 50),
    view: list => [heading("Deliveries"), filterBar("deliveries", context, [
      { name: "state", title: "State", options: ["PENDING", "DELIVERED", "FAILED"] }, { name: "event_name", title: "Event", placeholder: "job.succeeded" },
      { name: "client_id", title: "Client" }, { name: "webhook_id", title: "Webhook" }, { name: "job_id", title: "Job" },
      { name: "from", title: "From", type: "datetime-local" }, { name: "to", title: "before", type: "datetime-local" }]),
    listing("deliveries", context, list, empty("No deliveries.", "Events are delivered to webhooks and to the callbacks of jobs."), () => table(columns(false), list.data, { key: d => d.delivery_id, open: d => "#/deliveries/" + d.delivery_id, caption: "Deliveries" }))],
  };
}

export function one(context, id) {
  const at = "deliveries/" + encodeURIComponent(id);
  const send = () => again(id).then(made => made?.delivery_id && made.delivery_id !== id ? context.go("#/deliveries/" + made.delivery_id) : context.refresh());
  return {
    title: "Delivery …" + id.slice(-12),
    load: signal => get(at, {}, signal),
    view: d => [
      heading(["Delivery ", h("code", { class: "wrap" }, d.delivery_id)], context.session.read_only ? null : button("Send again…", send, { disabled: d.state === "PENDING" })),
      facts([["State", badge(d.state)], ["Event", mono(d.event_name)], [d.webhook_id ? "To webhook" : "To", to(d)], ["Job", jobLink(d.job_id)], ["Client", clientLink(d.client_id)], ["Event's number", number(d.seq)],
        ["Event at", time(d.created_at)], ["Settled", time(d.settled_at)], ["Next attempt", d.next_attempt_at ? [time(d.next_attempt_at), " (", age(d.next_attempt_at), ")"] : "–"]]),
      d.last_error ? note("bad", h("p", { class: "strong" }, d.last_error.detail), h("p", {}, mono(d.last_error.code))) : null,
      card(`Attempts (${number(d.attempts)})`, d.attempts_log.length === 0 ? h("p", { class: "quiet" }, "No attempt was made.") : d.attempts_log.map(attempt)),
    ],
  };
}

function attempt(a) {
  return h("details", { class: "attempt", "data-key": a.number, open: a.error !== null && a.number === 1 },
    h("summary", {}, h("span", { class: "strong" }, `No. ${a.number}`), " ", time(a.started_at), h("span", { class: "num" }, ` ${span(a.duration_ms)} `),
      a.error ? h("span", { class: "tone-bad" }, a.status ? `answered ${a.status} · ` : "", `${a.error.code}: ${a.error.detail}`) : h("span", { class: "tone-good" }, `answered ${a.status}`)),
    a.response ? [h("table", { class: "headers" }, h("tbody", {}, Object.entries(a.response.headers || {}).map(([name, lines]) => h("tr", {}, h("th", { scope: "row" }, name), h("td", {}, lines.join(", ")))))),
      body(a.response), a.response.truncated ? h("p", { class: "quiet" }, "The body was longer.") : null]
      : h("p", { class: "quiet" }, "The receiver did not respond."));
}

function body({ body: text, body_base64: base64 }) {
  if (!text && !base64) return h("p", { class: "quiet" }, "The body was empty.");
  return h("pre", { tabindex: "0" }, text ?? "base64: " + base64);
}
