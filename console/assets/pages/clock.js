// Shows the clock of a test bed on the overview, and lets operators move it.
import { get, post, server } from "../api.js";
import { confirm } from "../dialogs.js";
import { h } from "../dom.js";
import { followClock, moment, serviceNow, span } from "../format.js";
import { button, card } from "../parts.js";

const FRESH = 1500; // ms after which the clock is read again
let state = null, asked = 0;

// clock shows the clock of a test bed, if the server is one. It reads the clock itself, because the overview does not load it.
export function clock(context) {
  if (!server.testbed) return null;
  if (Date.now() - asked > FRESH) {
    asked = Date.now();
    get("testbed/clock").then(answer => { keep(answer); context.draw(); }, () => {}); // the page reports failures itself
  }
  return state && card(null, h("div", { class: "clock" }, h("h2", {}, "Clock of the test bed"),
    h("time", { class: "reading", datetime: state.now }, reading()), h("span", { class: "quiet" }, pace()),
    context.session.read_only ? null : h("div", { class: "toolbar" }, STEPS.map(([advance, words]) => button("+ " + words, () => move(context, { advance }, `by ${words}`))),
      state.next_due_at ? button(`To the next due job (in ${span(new Date(state.next_due_at) - serviceNow())})`, () => move(context, { set: state.next_due_at }, `to ${moment(state.next_due_at)}`)) : null,
      button(state.frozen ? "Let it run" : "Freeze", () => freeze(context)))));
}

const STEPS = [["1h", "1 h"], ["24h", "1 d"], ["720h", "30 d"]];

function keep(answer) {
  state = answer;
  followClock(answer);
}

const reading = () => new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "medium", hourCycle: "h23" }).format(new Date(serviceNow()));

function pace() {
  const ahead = serviceNow() - Date.now(), runs = state.frozen ? "frozen" : state.rate === 1 ? "runs" : `runs at ${state.rate} times real speed`;
  return ahead < 60000 ? runs : `${runs}, ${span(ahead)} ahead`; // clocks of browsers are not exact
}

setInterval(() => document.querySelectorAll(".clock .reading").forEach(e => { e.textContent = reading(); }), 1000);

function change(context, title, text, action, body) {
  return confirm({ title, text, action, danger: true, act: () => post("testbed/clock", body) }).then(answer => {
    if (answer) {
      keep(answer);
      context.say("The clock shows " + reading() + ".");
    }
    context.refresh();
  });
}

const move = (context, body, words) => change(context, `Move the clock ${words}?`, ["This moves the clock of the whole service, for all clients and on all processes: jobs become due and continue to run; API keys, results and idempotency keys expire.", "The clock cannot be moved back."], "Move it", body);

function freeze(context) {
  if (state.frozen) return change(context, "Let the clock run?", "The clock continues from its current time, for the whole service.", "Let it run", { freeze: false });
  return change(context, "Freeze the clock?", "The clock of the whole service stops, for all clients: until it runs again, no job becomes due and no running job ends.", "Freeze", { freeze: true });
}
