import { get, post, remove } from "../api.js";
import { confirm, field, tell } from "../dialogs.js";
import { h } from "../dom.js";
import { age, serviceNow, time, used } from "../format.js";
import { badge, button, card, copyButton, empty, facts, heading, learnNames, link, mono, note, table } from "../parts.js";
import { ask } from "./erasures.js";
import { listing, read } from "./lists.js";
import { begin, list as stopped, read as pauses } from "./pauses.js";

export function page(context) {
  const make = () => confirm({ title: "New client?", text: "A client has its own jobs, webhooks and API keys.", action: "Make it", fields: [nameField("")],
    act: form => post("clients").then(made => form.get("name") ? call(made.client_id, form.get("name")) : made) })
    .then(made => made && context.go("#/clients/" + made.client_id));
  return {
    title: "Clients",
    load: read("clients", context.query, [], 50), every: 5000,
    view: list => [heading("Clients", link("erasures", "Erasures"), context.session.read_only ? null : button("New client…", make)),
      listing("clients", context, list, empty("No clients.", "Each job belongs to a client."), () => table([
        { title: "Client", class: "wrap", cell: c => h("div", {}, h("a", { href: "#/clients/" + c.client_id, class: "open" }, c.name || mono(c.client_id)),
          c.name ? h("small", { class: "block quiet" }, mono(c.client_id)) : null) },
        { title: "Held by workers", num: true, cell: c => used(c.active_jobs) }, { title: "Not ended", num: true, cell: c => used(c.open_jobs) },
        { title: "Webhooks", num: true, cell: c => used(c.webhooks) }, { title: "Since", num: true, cell: c => time(c.created_at) },
      ], list.data, { key: c => c.client_id, open: c => "#/clients/" + c.client_id, caption: "Clients" }))],
  };
}

const nameField = name => field("Name", h("input", { name: "name", value: name, maxlength: 100 }), "For operators only; the client does not see it.");

// call sets the name of a client, reads all names again, and returns the client.
const call = (id, name) => post(`clients/${encodeURIComponent(id)}/name`, { name }).then(async named => {
  await learnNames(true);
  return named;
});

export function one(context, id) {
  const at = "clients/" + encodeURIComponent(id);
  const add = () => confirm({ title: "New key for this client?", text: "The key is shown only once.", action: "Make it", fields: [field("Permissions",
    h("select", { name: "scope" }, ["all", "submit", "read"].map(s => h("option", { value: s }, SCOPES[s]))))], act: form => post(at + "/keys", { scope: form.get("scope") }) })
    .then(made => {
      if (made) {
        tell("The new key", note("warn", h("p", {}, "This key is shown only now. Send it to the client over a private channel.")),
          h("pre", {}, made.api_key || made.key || ""), copyButton(made.api_key || made.key || "", "Copy the key"));
      }
      context.refresh();
    });
  const rename = c => confirm({ title: "Name of this client", action: "Name it", fields: [nameField(c.name || "")], text: [],
    act: form => call(c.client_id, form.get("name").trim()) }).then(() => context.refresh());
  const revoke = key => confirm({ title: "Revoke this key?", text: ["Requests with this key will be refused immediately. This cannot be undone.", key.key_id], action: "Revoke", danger: true,
    act: () => remove(`${at}/keys/${encodeURIComponent(key.key_id)}`) }).then(() => context.refresh());
  return {
    title: "Client …" + id.slice(-12),
    load: async signal => {
      const [client, all] = await Promise.all([get(at, {}, signal), pauses(signal)]);
      return { ...client, pauses: all?.filter(p => p.scope === "CLIENT" && p.target === client.client_id) };
    },
    every: 5000,
    view: c => [
      heading(["Client ", c.name ? [c.name, " "] : null, h("code", { class: "wrap" }, c.client_id)], copyButton(c.client_id, "Copy id"),
        context.session.read_only ? null : [button("Name…", () => rename(c)), button("New key…", add), c.pauses ? button("Stop jobs…", () => begin(context, "CLIENT", c.client_id)) : null, button("Erase client…", () => ask(context, c.client_id), { class: "danger" })]),
      facts([["Since", time(c.created_at)], ["Jobs held by workers", used(c.active_jobs)], ["Jobs not ended", used(c.open_jobs)], ["Webhooks", used(c.webhooks)]]),
      stopped(context, c.pauses),
      h("div", { class: "toolbar" }, [["jobs", "Jobs"], ["queues", "Queues"], ["batches", "Batches"], ["webhooks", "Webhooks"], ["deliveries", "Deliveries"], ["new", "New job"]].map(([to, text]) =>
        link(`${to}?client_id=${c.client_id}`, h("span", { class: "button" }, text)))),
      card("Keys", c.keys.length === 0 ? h("p", { class: "quiet" }, "The client has no keys.") : table([
        { title: "Key", cell: k => mono(k.key_id) }, { title: "May", cell: k => SCOPES[k.scope] || k.scope }, { title: "State", cell: stateOf },
        { title: "Made", num: true, cell: k => time(k.created_at) }, { title: "Expires", num: true, cell: k => age(k.expires_at) },
        { title: "Replaced by", cell: k => mono(k.replaced_by) },
        { title: "", cell: k => k.revoked_at || context.session.read_only ? "" : button("Revoke…", () => revoke(k), { class: "small danger" }) },
      ], c.keys, { key: k => k.key_id, caption: "Keys" })),
    ],
  };
}

const SCOPES = { all: "everything", submit: "submit and read", read: "read" };

function stateOf(key) {
  if (key.revoked_at) return h("span", {}, badge("REVOKED"), " ", age(key.revoked_at));
  return badge(new Date(key.expires_at) <= serviceNow() ? "EXPIRED" : "VALID");
}
