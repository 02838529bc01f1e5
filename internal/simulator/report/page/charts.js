"use strict";
const run = JSON.parse(document.getElementById("run").textContent);
const series = run.series, step = series.step_ms / 1000, took = run.duration_ms / 1000;
const steps = (series.arrivals || []).map((_, i) => i);
const middles = steps.map((i) => Math.min((i + 0.5) * step, took));
const color = (name) => getComputedStyle(document.documentElement).getPropertyValue("--" + name).trim();
// Texts from the run are shown with escaped control characters.
const printable = (text) => text.replace(/[\p{C}\p{Zl}\p{Zp}]/gu, (c) => "\\u{" + c.codePointAt(0).toString(16) + "}");
const number = (v) => v == null ? "–" : v.toLocaleString("en", {maximumFractionDigits: 1});
const milliseconds = (v) => v == null ? "–" : v < 1 ? number(v * 1000) + " µs" : v < 1000 ? number(v) + " ms" : number(v / 1000) + " s";
const clock = (v) => {
  if (v == null) return "–";
  const rest = String(Math.floor(v % 60)).padStart(2, "0"), minutes = Math.floor(v / 60);
  if (took < 10) return v.toFixed(1) + " s";
  return minutes < 60 ? `${minutes}:${rest}` : `${Math.floor(minutes / 60)}:${String(minutes % 60).padStart(2, "0")}:${rest}`;
};
const sum = (lines) => steps.map((i) => lines.reduce((total, line) => total + line[i], 0));

// The last step may be shorter than the others. Below half a step it counts as a whole one.
const perSecond = (values) => values.map((n, i) => {
  const length = took - i * step;
  return n / (length < step / 2 || length > step ? step : length);
});
const stateColor = {
  CREATED: "created", QUEUED: "queued", ASSIGNED: "assigned", RUNNING: "running", SUCCEEDED: "succeeded", FAILED: "failed",
  CANCELED: "canceled",
};
const ends = ["SUCCEEDED", "FAILED", "CANCELED"]; // shown in their own chart, since in a long run they would hide the other states
const states = [...new Set([...Object.keys(stateColor), ...Object.keys(series.states || {})])].filter((name) => series.states?.[name]);

function figure(title, note) {
  const element = document.createElement("figure"), caption = document.createElement("figcaption");
  const heading = document.createElement("h3"), remark = document.createElement("span");
  heading.textContent = title;
  remark.textContent = note;
  caption.append(heading, remark);
  element.append(caption);
  document.getElementById("charts").append(element);
  return element;
}

// All faults of a kind are one path, so that overlapping bands do not get darker.
function drawBands(u) {
  const {ctx, bbox} = u;
  ctx.save();
  ctx.globalAlpha = color("band") / Math.max(1, run.fault_kinds.length / 3);
  run.fault_kinds.forEach((kind, k) => {
    ctx.fillStyle = color("k" + k % 10);
    ctx.beginPath();
    for (const fault of run.faults.filter((f) => f.kind === kind.kind)) {
      const from = u.valToPos(fault.at_ms / 1000, "x", true), to = u.valToPos((fault.at_ms + fault.duration_ms) / 1000, "x", true);
      const left = Math.max(from, bbox.left), right = Math.min(Math.max(to, from + devicePixelRatio), bbox.left + bbox.width);
      if (right > left) ctx.rect(left, bbox.top, right - left, bbox.height);
    }
    ctx.fill();
  });
  ctx.restore();
}

function drawStages(u) {
  const {ctx, bbox} = u;
  ctx.save();
  ctx.fillStyle = ctx.strokeStyle = color("quiet");
  ctx.setLineDash([2 * devicePixelRatio, 4 * devicePixelRatio]);
  ctx.font = 11 * devicePixelRatio + "px system-ui, sans-serif";
  ctx.textAlign = "left";
  ctx.textBaseline = "top";
  const labels = []; // stages that begin close together share a label
  for (const stage of run.stages.slice(1)) {
    const x = u.valToPos(stage.at_ms / 1000, "x", true), name = printable(stage.name).slice(0, 16), before = labels.at(-1);
    if (x > bbox.left + bbox.width) continue;
    ctx.beginPath();
    ctx.moveTo(x, bbox.top);
    ctx.lineTo(x, bbox.top + bbox.height);
    ctx.stroke();
    if (before && x < before.x + ctx.measureText(before.text).width + 8) before.text += ", " + name;
    else labels.push({x, text: name});
  }
  for (const {x, text} of labels) {
    if (x + ctx.measureText(text).width + 4 < bbox.left + bbox.width) ctx.fillText(text, x + 4, bbox.top + 2);
  }
  ctx.restore();
}

