// JSON with exact numbers. JavaScript's numbers have 53 bits for an integer. A number that does not fit becomes an Exact, which keeps its
// text.

export class Exact {
  constructor(source) { this.source = source; }
  toString() { return this.source; }
  toJSON() { return Number(this.source); } // loses digits, but JSON.stringify cannot do better; use write
}

// wide matches a text that may contain a number that JavaScript would change.
const wide = /\d[\d.]{15,}|\d[eE][+-]?\d/;

export function read(text) {
  return wide.test(text) ? new Reader(text).whole() : JSON.parse(text);
}

class Reader {
  constructor(text) {
    this.text = text;
    this.at = 0;
  }

  whole() {
    const value = this.value(0);
    this.space();
    if (this.at < this.text.length) this.fail();
    return value;
  }

  fail() { throw new SyntaxError(`invalid JSON at character ${this.at + 1}`); }

  take(pattern) {
    pattern.lastIndex = this.at;
    const found = pattern.exec(this.text);
    if (found) this.at = pattern.lastIndex;
    return found && found[0];
  }

  space() { this.take(/[ \t\r\n]*/y); }

  is(character) {
    this.space();
    if (this.text[this.at] !== character) return false;
    this.at++;
    return true;
  }

  value(depth) {
    if (depth > 500) this.fail();
    this.space();
    switch (this.text[this.at]) {
    case "{": return this.object(depth);
    case "[": return this.array(depth);
    case "\"": return this.string();
    }
    const word = this.take(/true|false|null/y);
    if (word) return JSON.parse(word);
    return this.number();
  }

  string() {
    const source = this.take(/"(?:[^"\\\u0000-\u001f]|\\.)*"/y);
    return source ? JSON.parse(source) : this.fail();
  }

  number() {
    const source = this.take(/-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?/y);
    if (!source) this.fail();
    const number = Number(source);
    return String(number) === source ? number : new Exact(source);
  }

  array(depth) {
    const list = [];
    this.at++;
    if (this.is("]")) return list;
    do list.push(this.value(depth + 1)); while (this.is(","));
    return this.is("]") ? list : this.fail();
  }

  object(depth) {
    const object = {};
    this.at++;
    if (this.is("}")) return object;
    do {
      this.space();
      const name = this.string();
      if (!this.is(":")) this.fail();
      Object.defineProperty(object, name, { value: this.value(depth + 1), enumerable: true, writable: true, configurable: true });
    } while (this.is(","));
    return this.is("}") ? object : this.fail();
  }
}

// write returns the JSON text of a value, with each Exact as it was written. step is the indentation.
export function write(value, step = "", indent = "") {
  if (value instanceof Exact) return value.source;
  if (value === null || typeof value !== "object") return JSON.stringify(value === undefined ? null : value);
  const deeper = indent + step, between = step ? ",\n" + deeper : ",";
  const around = (open, close, items) => items.length === 0 ? open + close
    : step ? `${open}\n${deeper}${items.join(between)}\n${indent}${close}` : open + items.join(between) + close;
  if (Array.isArray(value)) return around("[", "]", value.map(v => write(v, step, deeper)));
  return around("{", "}", Object.entries(value).filter(([, v]) => v !== undefined)
    .map(([k, v]) => JSON.stringify(k) + (step ? ": " : ":") + write(v, step, deeper)));
}
