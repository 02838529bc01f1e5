// Sessions of a test bed, which record the traffic of clients, and their verdicts.
import { addressOf, get, optional, post } from "../api.js";
import { shares } from "../charts.js";
import { confirm, field } from "../dialogs.js";
import { h } from "../dom.js";
import { age, number, plural, span, time } from "../format.js";
import { badge, button, card, clientLink, empty, facts, heading, idLink, link, missing, table } from "../parts.js";
import { clientField, filterBar, listing, read } from "./lists.js";
import { rules } from "./verdict.js";

const CONCLUSIONS = {
  passed: ["PASSED", "No rule was broken."], passed_with_warnings: ["PASSED WITH WARNINGS", "Only “should” rules were broken."],
  failed: ["FAILED", "A “must” rule was broken."], nothing_judged: ["NOTHING JUDGED", "The session did not test the client."],
};
const STATUSES = [["fail", "FAIL"], ["warn", "WARN"], ["not_tested", "not tested"], ["ok", "ok"]];

const conclusion = verdict => h("span", { class: "badge s-" + verdict, title: CONCLUSIONS[verdict]?.[1] || false }, CONCLUSIONS[verdict]?.[0] || verdict);

const state = n => badge(n.ended_at ? "ENDED" : "RUNNING");

const text = value => value || h("span", { class: "none" }, "–");

const verdictOf = (id, signal) => get(`testbed/sessions/${encodeURIComponent(id)}/verdict`, {}, signal);

export function page(context) {
  const judged = new Map(); // conclusions of verdicts, by session
  let judging = false, left = false;

  // judge reads the verdicts of ended sessions one after the other, because a server judges only a few sessions at once.
  async function judge(sessions) {
    if (judging) return;
    judging = true;
    for (const n of sessions) {
      if (left) break;
      if (!n.ended_at || judged.has(n.session_id)) continue;
      await verdictOf(n.session_id).then(v => judged.set(n.session_id, v), () => {}); // a failed read is repeated with the next list
      context.draw();
    }
    judging = false;
  }

  const result = n => {
    const v = judged.get(n.session_id);
    if (v) return h("span", {}, conclusion(v.verdict), v.counts.fail + v.counts.warn ? h("small", { class: "block quiet" }, `${plural(v.counts.fail, "error")}, ${plural(v.counts.warn, "warning")}`) : null);
    return h("span", { class: "quiet" }, n.ended_at ? "…" : "after its end");
  };
  const ask = read("testbed/sessions", context.query, ["client_id"], 25);
  return {
    title: "Sessions", every: 3000, often: list => list?.data.some(n => !n.ended_at),
    async load(signal) {
      const list = await optional(ask(signal));
      if (list) judge(list.data);
      return list;
    },
    leave() { left = true; },
    view: list => !list ? [heading("Sessions"), missing("The test bed")] : [
      heading("Sessions", link("faults", h("span", { class: "button" }, "Faults")), context.session.read_only ? null : button("Start a session…", () => start(context), { class: "primary" })),
      h("p", { class: "quiet" }, "Sessions record and judge the traffic of test bed clients. Newest first."),
      filterBar("sessions", context, [{ name: "client_id", title: "Client" }]),
      listing("sessions", context, list, empty("No sessions.", ["A client starts a session with POST /v1/testbed/sessions, or with ", h("code", {}, "forgerun verdict -- COMMAND"), "."]), () => table([
        { title: "Session", cell: n => idLink("sessions", n.session_id, true) }, { title: "Client", cell: n => clientLink(n.client_id) },
        ...list.data.some(n => n.label) ? [{ title: "Label", class: "wrap", cell: n => text(n.label) }] : [],
        { title: "Profile", cell: n => text(n.profile) }, { title: "Seed", num: true, cell: n => number(n.seed) },
        { title: "Requests", num: true, cell: n => number(n.exchanges) }, { title: "State", cell: state },
        { title: "Verdict", cell: result }, { title: "Began", num: true, cell: n => age(n.created_at) },
      ], list.data, { key: n => n.session_id, open: n => "#/sessions/" + n.session_id, caption: "Sessions" }))],
  };
}

