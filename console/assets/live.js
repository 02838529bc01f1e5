// watch keeps a page up to date while it is seen: it asks when the server's stream of events says that something has
// happened, and every now and then; every few seconds while there is no stream; less often while the server does not
// answer. It is the only place that decides when to ask.
import { addressOf } from "./api.js";

const SLOWEST = 30000; // ms
const STREAMED = 10000; // between questions that no event asked for
const BEATEN = 3000; // without a beat of the stream, which comes every two seconds, it is asked
const QUIET = 4000; // silence that is reported

// One stream is shared by all that is watched in this tab.
const stream = { source: null, open: false, heard: 0, timer: 0, told: new Set() };

function listen(tell) {
  stream.told.add(tell);
  connect();
  return () => {
    stream.told.delete(tell);
    setTimeout(() => { if (!stream.told.size) disconnect(); }, 1000); // the next page wants it, too
  };
}

function connect() {
  if (stream.source || document.hidden || !stream.told.size || !("EventSource" in window)) return;
  clearTimeout(stream.timer);
  const source = new EventSource(addressOf("live"));
  stream.source = source;
  const heard = () => { stream.heard = Date.now(); };
  source.onopen = () => { heard(); stream.open = true; };
  source.addEventListener("beat", heard);
  source.addEventListener("changed", () => { heard(); stream.told.forEach(tell => tell()); });
  source.onerror = () => {
    const was = stream.open;
    stream.open = false;
    if (was) stream.told.forEach(tell => tell()); // whose timers count on the stream
    if (source.readyState !== EventSource.CLOSED || stream.source !== source) return; // it tries again by itself
    stream.source = null;
    stream.timer = setTimeout(connect, SLOWEST);
  };
}

function disconnect() {
  clearTimeout(stream.timer);
  stream.source?.close();
  stream.source = null;
  stream.open = false;
}

// load(signal) returns the data for show(data). trouble(failure, since) is called with a failure, and with null once it is over; since is
// the Date of the last answer, or null. often(data) reports whether the data changes without events. quiet(ms) is called each second with
// the time since the last beat or answer, and with 0 once one arrives.
export function watch({ load, show, trouble, quiet, every = 2000, often = () => false }) {
  let timer = 0, failures = 0, held = false, stopped = false, answered = null, asking = null, asked = 0, again = false, pause = every, lately = 0;

  async function ask() {
    clearTimeout(timer);
    if (stopped) return;
    if (asking) {
      again = true;
      return;
    }
    const controller = new AbortController();
    asking = controller;
    asked = Date.now();
    again = false;
    try {
      const data = await load(controller.signal);
      if (controller.signal.aborted) return;
      failures = 0;
      answered = new Date();
      pause = often(data) ? every : Math.max(every, STREAMED);
      trouble(null, answered);
      show(data);
    } catch (failure) {
      if (controller.signal.aborted) return;
      failures++;
      trouble(failure, answered);
    } finally {
      if (asking === controller) {
        asking = null;
        plan();
      }
    }
  }

  function plan() {
    clearTimeout(timer);
    if (stopped || held || document.hidden || !every) return;
    const usual = stream.open ? pause : every;
    timer = setTimeout(ask, failures ? Math.min(SLOWEST, every * 2 ** Math.min(failures, 5)) : again ? 0 : usual);
  }

  // listened notices silence. A stream held back by a proxy counts as none, so answers count as well.
  function listened() {
    if (held || document.hidden || !every) return;
    const now = Date.now(), beat = stream.open ? now - Math.max(stream.heard, answered?.getTime() ?? 0) : 0;
    if (beat > BEATEN && !asking && !failures) ask();
    const ms = Math.max(beat, asking ? now - asked : 0), is = ms > QUIET ? ms : 0;
    if (is || lately) quiet(is);
    lately = is;
  }
  const clock = setInterval(listened, 1000);

  function told() {
    if (every && !held && !document.hidden) ask();
  }

  function seen() {
    if (document.hidden) {
      clearTimeout(timer);
      disconnect();
      return;
    }
    stream.heard = Date.now(); // a hidden page ignores the time without beats
    connect();
    if (!held) ask();
  }
  document.addEventListener("visibilitychange", seen);
  const leave = every ? listen(told) : () => {};
  ask();

  return {
    now() { // a pending request may have been answered before the change
      asking?.abort();
      asking = null;
      return ask();
    },
    hold(on) {
      held = on;
      if (on) {
        clearTimeout(timer);
        asking?.abort();
        asking = null;
      } else ask();
    },
    stop() {
      stopped = true;
      leave();
      clearInterval(clock);
      clearTimeout(timer);
      asking?.abort();
      document.removeEventListener("visibilitychange", seen);
    },
  };
}
