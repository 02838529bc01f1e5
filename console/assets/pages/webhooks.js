import { get, post } from "../api.js";
import { confirm } from "../dialogs.js";
import { h } from "../dom.js";
import { age, number, plural, time } from "../format.js";
import { badge, button, card, clientLink, copyButton, empty, facts, heading, link, mono, note, outside, table } from "../parts.js";
import { again, columns } from "./deliveries.js";
import { filterBar, listing, read } from "./lists.js";

const FAILING = 5; // consecutive failed attempts from which a webhook counts as failing, as in "Needs attention"
const RECENT = 25; // deliveries on the page of a webhook

const DOES = {
  enable: "The webhook receives events again.", disable: "The webhook receives no events until it is enabled again; pending deliveries fail.",
  test: "The event webhook.test is sent to the webhook.",
};

const titleOf = action => action[0].toUpperCase() + action.slice(1);

const stateOf = w => !w.enabled ? "DISABLED" : w.consecutive_failures >= FAILING ? "FAILING" : "ENABLED";

const eventsOf = w => w.events.map((e, i) => [i ? " " : "", mono(e)]);

const failures = w => [number(w.consecutive_failures), w.failing_since ? h("small", { class: "block" }, "since ", age(w.failing_since)) : null];

// change enables, disables or tests a webhook after the operator has confirmed it.
const change = (context, w, action) => confirm({ title: `${titleOf(action)} this webhook?`, text: [DOES[action], w.url], action: titleOf(action), danger: action === "disable",
  act: () => post(`webhooks/${w.webhook_id}/${action}`).then(() => context.say("Done.")) }).then(() => context.refresh());

const actions = (context, w, kind) => context.session.read_only ? null : (w.enabled ? ["test", "disable"] : ["enable"])
  .map(action => button(titleOf(action) + "…", () => change(context, w, action), { class: kind }));

export function page(context) {
  return {
    title: "Webhooks",
    load: read("webhooks", context.query, ["client_id", "enabled"], 50),
    view: list => [heading("Webhooks"), filterBar("webhooks", context, [{ name: "client_id", title: "Client" }, { name: "enabled", title: "Enabled", options: ["true", "false"] }]),
      listing("webhooks", context, list, empty("No webhooks.", "Clients create them with POST /v1/webhooks."), () => table([
        { title: "Webhook", class: "wrap", cell: w => [h("a", { href: "#/webhooks/" + w.webhook_id, class: "id open", title: w.webhook_id }, "…" + w.webhook_id.slice(-12)), " ", outside(w.url),
          w.description ? h("small", { class: "block quiet" }, w.description) : null] },
        { title: "State", class: "wrap", cell: w => [badge(stateOf(w)), w.enabled ? null
          : h("small", { class: "block" }, w.disabled_reason ? `${w.disabled_reason.code}: ${w.disabled_reason.detail} ` : "", age(w.disabled_at))] },
        { title: "Failures in a row", num: true, cell: failures },
        { title: "Events", class: "wrap", cell: eventsOf }, { title: "Client", cell: w => clientLink(w.client_id) },
        { title: "Created", num: true, cell: w => time(w.created_at) },
        { title: "", cell: w => h("div", { class: "toolbar" }, actions(context, w, "small")) },
      ], list.data, { key: w => w.webhook_id, open: w => "#/webhooks/" + w.webhook_id, caption: "Webhooks" })), h("p", { class: "quiet" }, link("deliveries?state=FAILED", "Abandoned deliveries"))],
  };
}

export function one(context, id) {
  return {
    title: "Webhook …" + id.slice(-12),
    load: async signal => {
      const [webhook, deliveries] = await Promise.all([get("webhooks/" + encodeURIComponent(id), {}, signal), get("deliveries", { webhook_id: id, limit: RECENT }, signal)]);
      return { webhook, deliveries: deliveries.data };
    },
    view: ({ webhook: w, deliveries }) => {
      const last = deliveries.find(d => d.attempts > 0);
      return [
        heading(["Webhook ", h("code", { class: "wrap" }, w.webhook_id)], copyButton(w.webhook_id, "Copy id"), actions(context, w)),
        trouble(w, last),
        facts([["State", badge(stateOf(w))], ["Failures in a row", failures(w)],
          ["Last response", last ? answer(last) : "–"], ["Address", outside(w.url)],
          ["Client", clientLink(w.client_id)], ["Events", eventsOf(w)], ["Content mode", w.content_mode], ["Description", w.description || "–"],
          ["Address proven", time(w.proven_at)], ["Created", time(w.created_at)], ["Changed", time(w.updated_at)]]),
        card(["Latest deliveries ", h("span", { class: "quiet" }, summary(deliveries))],
          deliveries.length === 0 ? h("p", { class: "quiet" }, "No matching events yet.") : table([...columns(true), resend(context)],
            deliveries, { key: d => d.delivery_id, open: d => "#/deliveries/" + d.delivery_id, caption: "Latest deliveries" })),
        h("p", {}, link(`deliveries?webhook_id=${w.webhook_id}`, "All its deliveries")),
      ];
    },
  };
}

const answer = d => d.last_error ? h("span", { class: "tone-bad", title: d.last_error.code }, d.last_error.detail) : h("span", { class: "tone-good" }, String(d.last_status));

// trouble shows why events do not arrive, and what to do.
function trouble(w, last) {
  const state = stateOf(w);
  if (state === "ENABLED") return null;
  const why = last?.last_error ? h("p", {}, last.last_error.detail) : null;
  if (state === "FAILING") {
    return note("bad", h("p", { class: "strong" }, `${plural(w.consecutive_failures, "attempt")} in a row failed, the first of them `, age(w.failing_since), "."), why,
      h("p", { class: "quiet" }, "Each delivery is retried with growing delays. The service disables a webhook that keeps failing. Fix the receiver, then test the webhook."));
  }
  return note("bad", h("p", { class: "strong" }, "Disabled since ", time(w.disabled_at), "."), w.disabled_reason ? h("p", {}, w.disabled_reason.detail) : null, why,
    h("p", { class: "quiet" }, "Fix the receiver, enable the webhook, and resend the abandoned deliveries."));
}

function summary(deliveries) {
  const of = state => deliveries.filter(d => d.state === state).length;
  return [["DELIVERED", "delivered"], ["PENDING", "pending"], ["FAILED", "given up"]].filter(([state]) => of(state)).map(([state, word]) => `${number(of(state))} ${word}`).join(", ");
}

// resend is the column with the button that sends a failed delivery again.
const resend = context => ({ title: "", cell: d => d.state !== "FAILED" || context.session.read_only ? ""
  : button("Send again…", () => again(d.delivery_id).then(() => context.refresh()), { class: "small" }) });
