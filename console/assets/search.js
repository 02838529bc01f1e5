// The search. Words such as state:FAILED become filters of the list of jobs. Any other text is searched for.
import { serviceNow } from "./format.js";

const UUID = /^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$/i;

const FILTERS = {
  state: "state", type: "type", kind: "kind", client: "client_id", batch: "batch_id",
  correlation: "correlation_id", schedule: "schedule_id", code: "failure_code", from: "from", to: "to",
};

export const isID = text => UUID.test(text);

// addressFor returns the page's address for a search text, or throws an error that describes the mistake.
export function addressFor(text, now = serviceNow()) {
  const words = text.trim().split(/\s+/).filter(Boolean);
  if (words.length === 0) return "#/jobs";
  const query = new URLSearchParams();
  for (const word of words) {
    const [, name, value] = /^([a-z]+):(.+)$/i.exec(word) || [], known = bare(word);
    if (name) add(query, name.toLowerCase(), value, now);
    else if (known) query.set(...known);
    else return "#/search?" + new URLSearchParams({ q: text.trim() });
  }
  return "#/jobs?" + query;
}

function add(query, name, value, now) {
  if (name === "since") {
    const [, n, unit] = /^(\d+)([smhd])$/.exec(value) || [];
    if (!n) throw new Error("since: takes 30s, 15m, 2h or 3d.");
    query.set("from", new Date(now - n * { s: 1e3, m: 6e4, h: 36e5, d: 864e5 }[unit]).toISOString());
    return;
  }
  if (!FILTERS[name]) throw new Error(`Unknown filter ${name}. Use state, type, kind, client, batch, schedule, correlation, code, from, to, since.`);
  if (name === "from" || name === "to") value = moment(value);
  query.set(FILTERS[name], ["state", "type", "kind", "code"].includes(name) ? value.toUpperCase() : value);
}

function moment(value) {
  const date = new Date(value);
  if (Number.isNaN(date.getTime())) throw new Error(`“${value}” is not a time such as 2030-01-31T12:00Z.`);
  return date.toISOString();
}

// bare returns the filter for a value without a filter name, such as FAILED, or null.
function bare(word) {
  const name = word.toUpperCase();
  if (/^(CREATED|QUEUED|ASSIGNED|RUNNING|SUCCEEDED|FAILED|CANCELED)$/.test(name)) return ["state", name];
  if (/^(EXECUTE|DEFERRED|EMIT_EVENT)$/.test(name)) return ["type", name];
  return name.startsWith("RFA_") ? ["failure_code", name] : null;
}

// wordsOf formats filters as words for the search field.
export const wordsOf = query => Object.entries(FILTERS).filter(([, to]) => query.get(to)).map(([name, to]) => `${name}:${query.get(to)}`).join(" ");
