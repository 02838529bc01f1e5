// What a session has shown of each rule, with the evidence.
import { h } from "../dom.js";
import { hms, number, plural } from "../format.js";
import { card, table } from "../parts.js";

// rules shows those that were broken with their evidence, then those that nothing has exercised, then those that were kept.
export function rules(results) {
  const having = status => results.filter(r => r.status === status);
  const broken = having("broken").sort((a, b) => a.level < b.level ? -1 : a.level > b.level ? 1 : 0);
  return [
    broken.length ? h("div", { class: "broken-rules" }, broken.map(brokenRule)) : null,
    list("Not exercised", having("not_exercised"), { title: "What would exercise it", class: "wrap", cell: r => r.exercise || "" }),
    list("Kept", having("held"), { title: "Times", num: true, cell: r => number(r.times) }, { title: "Evidence", class: "wrap", cell: evidence }),
  ];
}

const level = r => h("span", { class: "quiet" }, r.level);

function list(title, results, ...columns) {
  if (results.length === 0) return null;
  return card(`${title} (${number(results.length)})`, table([
    { title: "Rule", class: "wrap", cell: r => h("a", { href: r.see, rel: "noreferrer noopener", target: "_blank", title: r.quote }, r.title) },
    { title: "Says", cell: level }, ...columns,
  ], results, { key: r => r.rule, caption: title }));
}

const brokenRule = r => h("section", { class: "card broken " + r.level, "data-key": r.rule },
  h("div", { class: "line" }, h("span", { class: "badge s-" + (r.level === "must" ? "broken" : "could_be_better") }, r.level === "must" ? "Broken" : "Could be better"), h("h2", {}, r.title)),
  h("p", { class: "quiet" }, h("code", {}, r.rule), `, exercised ${plural(r.times, "time")}, broken ${plural(r.failures, "time")}. `, h("q", {}, r.quote), " ",
    h("a", { href: r.see, rel: "noreferrer noopener", target: "_blank" }, "Where it is asked for")),
  r.evidence.map(pieceOf));

const evidence = r => r.evidence.length === 0 ? "" : h("details", {}, h("summary", {}, "One time that it was kept"), r.evidence.map(pieceOf));

const pieceOf = e => h("dl", { class: "evidence" },
  row(e.times > 1 ? `Found (${number(e.times)} times)` : "Found", h("span", { class: "strong" }, e.found)), row("Expected", e.expected),
  moment(e.before), e.request ? moment(e.request) : first("Request", h("span", { class: "quiet" }, "No such request came.")));

const row = (name, ...value) => [h("dt", {}, name), h("dd", {}, value)];

const first = (name, ...value) => [h("dt", { class: "first" }, name), h("dd", { class: "first" }, value)];

// at has milliseconds: evidence is about which request came first.
const at = text => h("time", { datetime: text, title: text }, `${hms(new Date(text))}.${text.slice(20, 23)}`);

const moment = m => m ? [
  first(at(m.at), h("code", {}, m.request), m.connection ? h("span", { class: "quiet" }, ` connection ${number(m.connection)}`) : null,
    m.headers.map(text => [h("br"), h("code", {}, text)])),
  row(at(m.until), h("code", {}, m.answer)), m.fault ? row("Fault", h("code", {}, m.fault)) : null] : null;
