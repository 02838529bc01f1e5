import { post } from "../api.js";
import { confirm } from "../dialogs.js";
import { h } from "../dom.js";
import { number, time } from "../format.js";
import { button, clientLink, empty, heading, jobLink, mono, table } from "../parts.js";
import { filterBar, listing, read } from "./lists.js";

const DOES = { pause: "Nothing of it is due until it is resumed.", resume: "It is due again from now on; what was due meanwhile is not caught up." };
const BADGE = { ACTIVE: "s-alive", PAUSED: "s-dead", ENDED: "s-stopped" };

export function page(context) {
  const change = (s, action) => confirm({ title: `${action[0].toUpperCase()}${action.slice(1)} this schedule?`, text: [DOES[action], s.name || s.schedule_id],
    action: action[0].toUpperCase() + action.slice(1), danger: action === "pause",
    act: () => post(`schedules/${s.schedule_id}/${action}`).then(() => context.say("Done.")) }).then(() => context.refresh());
  const due = s => s.cron ? [mono(s.cron), s.time_zone ? h("small", { class: "block quiet" }, s.time_zone) : null] : ["every ", s.interval];
  return {
    title: "Schedules",
    load: read("schedules", context.query, ["client_id"], 50),
    view: list => [heading("Schedules"), filterBar("schedules", context, [{ name: "client_id", title: "Client" }]),
      listing("schedules", context, list, empty("No schedules.", "Clients make them by POST /v1/schedules."), () => table([
        { title: "Schedule", class: "wrap", cell: s => [h("span", { class: "id", title: s.schedule_id }, "…" + s.schedule_id.slice(-12)), s.name ? h("small", { class: "block quiet" }, s.name) : null] },
        { title: "State", cell: s => h("span", { class: "badge " + BADGE[s.state] }, s.state) },
        { title: "Kind", class: "small", cell: s => s.work_kind ? mono(s.work_kind) : h("span", { class: "quiet" }, "drawn") },
        { title: "Due", class: "wrap", cell: due },
        { title: "Next runs", class: "wrap", cell: s => s.next_runs.map(at => h("small", { class: "block" }, time(at))) },
        { title: "Last run", num: true, cell: s => [time(s.last_run_at), s.last_job_id ? h("small", { class: "block" }, jobLink(s.last_job_id)) : null] },
        { title: "Runs", num: true, cell: s => number(s.runs) },
        { title: "Missed", num: true, class: "wrap", cell: s => [number(s.missed), s.last_error ? h("small", { class: "block" }, s.last_error.detail) : null] },
        { title: "Skipped", num: true, cell: s => number(s.skipped) },
        { title: "Client", cell: s => clientLink(s.client_id) },
        context.session.read_only ? { title: "", cell: () => "" } : { title: "", cell: s => s.state === "PAUSED" ? button("Resume", () => change(s, "resume"), { class: "small" })
          : s.state === "ACTIVE" ? button("Pause", () => change(s, "pause"), { class: "small" }) : "" },
      ], list.data, { key: s => s.schedule_id, caption: "Schedules" }))],
  };
}
