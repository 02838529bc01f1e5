// Charts of the overview: lines over time as a stretched SVG. Labels are HTML text beside it, so they are not stretched.
import { h, s } from "./dom.js";
import { hms, moment, number } from "./format.js";

const HEIGHT = 100, WIDTH = 1000; // in units of the viewBox

// chart draws series, {name, class, values, dash}, each with one value per time. unit formats a value.
export function chart({ title, note, times, series, unit = number }) {
  const known = series.flatMap(one => one.values.filter(v => v !== null)), top = niceTop(Math.max(0, ...known));
  const x = i => times.length < 2 ? WIDTH / 2 : i * WIDTH / (times.length - 1);
  const y = v => HEIGHT - v / top * HEIGHT;
  const readout = h("p", { class: "readout", "aria-hidden": "true" }, "\u00a0");
  const cursor = h("span", { class: "cursor", hidden: true });
  return h("figure", { class: "plot" },
    h("figcaption", {}, h("h3", {}, title), note ? h("p", { class: "quiet" }, note) : null,
      h("ul", { class: "legend" }, series.map(one => h("li", { class: one.class }, h("i", { class: one.dash ? "dash" : "" }), one.name)))),
    h("div", { class: "frame" },
      h("div", { class: "y", "aria-hidden": "true" }, known.length === 0 ? null : [0, 0.5, 1].map(part => h("span", { class: `at-${part * 100}` }, unit(top * part)))),
      h("div", { class: "canvas", onpointermove: event => point(event, times, series, unit), onpointerleave: unpoint },
        s("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", role: "img", "aria-label": said(title, series, unit) },
          s("path", { class: "grid", d: [0, 0.5].map(part => `M0 ${part * HEIGHT}H${WIDTH}`).join("") }),
          series.map(one => s("path", { class: `line ${one.class}${one.dash ? " dash" : ""}`, d: lineOf(one.values, x, y) }))),
        known.length === 0 ? h("p", { class: "nothing quiet" }, "no data in this period") : null, cursor),
      h("div", { class: "x", "aria-hidden": "true" }, ticks(times))),
    readout,
    h("details", {}, h("summary", {}, "As a table"), figures(times, series, unit)));
}

// lineOf leaves gaps at unknown values. It draws a value between two gaps as a short stroke.
function lineOf(values, x, y) {
  let path = "", pen = false;
  values.forEach((v, i) => {
    if (v === null) {
      pen = false;
      return;
    }
    path += `${pen ? "L" : "M"}${x(i).toFixed(1)} ${y(v).toFixed(2)}`;
    if (!pen && (i + 1 >= values.length || values[i + 1] === null)) path += "h2";
    pen = true;
  });
  return path;
}

export function niceTop(most) {
  if (most <= 0) return 1;
  const power = 10 ** Math.floor(Math.log10(most));
  return [1, 2, 2.5, 5, 10].map(n => n * power).find(n => n >= most * 0.999);
}

function ticks(times) {
  if (times.length === 0) return null;
  const places = [0, 0.25, 0.5, 0.75, 1];
  return places.map(part => {
    const date = new Date(times[Math.round(part * (times.length - 1))]);
    return h("span", { class: `at-${part * 100}` }, hms(date).slice(0, 5));
  });
}

function said(title, series, unit) {
  return `${title}. ` + series.map(one => {
    const known = one.values.filter(v => v !== null);
    return known.length ? `${one.name}: latest ${unit(known.at(-1))}, highest ${unit(Math.max(...known))}` : `${one.name}: nothing`;
  }).join("; ");
}

function figures(times, series, unit) {
  return h("div", { class: "scroll data", tabindex: "0", role: "region", "aria-label": "Figures" }, h("table", {},
    h("thead", {}, h("tr", {}, h("th", {}, "From"), series.map(one => h("th", { class: "num" }, one.name)))),
    h("tbody", {}, times.map((t, i) => [t, i]).reverse().map(([t, i]) => h("tr", {}, h("td", {}, moment(t)),
      series.map(one => h("td", { class: "num" }, one.values[i] === null ? "–" : unit(one.values[i]))))))));
}

function point(event, times, series, unit) {
  if (times.length === 0) return;
  const canvas = event.currentTarget, box = canvas.getBoundingClientRect();
  const part = Math.max(0, Math.min(1, (event.clientX - box.left) / box.width));
  const i = Math.round(part * (times.length - 1)), cursor = canvas.querySelector(".cursor");
  cursor.hidden = false;
  cursor.style.left = `${times.length < 2 ? 50 : i * 100 / (times.length - 1)}%`;
  canvas.closest("figure").querySelector(".readout").textContent = `${moment(times[i])} · ` +
    series.map(one => `${one.name} ${one.values[i] === null ? "–" : unit(one.values[i])}`).join(" · ");
}

function unpoint(event) {
  event.currentTarget.querySelector(".cursor").hidden = true;
  event.currentTarget.closest("figure").querySelector(".readout").textContent = "\u00a0";
}

// shares draws one bar that is divided by the values of the parts.
export function shares(parts) {
  const sum = parts.reduce((n, p) => n + p.value, 0);
  let from = 0;
  return s("svg", { class: "shares", role: "img", "aria-label": parts.map(p => `${p.name} ${number(p.value)}`).join(", ") || "nothing" },
    parts.filter(p => p.value > 0).map(p => {
      const width = p.value / sum * 100, bar = s("rect", { class: p.class, x: `${from}%`, width: `${width}%`, y: 0, height: "100%" });
      bar.append(s("title", {}, `${p.name}: ${number(p.value)}`));
      from += width;
      return bar;
    }));
}
