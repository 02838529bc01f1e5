// Common parts of the pages.
import { h } from "./dom.js";
import { Failure, get } from "./api.js";
import { short } from "./format.js";

export const STATES = ["CREATED", "QUEUED", "ASSIGNED", "RUNNING", "SUCCEEDED", "FAILED", "CANCELED"];

// EXPLAINED describes each state.
export const EXPLAINED = {
  CREATED: "Accepted, waiting for its time", QUEUED: "Ready, waiting for a worker", ASSIGNED: "Claimed by a worker, not started",
  RUNNING: "A worker runs the job", SUCCEEDED: "Finished successfully", FAILED: "Finished with an error", CANCELED: "Stopped before completion",
  ALIVE: "The worker sends heartbeats", DEAD: "The worker stopped sending heartbeats", STOPPED: "The worker was shut down", SILENT: "The worker missed three heartbeats in a row",
  ENABLED: "Events are sent to the webhook", FAILING: "At least five attempts in a row failed", DISABLED: "No events are sent to the webhook",
  PAUSE: "No jobs are started", DRAIN: "No jobs are accepted; a drained worker takes no jobs",
  PENDING: "Being sent, or waiting for its next attempt", DELIVERED: "The receiver answered 2xx",
};

export const badge = state => state
  ? h("span", { class: `badge s-${String(state).toLowerCase()}`, title: EXPLAINED[state] || false }, state)
  : h("span", { class: "none" }, "–");

export const mono = text => text === null || text === undefined || text === "" ? h("span", { class: "none" }, "–") : h("code", {}, text);

export const link = (to, ...text) => h("a", { href: "#/" + to }, text);

export function jobLink(id, open = false) {
  if (!id) return h("span", { class: "none" }, "–");
  return h("a", { href: "#/jobs/" + encodeURIComponent(id), class: open ? "id open" : "id", title: id }, short(id));
}

export const idLink = (place, id, open = false) => id
  ? h("a", { href: `#/${place}/${encodeURIComponent(id)}`, class: open ? "id open" : "id", title: id }, short(id))
  : h("span", { class: "none" }, "–");

// filterLink returns a link to a list with one filter.
export const filterLink = (place, name, value, text = value) => value
  ? h("a", { href: `#/${place}?${new URLSearchParams({ [name]: value })}`, title: value, class: text === value ? "" : "id" }, text)
  : h("span", { class: "none" }, "–");

// names maps the ids of clients to the names that operators gave them.
const names = new Map();
let learned = 0;

// learnNames reads the names again, at most once a minute unless now is true. If reading fails, pages show ids.
export async function learnNames(now = false) {
  if (!now && Date.now() - learned < 60000) return;
  learned = Date.now();
  const all = [];
  try {
    for (let cursor = ""; cursor !== null && all.length < 1000;) {
      const list = await get("clients", { named: true, limit: 100, cursor });
      all.push(...list.data);
      cursor = list.page.next_cursor;
    }
  } catch { return; }
  names.clear();
  all.forEach(c => names.set(c.client_id, c.name));
}

// clientLink returns a link with a client's name, or its id if it has no name.
export function clientLink(id) {
  if (!id || !names.has(id)) return idLink("clients", id);
  return h("a", { href: "#/clients/" + encodeURIComponent(id), title: id }, names.get(id));
}

// outside shows an address from a client. It is a link only if it is an http or https address.
export function outside(address) {
  if (!address) return h("span", { class: "none" }, "–");
  if (!/^https?:\/\/[^\s]+$/i.test(address)) return h("code", { class: "wrap" }, address);
  return h("a", { href: address, rel: "noreferrer noopener nofollow", target: "_blank", class: "wrap" }, address);
}

export function button(text, onclick, options = {}) {
  return h("button", { type: "button", class: options.class || "", onclick, disabled: options.disabled, title: options.title,
    "aria-pressed": options.pressed === undefined ? false : String(options.pressed), "data-key": options.key }, text);
}

export function heading(title, ...actions) {
  return h("div", { class: "heading" }, h("h1", { tabindex: "-1" }, title), h("div", { class: "actions" }, actions));
}

export const card = (title, ...children) => h("section", { class: "card" }, title ? h("h2", {}, title) : null, children);

export const note = (kind, ...children) => h("div", { class: "note " + kind, role: kind === "bad" ? "alert" : false }, children);

export const empty = (title, ...children) => h("div", { class: "empty" }, h("p", { class: "strong" }, title), children.map(c => h("p", {}, c)));

// missing returns a note in place of a part that this server's version lacks.
export const missing = what => note("plain", h("p", {}, `${what}: not available on this server.`),
  h("p", { class: "quiet" }, "This server's version lacks the required part of the operator API. ", link("system", "Version")));

// failed shows the error of a request.
export function failed(failure) {
  if (!(failure instanceof Failure)) return note("bad", h("p", {}, String(failure?.message || failure)));
  if (failure.missing) return missing("This page");
  const violations = failure.problem.violations || [];
  return note("bad", h("p", { class: "strong" }, failure.message), violations.length > 0
    ? h("ul", {}, violations.map(v => h("li", {}, mono(v.pointer ?? v.parameter ?? ""), " ", v.detail))) : null,
  failure.code ? h("p", { class: "quiet" }, `${failure.code} · request ${failure.problem.instance || "unknown"}`) : null);
}

// facts returns a list of names and values. It omits undefined values.
export function facts(entries) {
  return h("dl", { class: "facts" }, entries.filter(e => e && e[1] !== undefined)
    .map(([name, value, title]) => h("div", {}, h("dt", { title: title || false }, name), h("dd", {}, value))));
}

// table shows rows. A column is {title, cell(row), num, wide}. The keys j, k and Enter use the first link with the class open in a row.
export function table(columns, rows, { key, caption, open, marked } = {}) {
  return h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": caption || "Table" },
    h("table", { class: "rows" },
      h("thead", {}, h("tr", {}, columns.map(c => h("th", { scope: "col", class: classOf(c) }, c.head || c.title)))),
      h("tbody", {}, rows.map(row => h("tr", {
        "data-key": key ? String(key(row)) : false, class: (open ? "opens" : "") + (marked?.(row) ? " marked" : ""),
        onclick: open ? event => openRow(event, open(row)) : null,
      }, columns.map(c => h("td", { class: classOf(c), "data-label": c.title || false }, c.cell(row))))))));
}

const classOf = c => (c.num ? "num " : "") + (c.class || "") || false;

function openRow(event, address) {
  if (event.target.closest("a,button,input,label,summary,dialog") || String(getSelection())) return;
  if (event.ctrlKey || event.metaKey) window.open(address, "_blank", "noopener");
  else location.hash = address;
}

// pager returns links to the next page and back to the first one.
export function pager(page, to, cursor) {
  if (!page || (!page.next_cursor && !cursor)) return null;
  return h("nav", { class: "pager", "aria-label": "Pages" },
    cursor ? h("a", { href: to("") }, "First page") : null,
    page.next_cursor ? h("a", { href: to(page.next_cursor), rel: "next" }, "Next page") : h("span", { class: "quiet" }, "End of the list"));
}

export function copyButton(text, label = "Copy") {
  return button(label, async event => {
    const it = event.currentTarget;
    try {
      await navigator.clipboard.writeText(typeof text === "function" ? text() : text);
      it.textContent = "Copied";
    } catch {
      it.textContent = "Cannot copy here";
    }
    setTimeout(() => { it.textContent = label; }, 1500);
  }, { class: "small" });
}
