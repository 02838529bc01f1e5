// The common part of pages with a list: filters in the address, and pages of the list.
import { get, optional } from "../api.js";
import { field } from "../dialogs.js";
import { h } from "../dom.js";
import { note, pager, STATES } from "../parts.js";

// given returns the parameters of the address that have these names, and the cursor.
export const given = (query, names) => Object.fromEntries([...names, "cursor"].map(n => [n, query.get(n)]).filter(([, v]) => v));

// addressOf returns the address of a page with the parameters in query, changed by changes. It drops the cursor unless changes sets it.
export function addressOf(place, query, changes = {}) {
  const next = new URLSearchParams(query);
  if (!("cursor" in changes)) next.delete("cursor");
  for (const [name, value] of Object.entries(changes)) {
    if (value === "" || value === null || value === undefined) next.delete(name);
    else next.set(name, value);
  }
  return `#/${place}${next.size ? "?" + next : ""}`;
}

export const nextPage = (place, query) => cursor => addressOf(place, query, { cursor });

// kindNames returns the work kinds of this server.
export const kindNames = async signal => ((await optional(get("catalogue", {}, signal)))?.kinds || []).map(k => k.work_kind);

// clientField returns an input for the client of a new job or schedule.
export async function clientField(context) {
  const { data } = await get("clients", { limit: 100 });
  return field("Client", [h("input", { name: "client_id", list: "clients", required: true, value: context.query.get("client_id") || data[0]?.client_id || "", spellcheck: "false", autocomplete: "off" }),
    h("datalist", { id: "clients" }, data.map(c => h("option", { value: c.client_id }, c.name || "")))]);
}

// orRefusal returns an empty list with the server's violations if the server refuses a value of the request.
export async function orRefusal(answer, signal) {
  try {
    return await answer;
  } catch (failure) {
    const refused = failure.status === 400 ? failure.problem?.violations || [] : [];
    if (refused.length === 0) throw failure;
    return { data: [], page: null, refused, kinds: await kindNames(signal) };
  }
}

const TITLES = { kind: "work kind", client_id: "id of a client", batch_id: "id of a batch", failure_code: "failure code", code: "failure code", event_name: "event", from: "time", to: "time" };

// refusal reports the refused value, and suggests similar ones.
export function refusal(place, { refused, kinds }, query) {
  const like = { kind: kinds, state: STATES };
  return note("warn", refused.map(({ parameter, detail }) => {
    const value = query.get(parameter) || "", known = (like[parameter] || []).filter(k => k.includes(value.toUpperCase()));
    return h("p", {}, h("span", { class: "strong" }, `“${value}” is not a valid ${TITLES[parameter] || parameter}. `), known.length
      ? ["Did you mean ", known.map((k, i) => [i ? ", " : "", h("a", { href: addressOf(place, query, { [parameter]: k }) }, k)]), "?"] : detail,
    " ", h("a", { href: addressOf(place, query, { [parameter]: "" }) }, "Remove this filter"));
  }));
}

export const read = (place, query, names, limit) => signal => orRefusal(get(place, { ...given(query, names), limit }, signal), signal);

// listing shows the result of read: a refused filter, none if the list is empty, or the rows. A link leads to the next page.
export const listing = (place, context, list, none, rows) => [
  list.refused ? refusal(place, list, context.query) : list.data.length === 0 ? none : rows(),
  pager(list.page, nextPage(place, context.query), context.query.get("cursor")),
];

// filterBar shows inputs for filters: {name, title, options?, type?, list?}. Changing one changes the address.
export function filterBar(place, context, filters) {
  const change = (name, value) => context.go(addressOf(place, context.query, { [name]: value.trim() }));
  return h("form", { class: "filters", "aria-label": "Filters", onsubmit(event) {
    event.preventDefault();
    document.activeElement?.blur?.();
  } }, filters.map(f => h("label", {}, h("span", {}, f.title), f.options
    ? h("select", { value: context.query.get(f.name) || "", onchange: event => change(f.name, event.target.value) },
      h("option", { value: "" }, "any"), f.options.map(o => h("option", { value: o }, o)))
    : f.type === "datetime-local"
      ? h("input", { type: f.type, step: 1, value: local(context.query.get(f.name)), onchange: event => change(f.name, utc(event.target.value)) })
      : h("input", { type: "text", value: context.query.get(f.name) || "", placeholder: f.placeholder, autocomplete: "off", spellcheck: "false",
        list: f.list, onchange: event => change(f.name, event.target.value) }))),
  filters.some(f => context.query.get(f.name)) ? h("a", { class: "clear", href: "#/" + place }, "Clear") : null);
}

// local converts a time of the API to a field's value in the viewer's zone; utc converts it back.
export function local(text) {
  const date = new Date(text || "");
  if (Number.isNaN(date.getTime())) return "";
  return new Date(date.getTime() - date.getTimezoneOffset() * 60000).toISOString().slice(0, 19);
}

export function utc(text) {
  const date = new Date(text);
  return text && !Number.isNaN(date.getTime()) ? date.toISOString() : "";
}
