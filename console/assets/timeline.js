// Draws the states of a job on a time axis, one row per attempt. Deliveries have their own axis.
import { h, s } from "./dom.js";
import { moment, number, plural, serviceNow, span } from "./format.js";

const ROW = 30, BAR = 14;
const at = text => new Date(text).getTime();

// spansOf returns the time that the job spent in each state: {attempt, state, from, to, open}.
export function spansOf(job, now) {
  const moves = job.events.filter(e => e.next_state);
  const spans = [];
  moves.forEach((event, i) => {
    const from = at(event.timestamp), next = moves[i + 1];
    if (isFinal(event.next_state)) return;
    const open = !next;
    if (open && isFinal(job.state)) return; // the log is incomplete
    const to = open ? Math.max(now, from) : at(next.timestamp);
    const until = waitsUntil(event, next, job), attempt = event.attempt;
    if (event.next_state === "QUEUED" && until > from) {
      const end = Math.min(until, to);
      spans.push({ attempt, state: "BACKOFF", from, to: end, open: open && end === to });
      if (end < to) spans.push({ attempt, state: "QUEUED", from: end, to, open });
    } else {
      spans.push({ attempt, state: event.next_state, from, to, open });
    }
  });
  return spans;
}

const isFinal = state => state === "SUCCEEDED" || state === "FAILED" || state === "CANCELED";

// waitsUntil returns the end of a backoff; 0 if there is none or it is unknown.
function waitsUntil(event, next, job) {
  const told = event.data?.run_at || event.data?.retry_at || event.data?.not_before;
  if (told) return at(told);
  return event.event_name === "job.retried" && !next && job.run_at ? at(job.run_at) : 0;
}

// timeline draws the timeline of a job: to scale or, if even, with equal distances between the moments.
export function timeline(job, { even, now = serviceNow(), receiver }) {
  const spans = spansOf(job, now), marks = job.events.filter(e => !e.next_state || isFinal(e.next_state));
  const moments = ordered([...spans.flatMap(p => [p.from, p.to]), ...marks.map(e => at(e.timestamp))]);
  if (moments.length === 0) return h("p", { class: "quiet" }, "Nothing has happened yet.");
  const place = placer(moments, even);
  const attempts = [...new Set([...spans, ...marks].map(e => e.attempt).filter(Boolean))].sort((a, b) => a - b);
  return h("div", { class: "timeline" }, tracks(attempts.map(n => attemptRow(n, spans, marks, place)), moments, even),
    h("ul", { class: "legend" }, ["CREATED", "QUEUED", "BACKOFF", "ASSIGNED", "RUNNING"].filter(state => spans.some(p => p.state === state))
      .map(state => h("li", { class: "f-" + state.toLowerCase() }, h("i", { class: "area" }), NAMES[state]))),
    deliveryGroup(job, now, receiver));
}

const ordered = moments => moments.sort((a, b) => a - b).filter((t, i, all) => i === 0 || t !== all[i - 1]);

// tracks draws rows of [name, drawing, text] above their axis.
const tracks = (rows, moments, even) => [
  h("div", { class: "tracks" }, rows.map(([name, draw, what]) => [
    h("span", { class: "track-name", title: what }, name),
    s("svg", { height: ROW, width: "100%", role: "img", "aria-label": what }, gridLines(), draw)])),
  h("div", { class: "tracks axis", "aria-hidden": "true" }, h("span", {}), h("div", { class: "x" }, axis(moments, even)))];

const NAMES = { CREATED: "waiting for its time", QUEUED: "queued", BACKOFF: "backoff", ASSIGNED: "assigned", RUNNING: "running" };

function placer(moments, even) {
  const first = moments[0], last = moments.at(-1);
  if (even) {
    const index = new Map(moments.map((t, i) => [t, i]));
    return t => moments.length < 2 ? 0 : (index.get(t) ?? 0) * 98 / (moments.length - 1) + 1;
  }
  return t => last === first ? 1 : (t - first) * 98 / (last - first) + 1;
}

