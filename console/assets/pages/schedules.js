// The list of schedules, and the page of a schedule with its runs.
import { get, post, remove } from "../api.js";
import { confirm, field } from "../dialogs.js";
import { h } from "../dom.js";
import { number, time } from "../format.js";
import { badge, button, card, clientLink, empty, facts, heading, idLink, jobLink, link, mono, note, table } from "../parts.js";
import { clientField, filterBar, kindNames, listing, read } from "./lists.js";

const RUNS = 20;
const BADGE = { ACTIVE: "s-alive", PAUSED: "s-dead", ENDED: "s-stopped" };
const DOES = {
  trigger: ["Run now", "This submits one job now. The due times do not change."], pause: ["Pause", "No job is submitted until you resume it."],
  resume: ["Resume", "The schedule runs again from now on. Due times during the pause are skipped."], delete: ["Delete", "The schedule never runs again. Its jobs stay."],
};

// change asks before it changes a schedule. It resolves to the server's response.
const change = (s, action) => confirm({ title: `${DOES[action][0]}?`, text: [DOES[action][1], s.name || s.schedule_id], action: DOES[action][0], danger: ["pause", "delete"].includes(action),
  act: async () => await (action === "delete" ? remove(`schedules/${s.schedule_id}`) : post(`schedules/${s.schedule_id}/${action}`)) || true });

const state = s => h("span", { class: "badge " + BADGE[s.state] }, s.state);
const kind = s => s.kind ? mono(s.kind) : h("span", { class: "quiet" }, "drawn");
const due = s => s.cron ? [mono(s.cron), " ", s.time_zone || ""] : `every ${s.interval}`;

export function page(context) {
  return {
    title: "Schedules",
    load: read("schedules", context.query, ["client_id"], 50),
    view: list => [heading("Schedules", context.session.read_only ? null : button("New schedule…", () => create(context), { class: "primary" })),
      filterBar("schedules", context, [{ name: "client_id", title: "Client" }]),
      listing("schedules", context, list, empty("No schedules.", "Clients create them with POST /v1/schedules."), () => table([
        { title: "Schedule", class: "wrap", cell: s => h("span", {}, idLink("schedules", s.schedule_id, true), " ", s.name || "") },
        { title: "State", cell: state }, { title: "Kind", class: "small", cell: kind }, { title: "Due", class: "wrap", cell: s => h("span", {}, due(s)) },
        { title: "Next run", num: true, cell: s => time(s.next_runs[0]) }, { title: "Last run", num: true, cell: s => s.last_job_id ? link("jobs/" + s.last_job_id, time(s.last_run_at)) : time(null) },
        { title: "Due runs", num: true, cell: s => number(s.runs) }, { title: "Missed", num: true, cell: s => number(s.missed) }, { title: "Skipped", num: true, cell: s => number(s.skipped) },
        { title: "Client", cell: s => clientLink(s.client_id) },
      ], list.data, { key: s => s.schedule_id, open: s => "#/schedules/" + s.schedule_id, caption: "Schedules" }))],
  };
}

export function one(context, id) {
  const act = (s, action) => change(s, action).then(done => done && action === "delete" ? context.go("#/schedules")
    : done?.job_id ? context.go("#/jobs/" + done.job_id) : context.refresh());
  return {
    title: "Schedule …" + id.slice(-12),
    load: async signal => {
      const [schedule, runs] = await Promise.all([get("schedules/" + encodeURIComponent(id), {}, signal), get("jobs", { schedule_id: id, limit: RUNS }, signal)]);
      return { schedule, runs };
    },
    view: ({ schedule: s, runs }) => [
      heading(["Schedule ", s.name || h("code", { class: "wrap" }, s.schedule_id)], context.session.read_only ? null
        : ["trigger", ...{ ACTIVE: ["pause"], PAUSED: ["resume"] }[s.state] || [], "delete"].map(action => button(DOES[action][0] + "…", () => act(s, action)))),
      s.last_error ? note("bad", h("p", {}, time(s.last_error.scheduled_for), " got no job: ", s.last_error.detail)) : null,
      facts([["State", state(s)], ["Kind", kind(s)], ["Due", due(s)], ["Client", clientLink(s.client_id)], ["Next runs", s.next_runs.length ? s.next_runs.map(at => h("div", {}, time(at))) : "–"],
        ["Due runs", number(s.runs)], ["Missed", number(s.missed)], ["Skipped", number(s.skipped)], ["Overlap", s.overlap], ["Catch up", s.catch_up], ["Created", time(s.created_at)]]),
      card("Last runs", runs.data.length === 0 ? h("p", { class: "quiet" }, "The schedule has not run yet.") : table([
        { title: "Job", cell: j => jobLink(j.job_id, true) }, { title: "State", cell: j => badge(j.state) }, { title: "Kind", class: "small", cell: j => mono(j.work_kind) },
        { title: "Created", num: true, cell: j => time(j.created_at) }, { title: "Ended", num: true, cell: j => time(j.finished_at) },
      ], runs.data, { key: j => j.job_id, open: j => "#/jobs/" + j.job_id, caption: "Last runs" })),
      runs.page.next_cursor ? h("p", {}, link("jobs?schedule_id=" + s.schedule_id, "All its runs")) : null],
  };
}

// create asks for a new schedule of a client, and creates it.
async function create(context) {
  const [client, kinds] = await Promise.all([clientField(context), kindNames()]);
  const made = await confirm({
    title: "New schedule", action: "Create", text: [],
    fields: [client, field("Name", h("input", { name: "name", maxlength: 100 })),
      field("Cron", h("input", { name: "cron", placeholder: "30 4 * * MON-FRI", spellcheck: "false" }), "Five fields, or six with seconds. Give this or an interval."),
      field("Time zone", h("input", { name: "time_zone", placeholder: "Europe/Berlin", spellcheck: "false" }), "For cron; default UTC."),
      field("Interval", h("input", { name: "interval", placeholder: "15m" })),
      field("Kind", h("select", { name: "work_kind" }, h("option", { value: "" }, "chosen by the server"), kinds.map(k => h("option", { value: k }, k))))],
    act(form) {
      const { client_id, work_kind, ...times } = Object.fromEntries([...form].map(([k, v]) => [k, v.trim()]).filter(([, v]) => v));
      return post("schedules", { client_id, schedule: { ...times, job: { type: "EXECUTE", work_kind } } });
    },
  });
  if (made) context.go("#/schedules/" + made.schedule_id);
}
