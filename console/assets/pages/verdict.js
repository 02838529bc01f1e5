// A session's result for each rule, with the evidence.
import { h } from "../dom.js";
import { hms, number, plural } from "../format.js";
import { card, table } from "../parts.js";

// rules shows the broken rules with their evidence, then the rules that no request tested, then the rules that the client kept.
export function rules(results) {
  const having = status => results.filter(r => r.status === status);
  const broken = [...having("fail"), ...having("warn")];
  return [
    broken.length ? h("div", { class: "broken-rules" }, broken.map(brokenRule)) : null,
    list("Not tested", having("not_tested"), { title: "Why", class: "wrap", cell: r => r.reason || "" }, { title: "How to test it", class: "wrap", cell: r => r.exercise || "" }),
    list("ok", having("ok"), { title: "Times", num: true, cell: r => number(r.times) }, { title: "Evidence", class: "wrap", cell: evidence }),
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

const brokenRule = r => h("section", { class: "card broken " + r.status, "data-key": r.rule },
  h("div", { class: "line" }, h("span", { class: "badge s-" + r.status }, r.status.toUpperCase()), h("h2", {}, r.title)),
  h("p", { class: "quiet" }, h("code", {}, r.rule), `, broken ${number(r.failures)} of ${plural(r.times, "time")}. `, h("q", {}, r.quote), " ",
    h("a", { href: r.see, rel: "noreferrer noopener", target: "_blank" }, "Source")),
  r.evidence.map(pieceOf), h("p", {}, h("b", {}, "Fix: "), r.fix.text),
  h("dl", { class: "evidence" }, [["Python", r.fix.python], ["TypeScript", r.fix.typescript], ["Go", r.fix.go]].map(([name, line]) => row(name, h("code", {}, line)))));

const evidence = r => r.evidence.length === 0 ? "" : h("details", {}, h("summary", {}, "An example of a request that kept the rule"), r.evidence.map(pieceOf));

const pieceOf = e => h("dl", { class: "evidence" },
  row(e.times > 1 ? `Found (${number(e.times)} times)` : "Found", h("span", { class: "strong" }, e.found)), row("Expected", e.expected),
  moment(e.before), e.request ? moment(e.request) : first("Request", h("span", { class: "quiet" }, "No such request arrived.")));

const row = (name, ...value) => [h("dt", {}, name), h("dd", {}, value)];

const first = (name, ...value) => [h("dt", { class: "first" }, name), h("dd", { class: "first" }, value)];

// at shows a time with milliseconds, because the order of requests matters in the evidence.
const at = text => h("time", { datetime: text, title: text }, `${hms(new Date(text))}.${text.slice(20, 23)}`);

const moment = m => m ? [
  first(at(m.at), h("code", {}, m.request), m.connection ? h("span", { class: "quiet" }, ` connection ${number(m.connection)}`) : null,
    m.headers.map(text => [h("br"), h("code", {}, text)])),
  row(at(m.until), h("code", {}, m.answer)), m.fault ? row("Fault", h("code", {}, m.fault)) : null] : null;