// Each line is {name, color, values}. It has the member shown if the legend shows other values than the line.
function chart(title, note, lines, {log = false, stepped = false, area = false, format = number} = {}) {
  const element = figure(title, note), axis = {stroke: color("quiet"), grid: {stroke: color("grid")}, ticks: {stroke: color("grid")}};
  const u = new uPlot({
    width: element.clientWidth - 32, height: 240, padding: [8, 0, 0, 0], legend: {isolate: true},
    cursor: {sync: {key: "run"}, drag: {x: true, y: false}},
    scales: {
      x: {time: false, range: (u, from, to) => from <= middles[0] && to >= middles.at(-1) ? [0, took || 1] : [from, to]},
      y: log ? {distr: 3, range: (u, low, high) => low == null ? [1, 1000] : uPlot.rangeLog(low, high, 10, true)} :
        {range: (u, low, high) => [0, Math.max(high || 0, 1) * 1.05]},
    },
    axes: [
      {...axis, incrs: [0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 43200, 86400],
        space: 60, values: (u, splits) => splits.map(clock)},
      {...axis, size: 68, values: (u, splits) => splits.map((v) => v == null ? null : format(v))},
    ],
    series: [
      {label: "at", value: (u, v) => clock(v)},
      ...lines.map((line) => ({
        label: printable(line.name), stroke: color(line.color), width: area ? 1 : 1.75, fill: area ? color(line.color) : undefined,
        dash: line.dash ? [5, 3] : undefined, paths: stepped ? uPlot.paths.stepped({align: 0}) : undefined,
        points: {show: middles.length < 3}, value: (u, v, s, i) => format(i == null ? null : (line.shown || line.values)[i]),
      })),
    ],
    hooks: {drawClear: [drawBands], draw: [drawStages]},
  }, [middles, ...lines.map((line) => line.values)], element);
  u.ctx.canvas.setAttribute("role", "img");
  u.ctx.canvas.setAttribute("aria-label", `${title}, ${note}: ` + lines.map((line) => line.name).join(", "));
}

// The top of the stack is drawn first, so that the lower areas cover it.
function stack(title, note, names) {
  const lines = names.map((name, i) => ({
    name, color: stateColor[name] || "k" + i % 10, shown: series.states[name],
    values: sum(names.slice(0, i + 1).map((below) => series.states[below])),
  }));
  chart(title, note, lines.reverse(), {area: true});
}

function lanes() {
  const element = figure("Injected faults", "the same colours mark them in the charts below");
  run.fault_kinds.forEach((kind, k) => {
    const lane = document.createElement("div"), name = document.createElement("span");
    lane.className = "lane";
    lane.style.setProperty("--c", `var(--k${k % 10})`);
    name.textContent = printable(kind.kind).slice(0, 12);
    const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg"), path = document.createElementNS(svg.namespaceURI, "path");
    svg.setAttribute("viewBox", `0 0 ${run.duration_ms || 1} 1`);
    svg.setAttribute("preserveAspectRatio", "none");
    svg.setAttribute("role", "img");
    svg.setAttribute("aria-label", `${name.textContent}: ${number(kind.times)} times`);
    path.setAttribute("d", run.faults.filter((f) => f.kind === kind.kind).map((f) => `M${f.at_ms} 0h${f.duration_ms}v1h${-f.duration_ms}z`).join(""));
    svg.append(path);
    lane.append(name, svg);
    element.append(lane);
  });
}

function draw() {
  document.getElementById("charts").replaceChildren();
  if (run.fault_kinds.length) lanes();
  if (!steps.length) return;
  const answers = Object.entries(series.answers).filter(([name]) => name !== "accepted" && name !== "replayed" && run.totals.answers[name]);
  chart("Arrivals and completions", "per second", [
    {name: "arrivals", color: "running", values: perSecond(series.arrivals)},
    {name: "completions", color: "succeeded", values: perSecond(sum(Object.values(series.finished)))},
    ...answers.map(([name, values], i) => ({
      name, color: {refused: "queued", failed: "failed", unanswered: "created"}[name] || "k" + i % 10, values: perSecond(values), dash: true,
    })),
  ]);
  for (const [what, until] of [["submit", "the response"], ["finish", "the final state"]]) {
    chart(what[0].toUpperCase() + what.slice(1) + " latency", `from the planned submission to ${until}`, [
      {name: "p99", color: "high", values: series[what + "_p99_ms"]}, {name: "p50", color: "running", values: series[what + "_p50_ms"]},
    ], {log: true, format: milliseconds});
  }
  stack("Jobs under way", "by state, as the client last saw them", states.filter((name) => !ends.includes(name)));
  stack("Jobs ended", "by state, since the start", states.filter((name) => ends.includes(name)));
  chart("Worker processes", "that the simulator runs", [{name: "workers", color: "high", values: series.workers}], {stepped: true});
  if (run.totals.deliveries.taken + run.totals.deliveries.not_taken) {
    chart("Webhook deliveries", "that came to the receiver, per second", [
      {name: "taken", color: "succeeded", values: perSecond(series.deliveries_taken)},
      {name: "not taken", color: "failed", values: perSecond(series.deliveries_not_taken)},
    ]);
  }
}

let width = 0;
new ResizeObserver(() => {
  if (width !== (width = document.getElementById("charts").clientWidth)) draw();
}).observe(document.getElementById("charts"));
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