// start asks for a client and a profile of faults, and starts a session.
async function start(context) {
  const [client, { profiles }] = await Promise.all([clientField(context), get("catalogue")]);
  const made = await confirm({
    title: "Start a session", action: "Start", text: "The client's requests and deliveries are recorded and judged until the session ends.",
    fields: [client, field("Profile", h("select", { name: "profile" }, h("option", { value: "" }, "no faults"), profiles.map(p => h("option", { value: p }, p))), "The faults to inject into the client's traffic."),
      field("Seed", h("input", { type: "number", name: "seed", min: 0, value: "1" }), "The same seed gives the same faults."),
      field("Label", h("input", { name: "label", maxlength: 100 }), "Only requests with this ForgeRun-Session header belong to the session. Without a label, all requests do.")],
    act: form => post("testbed/sessions", { client_id: form.get("client_id").trim(), session: {
      seed: Number(form.get("seed")), profile: form.get("profile") || undefined, label: form.get("label").trim() || undefined } }),
  });
  if (made) context.go("#/sessions/" + made.session_id);
}

// The maximum age of a shown verdict in ms, without and with new requests. Judging takes seconds, and a verdict can change even after the
// session's end, when its jobs end.
const OLD = 30000, OLD_WITH_MORE = 5000;

export function one(context, id) {
  const at = "testbed/sessions/" + encodeURIComponent(id);
  let known = null, asked = 0;
  return {
    title: "Session …" + id.slice(-12), often: data => !data?.session.ended_at,
    async load(signal) {
      const session = await get(at, {}, signal);
      const more = session.exchanges !== known?.session.exchanges, old = Date.now() - asked;
      if (session.ended_at !== known?.session.ended_at || old > (more ? OLD_WITH_MORE : OLD)) {
        const verdict = await verdictOf(id, signal);
        [known, asked] = [{ session, verdict }, Date.now()];
      }
      return { session, verdict: known.verdict };
    },
    view: ({ session: n, verdict: v }) => [
      heading(["Session ", h("code", { class: "wrap" }, n.session_id)], h("a", { class: "button", href: addressOf(at + "/verdict.html"), target: "_blank", rel: "noopener" }, "Verdict as a page"),
        n.ended_at || context.session.read_only ? null : button("End…", () => confirm({ title: "End this session?", text: "Recording stops, and the faults of the session end.", action: "End",
          act: () => post(at + "/end") }).then(() => context.refresh())),
        n.ended_at ? null : link("faults?client_id=" + n.client_id, h("span", { class: "button" }, "Its faults"))),
      summary(n, v),
      facts([["State", state(n)], ["Client", clientLink(n.client_id)], n.label ? ["Label", n.label] : null, ["Profile", text(n.profile)], ["Seed", number(n.seed)],
        ["Requests", number(n.exchanges)], ["Began", [time(n.created_at), " (", age(n.created_at), ")"]],
        ["Ended", n.ended_at ? time(n.ended_at) : "not yet"], n.ended_at ? ["Took", span(new Date(n.ended_at) - new Date(n.created_at))] : null]),
      faults(v.faults), rules(v.results)],
  };
}

// summary shows the conclusion of the verdict, and the number of rules with each status.
function summary(n, v) {
  const [title] = CONCLUSIONS[v.verdict] || [v.verdict];
  const parts = STATUSES.map(([name, words]) => ({ name: words, value: v.counts[name] || 0, class: "f-" + name, status: name }));
  return h("section", { class: "card verdict v-" + v.verdict, "aria-label": "Verdict" },
    h("div", { class: "line" }, h("h2", {}, title), h("span", { class: "quiet" }, v.why, n.ended_at ? "" : " This is preliminary: the session is still open.")),
    shares(parts), h("ul", { class: "states" }, parts.map(p => h("li", { class: "plain" }, h("span", { class: "badge s-" + p.status }, p.name), " ", h("span", { class: "num" }, number(p.value))))));
}

// faults shows how often each kind of fault occurred, and which faults of the profile never did.
function faults(list) {
  if (list.length === 0) return null;
  return card("Faults", table([
    { title: "Fault", class: "wrap", cell: f => f.fault }, { title: "Of", cell: f => f.of },
    { title: "How often", num: true, cell: f => f.times ? `${number(f.times)} of ${number(f.requests)}` : h("span", { class: "tone-bad" }, "never triggered") },
  ], list, { key: f => f.fault + "\n" + f.of, caption: "Faults" }));
}
