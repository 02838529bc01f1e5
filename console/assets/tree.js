// Shows JSON as a tree whose branches can be collapsed. Numbers keep the digits that the server wrote.
import { h } from "./dom.js";
import { Exact, write } from "./exact.js";
import { copyButton } from "./parts.js";

const OPEN_DEPTH = 2, OPEN_ITEMS = 30, MOST_ITEMS = 500;

export function tree(value) {
  return h("div", { class: "tree" }, h("div", { class: "tree-tools" }, copyButton(() => write(value, "  "), "Copy JSON")), node(value, null, 0));
}

function node(value, name, depth) {
  if (value === null || typeof value !== "object" || value instanceof Exact) return h("div", { class: "leaf" }, label(name), leaf(value));
  const list = Array.isArray(value), entries = list ? value.map((v, i) => [i, v]) : Object.entries(value);
  const size = list ? `[${entries.length}]` : `{${entries.length}}`;
  if (entries.length === 0) return h("div", { class: "leaf" }, label(name), h("span", { class: "j-null" }, list ? "[]" : "{}"));
  return h("details", { open: depth < OPEN_DEPTH && entries.length <= OPEN_ITEMS },
    h("summary", {}, label(name), h("span", { class: "quiet" }, size)),
    h("div", { class: "inner" }, entries.slice(0, MOST_ITEMS).map(([k, v]) => node(v, k, depth + 1)),
      entries.length > MOST_ITEMS ? h("p", { class: "quiet" }, `and ${entries.length - MOST_ITEMS} more: copy the JSON to see them`) : null));
}

const label = name => name === null ? null : [h("span", { class: "j-key" }, String(name)), ": "];

function leaf(value) {
  if (value instanceof Exact) return h("span", { class: "j-number" }, value.source);
  switch (typeof value) {
  case "string": return h("span", { class: "j-string" }, JSON.stringify(value));
  case "number": return h("span", { class: "j-number" }, String(value));
  case "boolean": return h("span", { class: "j-bool" }, String(value));
  }
  return h("span", { class: "j-null" }, "null");
}
