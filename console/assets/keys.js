// The keyboard: one handler for all pages. While the user types, only Escape has an effect.
import { help } from "./dialogs.js";

const PLACES = { o: "overview", j: "jobs", n: "new", f: "failures", w: "workers", q: "queues", d: "deliveries", b: "batches", c: "clients", s: "system" };

let awaits = 0; // time until which a second key completes the shortcut g

// listen calls the actions of the shell: search(), refresh(), hold(), go(address).
export function listen(actions) {
  document.addEventListener("keydown", event => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return;
    const target = event.target, typing = target.matches?.("input:not([type=checkbox]),textarea,select,[contenteditable]");
    if (event.key === "Escape" && typing && !document.querySelector("dialog[open]")) return target.blur();
    if (typing || document.querySelector("dialog[open]")) return;
    if (Date.now() < awaits && PLACES[event.key]) {
      awaits = 0;
      return actions.go("#/" + PLACES[event.key]);
    }
    const act = { "/": actions.search, "?": help, j: () => step(1), k: () => step(-1), r: actions.refresh, p: actions.hold, x: select,
      g: () => { awaits = Date.now() + 1500; } }[event.key];
    if (!act) return;
    event.preventDefault();
    act();
  });
}

const rows = () => [...document.querySelectorAll("main a.open")];

function step(by) {
  const all = rows();
  if (all.length === 0) return;
  const at = all.findIndex(a => a.closest("tr,li") === document.activeElement?.closest("tr,li"));
  const next = all[at < 0 ? (by > 0 ? 0 : all.length - 1) : Math.max(0, Math.min(all.length - 1, at + by))];
  next.focus();
  next.closest("tr,li")?.scrollIntoView({ block: "nearest" });
}

function select() {
  document.activeElement?.closest("tr")?.querySelector("input[type=checkbox]")?.click();
}
