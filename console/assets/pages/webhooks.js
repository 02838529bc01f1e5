import { post } from "../api.js";
import { confirm } from "../dialogs.js";
import { h } from "../dom.js";
import { age, number, time } from "../format.js";
import { button, clientLink, empty, heading, link, mono, outside, pager, table } from "../parts.js";
import { filterBar, nextPage, read } from "./lists.js";

const DOES = {
  enable: "Events are sent to it again.", disable: "No events are sent to it until it is enabled again; deliveries that wait are given up.",
  test: "The event webhook.test is sent to it.",
};

export function page(context) {
  const change = (w, action) => confirm({ title: `${action[0].toUpperCase()}${action.slice(1)} this webhook?`, text: [DOES[action], w.url], action: action[0].toUpperCase() + action.slice(1),
    danger: action === "disable", act: () => post(`webhooks/${w.webhook_id}/${action}`).then(() => context.say("Done.")) }).then(() => context.refresh());
  return {
    title: "Webhooks",
    load: read("webhooks", context.query, ["client_id", "enabled"], 50),
    view: list => [heading("Webhooks"), filterBar("webhooks", context, [{ name: "client_id", title: "Client" }, { name: "enabled", title: "Enabled", options: ["true", "false"] }]),
      list.data.length === 0 ? empty("No webhooks.", "Clients make them by POST /v1/webhooks.") : table([
        { title: "Webhook", class: "wrap", cell: w => [h("a", { href: "#/deliveries?webhook_id=" + w.webhook_id, class: "id open", title: w.webhook_id }, "…" + w.webhook_id.slice(-12)), " ", outside(w.url),
          w.description ? h("small", { class: "block quiet" }, w.description) : null] },
        { title: "State", class: "wrap", cell: w => w.enabled ? h("span", { class: "badge s-alive" }, "ENABLED") : [h("span", { class: "badge s-dead" }, "DISABLED"),
          h("small", { class: "block" }, w.disabled_reason ? `${w.disabled_reason.code}: ${w.disabled_reason.detail} ` : "", age(w.disabled_at))] },
        { title: "Failures in a row", num: true, cell: w => [number(w.consecutive_failures), w.failing_since ? h("small", { class: "block" }, "since ", age(w.failing_since)) : null] },
        { title: "Events", class: "wrap", cell: w => w.events.map((e, i) => [i ? " " : "", mono(e)]) }, { title: "Client", cell: w => clientLink(w.client_id) },
        { title: "Created", num: true, cell: w => time(w.created_at) },
        context.session.read_only ? { title: "", cell: () => "" } : { title: "", cell: w => h("div", { class: "toolbar" },
          w.enabled ? [button("Test", () => change(w, "test"), { class: "small" }), button("Disable", () => change(w, "disable"), { class: "small" })] : button("Enable", () => change(w, "enable"), { class: "small" })) },
      ], list.data, { key: w => w.webhook_id, open: w => "#/deliveries?webhook_id=" + w.webhook_id, caption: "Webhooks" }),
      pager(list.page, nextPage("webhooks", context.query), context.query.get("cursor")), h("p", { class: "quiet" }, link("deliveries?state=FAILED", "Deliveries that were given up"))],
  };
}
