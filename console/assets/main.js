// The console: draws the frame around the pages, and decides which page is shown.
import { begin, logout, server, session } from "./api.js";
import { h, morph } from "./dom.js";
import { help } from "./dialogs.js";
import { hms } from "./format.js";
import { listen } from "./keys.js";
import { watch } from "./live.js";
import { loginPage } from "./login.js";
import { empty, failed, heading, learnNames, link, missing } from "./parts.js";
import { find, NAV, NEEDS, parse } from "./routes.js";
import { addressFor, wordsOf } from "./search.js";
import { recall, remember } from "./store.js";

const app = document.getElementById("app");
let shown = null; // {page, live, data, route, failure, held, quiet}
let menuOpen = false;

function theme(name) {
  if (name) document.documentElement.dataset.theme = name;
  else delete document.documentElement.dataset.theme;
}

function nextTheme() {
  const dark = document.documentElement.dataset.theme
    ? document.documentElement.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  theme(dark ? "light" : "dark");
  remember("theme", dark ? "light" : "dark");
}

export function say(text) {
  const status = document.getElementById("status");
  if (status && status.textContent !== text) status.textContent = text;
}

function search(event) {
  event.preventDefault();
  const input = event.target.elements.q;
  try {
    go(addressFor(input.value));
    input.blur();
  } catch (error) {
    input.setCustomValidity(error.message);
    input.reportValidity();
  }
}

function go(address) {
  if (location.hash === address) show();
  else location.hash = address;
}

function hold(on = !shown?.held) {
  if (!shown) return;
  shown.held = on;
  shown.live.hold(on);
  say(on ? "Updates are paused." : "Updates resumed.");
  draw();
}

function header() {
  const at = shown?.route;
  return h("header", { class: "top" },
    h("a", { class: "brand", href: "#/overview" }, h("img", { src: "console/icon.svg", alt: "", width: 24, height: 24 }), "ForgeRun"),
    h("button", { type: "button", class: "menu", "aria-expanded": String(menuOpen), "aria-controls": "nav", onclick() { menuOpen = !menuOpen; draw(); } }, "Menu"),
    h("form", { class: "search", role: "search", onsubmit: search }, h("input", {
      type: "search", name: "q", id: "search", placeholder: "Any id, a name, or state:FAILED kind:…", "aria-label": "Search", autocomplete: "off", spellcheck: "false",
      value: at?.name === "jobs" ? at.id || wordsOf(at.query) : at?.name === "search" ? at.query.get("q") || "" : "", oninput: event => event.target.setCustomValidity(""),
    }), h("kbd", { "aria-hidden": "true" }, "/")),
    h("div", { class: "tools" },
      h("button", { type: "button", class: "live " + liveness().state, "aria-pressed": String(!!shown?.held),
        title: "Pause or resume updates (p)", onclick: () => hold() }, h("i"), liveness().text),
      h("button", { type: "button", title: "Dark or light", "aria-label": "Dark or light", onclick: nextTheme }, "◐"),
      h("button", { type: "button", title: "Keyboard shortcuts and search (?)", "aria-label": "Help", onclick: help }, "?"),
      who()));
}

// liveness returns whether the page is up to date.
function liveness() {
  if (shown?.held) return { state: "held", text: "Held" };
  if (shown?.quiet) return { state: "lost", text: `No updates for ${Math.round(shown.quiet / 1000)} s` };
  const status = shown?.failure?.status;
  if (status >= 400 && status < 500) return { state: "", text: "Live" }; // the server responds; only the request is wrong
  return shown?.failure ? { state: "lost", text: status ? `Status ${status}` : "No response" } : { state: "", text: "Live" };
}

function who() {
  const now = session.now;
  if (!now) return null;
  return h("span", { class: "who" }, h("span", { class: "name", title: "Your name in the audit log" }, now.operator, now.read_only ? " (reads only)" : ""),
    now.expires_at ? h("button", { type: "button", onclick: leave }, "Log out") : null);
}

async function leave() {
  shown?.live.stop();
  await logout().catch(() => {});
  shown = null;
  ask();
}

// offered reports whether this server has a page.
const offered = ([name]) => !(name in NEEDS) || server[NEEDS[name]];

const nav = () => h("nav", { id: "nav", class: menuOpen ? "open" : "", "aria-label": "Pages" }, NAV.filter(([, pages]) => pages.some(offered)).map(([group, pages]) => h("div", { class: "group" },
  group ? h("p", {}, group) : null, h("ul", {}, pages.filter(offered).map(([name, title]) => h("li", {},
    h("a", { href: "#/" + name, "aria-current": shown?.route.name === name ? "page" : false, onclick() { menuOpen = false; } }, title)))))));

