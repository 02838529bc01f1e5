// Formats values: times in the viewer's zone, numbers with grouped digits, sizes and durations.
import { h } from "./dom.js";
import { Exact } from "./exact.js";

const numbers = new Intl.NumberFormat(undefined, { maximumFractionDigits: 1 });
const clock = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23" });
const day = new Intl.DateTimeFormat(undefined, { month: "short", day: "numeric" });
const dayAndYear = new Intl.DateTimeFormat(undefined, { year: "numeric", month: "short", day: "numeric" });

export const number = n => n === null || n === undefined ? "–" : n instanceof Exact ? n.source : numbers.format(n);

export const count = c => c ? number(c.count) + (c.more ? "+" : "") : "–";

export const hms = date => clock.format(date);

export function moment(text) {
  if (!text) return "–";
  const date = new Date(text), now = new Date(serviceNow());
  if (Number.isNaN(date.getTime())) return String(text);
  if (date.toDateString() === now.toDateString()) return clock.format(date);
  return `${(date.getFullYear() === now.getFullYear() ? day : dayAndYear).format(date)}, ${clock.format(date)}`;
}

// time returns an element with a time in the viewer's zone and the server's UTC text.
export function time(text) {
  if (!text) return h("span", { class: "none" }, "–");
  return h("time", { datetime: text, title: String(text).replace("T", " ").replace(/Z$/, " UTC") }, moment(text));
}

// The last reading of a test bed's clock, and when it was read, because this clock differs from the browser's.
let service = null;

export function followClock({ now, rate, frozen }) {
  service = { now: new Date(now).getTime(), rate: frozen ? 0 : rate, asked: Date.now() };
}

// serviceNow returns the current time of the service in milliseconds. All times from the service use its clock.
export const serviceNow = () => service ? service.now + (Date.now() - service.asked) * service.rate : Date.now();

// age returns the time since a moment, or until it.
export function age(text, now = serviceNow()) {
  if (!text) return h("span", { class: "none" }, "–");
  const ms = now - new Date(text).getTime();
  const words = Math.abs(ms) < 1000 ? "now" : ms >= 0 ? `${span(ms)} ago` : `in ${span(-ms)}`;
  return h("time", { datetime: text, title: `${moment(text)} · ${String(text).replace("T", " ").replace(/Z$/, " UTC")}` }, words);
}

// span formats a duration in milliseconds with its two largest units.
export function span(ms) {
  if (ms === null || ms === undefined || Number.isNaN(ms)) return "–";
  if (ms < 1000) return `${Math.round(ms)} ms`;
  const seconds = ms / 1000;
  if (seconds < 10) return `${seconds.toFixed(1)} s`;
  if (seconds < 60) return `${Math.round(seconds)} s`;
  if (seconds < 3600) return two(seconds, 60, "min", "s");
  if (seconds < 86400) return two(seconds / 60, 60, "h", "min");
  return two(seconds / 3600, 24, "d", "h");
}

function two(value, unit, large, small) {
  const whole = Math.floor(value / unit), rest = Math.floor(value % unit);
  return rest ? `${whole} ${large} ${rest} ${small}` : `${whole} ${large}`;
}

export function bytes(n) {
  if (n === null || n === undefined) return "–";
  for (const unit of ["B", "KiB", "MiB"]) {
    if (n < 1024) return `${numbers.format(n)} ${unit}`;
    n /= 1024;
  }
  return `${numbers.format(n)} GiB`;
}

export const plural = (n, one, many = one + "s") => `${number(n)} ${n === 1 ? one : many}`;

// short returns the part of an id that lists show: its end, because ids begin with their creation time.
export const short = id => id ? "…" + String(id).slice(-12) : "–";

// used formats how much of a limit is used.
export function used(usage) {
  if (!usage) return "–";
  return usage.limit === null || usage.limit === undefined ? number(usage.used) : `${number(usage.used)} of ${number(usage.limit)}`;
}
