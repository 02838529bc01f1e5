// watch keeps a page up to date: it asks every few seconds while the page is seen, less often while the server does not
// answer. It is the only place that decides when to ask; a stream of events would take the place of the timer here.

const SLOWEST = 30000; // ms

// load(signal) gives what show(data) shows; trouble(failure, since) is told of what went wrong, and of null once it goes
// again. since is when the last answer came: a Date, or null.
export function watch({ load, show, trouble, every = 2000 }) {
  let timer = 0, failures = 0, held = false, stopped = false, answered = null, asking = null;

  async function ask() {
    clearTimeout(timer);
    if (stopped || asking) return;
    const controller = new AbortController();
    asking = controller;
    try {
      const data = await load(controller.signal);
      if (controller.signal.aborted) return;
      failures = 0;
      answered = new Date();
      trouble(null, answered);
      show(data);
    } catch (failure) {
      if (controller.signal.aborted) return;
      failures++;
      trouble(failure, answered);
    } finally {
      if (asking === controller) asking = null;
      plan();
    }
  }

  function plan() {
    clearTimeout(timer);
    if (stopped || held || document.hidden || !every) return;
    timer = setTimeout(ask, failures ? Math.min(SLOWEST, every * 2 ** Math.min(failures, 5)) : every);
  }

  function seen() {
    if (document.hidden) clearTimeout(timer);
    else if (!held) ask();
  }
  document.addEventListener("visibilitychange", seen);
  ask();

  return {
    now() { // what is under way may have been answered before what changed
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
      clearTimeout(timer);
      asking?.abort();
      document.removeEventListener("visibilitychange", seen);
    },
  };
}