// banner returns the warning that the page is out of date, or null.
function banner() {
  if (!shown?.failure || shown.data === undefined) return null;
  const since = shown.answered ? ` since ${hms(shown.answered)}` : "";
  const text = shown.failure.status === 0 ? `No response${since}. The page shows the last known data.` : `${shown.failure.message} The page shows the last known data${since}.`;
  return h("div", { class: "banner", role: "alert" }, text, h("button", { type: "button", onclick: () => shown.live.now() }, "Try now"));
}

function content() {
  if (!shown) return null;
  if (shown.data !== undefined) return shown.page.view(shown.data);
  if (shown.failure) {
    return shown.failure.missing ? [h("h1", {}, shown.page.title), missing(shown.page.title)] : [h("h1", {}, shown.page.title), failed(shown.failure)];
  }
  return h("p", { class: "quiet loading" }, "Asking…");
}

function draw() {
  const stale = shown?.failure && shown.data !== undefined;
  const tree = h("div", { id: "app", class: menuOpen ? "with-menu" : "" }, header(), nav(),
    h("main", { id: "main", tabindex: "-1", class: stale || shown?.asking ? "stale" : "", "aria-busy": shown?.asking ? "true" : false }, banner(),
      h("div", { class: "page", "data-key": shown?.key, "data-ready": shown?.data !== undefined || !!shown?.failure }, content())),
    h("p", { id: "status", class: "unseen", role: "status", "aria-live": "polite" }, document.getElementById("status")?.textContent || ""));
  morph(app, tree);
}

const nowhere = () => ({
  title: "No such page", every: 0, load: async () => null,
  view: () => [heading("No such page"), empty("There is no page at this address.", link("overview", "Overview"))],
});

function show() {
  const route = parse(location.hash), make = find(route) || nowhere;
  shown?.live.stop();
  shown?.page.leave?.();
  if (!session.now) return;
  const key = `${route.name}/${route.id}`, same = shown?.key === key; // if only filters change, keep the shown data until the response
  const it = shown = { route, key, held: false, quiet: 0, failure: null, data: same ? shown.data : undefined, asking: same, answered: null };
  const current = () => shown === it;
  const context = {
    query: route.query, session: session.now, say,
    go(address) { if (current()) go(address); }, // ignore answers that arrive after navigation
    draw: () => { if (current()) draw(); },
    refresh: () => current() && it.live.now(),
    // replace changes the address without a step in the history.
    replace(address) { history.replaceState(null, "", address); show(); },
  };
  it.page = make(context, route.id);
  document.title = `${it.page.title} · ForgeRun`;
  it.live = watch({
    load: signal => Promise.all([it.page.load(signal), learnNames()]).then(([data]) => data), every: it.page.every ?? 2000, often: data => it.page.often?.(data),
    show(data) { if (current()) { Object.assign(it, { data, asking: false }); draw(); } },
    quiet(ms) {
      if (!current()) return;
      if (!it.quiet && ms) say("The server sends no data.");
      it.quiet = ms;
      draw();
    },
    trouble(failure, answered) {
      if (!current()) return;
      if (failure && failure.status !== 401) {
        if (failure.status === undefined) console.error(failure);
        say(failure.status === 0 ? "The server does not respond." : failure.message);
      }
      [it.failure, it.answered] = [failure, answered];
      if (failure && it.asking) Object.assign(it, { data: undefined, asking: false });
      if (failure) draw();
    },
  });
  draw();
}

const closeDialogs = () => document.querySelectorAll("dialog").forEach(d => d.close());

function navigate() {
  menuOpen = false;
  closeDialogs();
  show();
  scrollTo(0, 0);
  document.getElementById("main")?.focus({ preventScroll: true });
}

// ask shows the login, and then the requested page.
function ask(why) {
  shown?.live.stop();
  shown = null;
  closeDialogs();
  document.title = "Log in · ForgeRun";
  app.replaceChildren(loginPage(why, () => { app.replaceChildren(); show(); }));
  app.querySelector("input")?.focus();
}

async function start() {
  theme(recall("theme", ""));
  session.onEnd = failure => { session.now = null; ask(failure.message); };
  addEventListener("hashchange", () => { if (session.now) navigate(); });
  listen({ go, refresh: () => shown?.live.now(), hold: () => hold(), search: () => { const i = document.getElementById("search"); i?.focus(); i?.select(); } });
  for (;;) {
    try {
      await begin();
      break;
    } catch (failure) {
      app.replaceChildren(h("div", { class: "fatal" }, failed(failure), h("p", {}, "The console retries every few seconds.")));
      await new Promise(resolve => { setTimeout(resolve, 3000); });
    }
  }
  app.replaceChildren();
  if (session.now) show();
  else ask();
}

start();
