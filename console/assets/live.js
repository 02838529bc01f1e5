// watch keeps a page up to date while the page is visible. It loads the data when the server's event stream reports a
// change, and sometimes without one. Without a stream it loads every few seconds, and less often after failures. No
// other code decides when to load.
import { addressOf } from "./api.js";

const SLOWEST = 30000; // ms
const STREAMED = 10000; // ms between loads without a reported change, while the stream is open
const BEATEN = 3000; // ms without a beat of the stream, after which to load; a beat comes every two seconds
const QUIET = 4000; // ms of silence after which the page reports it

// All calls of watch in this tab share one stream.
const stream = { source: null, open: false, heard: 0, timer: 0, told: new Set() };

function listen(tell) {
  stream.told.add(tell);
  connect();
  return () => {
    stream.told.delete(tell);
    setTimeout(() => { if (!stream.told.size) disconnect(); }, 1000); // wait, because the next page may need the stream
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
    if (was) stream.told.forEach(tell => tell()); // load now: the timers were set for an open stream
    if (source.readyState !== EventSource.CLOSED || stream.source !== source) return; // EventSource reconnects by itself
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

// load(signal) returns the data for show(data). trouble(failure, since) is called with each failure, and with null after a success; since
// is the Date of the last response, or null. often(data) reports whether the data changes without events. quiet(ms) is called each second
// during a silence with the time since the last beat or response, and with 0 at its end.
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

  // listened detects silence. A proxy may delay the stream's beats, so responses to requests also end a silence.
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