const gridLines = () => [1, 25.5, 50, 74.5, 99].map(x => s("line", { class: "grid", x1: `${x}%`, x2: `${x}%`, y1: 0, y2: ROW }));

function attemptRow(n, spans, marks, place) {
  const mine = spans.filter(p => p.attempt === n), own = marks.filter(e => e.attempt === n);
  const end = own.find(e => e.next_state);
  const what = `Attempt ${n}: ` + mine.map(p => `${NAMES[p.state]} for ${span(p.to - p.from)}${p.open ? " so far" : ""}`)
    .concat(end ? [end.next_state] : []).join(", ");
  return [`Attempt ${n}`, [
    mine.map(p => titled(s("rect", { class: `bar f-${p.state.toLowerCase()}${p.open ? " open-end" : ""}`, x: `${place(p.from)}%`, rx: 2,
      y: (ROW - BAR) / 2, height: BAR, width: `${Math.max(0.3, place(p.to) - place(p.from))}%` }),
    `${NAMES[p.state]}: ${span(p.to - p.from)}${p.open ? " so far" : ""}, from ${moment(new Date(p.from).toISOString())}`)),
    own.map(e => titled(s("circle", { class: "mark " + (e.next_state ? "f-" + e.next_state.toLowerCase() : "f-event"),
      cx: `${place(at(e.timestamp))}%`, cy: ROW / 2, r: e.next_state ? 6 : 4 }), `${e.event_name}, ${moment(e.timestamp)}`)),
  ], what];
}

// deliveryGroup draws the deliveries, one row per receiver, collapsed at first. It has its own axis, because deliveries may take days.
function deliveryGroup(job, now, receiver) {
  const all = job.deliveries;
  if (all.length === 0) return null;
  const end = d => d.settled_at ? at(d.settled_at) : now;
  const moments = ordered(all.flatMap(d => [at(d.created_at), end(d)])), place = placer(moments, false);
  const receivers = [...Map.groupBy(all, receiver)].sort(([a], [b]) => a < b ? -1 : 1);
  return h("details", { class: "sent", "data-key": "sent" },
    h("summary", {}, `Deliveries: ${number(all.length)}${job.more_deliveries ? "+" : ""} to ${plural(receivers.length, "receiver")}`,
      h("span", { class: all.some(d => ["failed", "failing"].includes(fate(d))) ? "tone-bad" : "quiet" }, ` · ${said(all)}`)),
    tracks(receivers.map(([name, deliveries]) => [name, deliveries.toReversed().map(d => deliveryBar(d, end(d), place)), `${name}: ${said(deliveries)}`]), moments, false),
    h("p", { class: "quiet" }, "These bars have a time axis of their own. Each bar begins at the event and ends at the receiver's response or the last attempt."));
}

// fate returns the state of a delivery; "failing" means that it failed and will be retried.
const fate = d => d.state === "PENDING" && d.last_error ? "failing" : d.state.toLowerCase();

const said = deliveries => ["failed", "failing", "pending", "delivered"].map(word => [deliveries.filter(d => fate(d) === word).length, word])
  .filter(([n]) => n).map(([n, word]) => `${number(n)} ${word}`).join(", ");

function deliveryBar(d, end, place) {
  const from = at(d.created_at), what = `${d.event_name}: ${fate(d)}, ${span(end - from)}, ${plural(d.attempts, "attempt")}`;
  return titled(s("rect", { class: `bar f-delivery d-${fate(d)}`, x: `${place(from)}%`, y: ROW / 2 - 4, height: 8, rx: 2,
    width: `${Math.max(0.4, place(end) - place(from))}%` }), what);
}

function titled(shape, text) {
  shape.append(s("title", {}, text));
  return shape;
}

// axis returns the labels of the axis: times since the first moment.
function axis(moments, even) {
  const first = moments[0], all = moments.at(-1) - first;
  return [0, 0.25, 0.5, 0.75, 1].map(part => {
    const t = even ? moments[Math.round(part * (moments.length - 1))] - first : all * part;
    return h("span", { class: `at-${part * 100}` }, part === 0 ? moment(new Date(first).toISOString()) : "+" + span(t));
  });
}
