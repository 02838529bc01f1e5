import { get, post } from "../api.js";
import { confirm } from "../dialogs.js";
import { h } from "../dom.js";
import { number, plural, span, time } from "../format.js";
import { badge, button, card, clientLink, empty, facts, heading, idLink, jobLink, link, mono, table } from "../parts.js";
import { listing, read } from "./lists.js";

const filterText = filter => Object.entries(filter || {}).map(([k, v]) => `${k}=${v}`).join(" ");
const running = b => b.state === "PENDING" || b.state === "RUNNING";
const bar = b => h("progress", { class: b.state === "DONE" && b.total > 0 && b.failed === b.total ? "bad" : "", max: b.total || 1, value: b.total ? b.done : running(b) ? 0 : 1, "aria-label": `${b.done} of ${b.total}` });

// outcome returns a badge for a bulk operation: its state or, after its end, whether all, some or no jobs failed.
function outcome(b) {
  if (b.state !== "DONE" || b.total === 0) return badge(b.state);
  const mark = (look, text, title) => h("span", { class: "badge s-" + look, title }, text);
  if (b.failed === b.total) return mark("failed", "ALL FAILED", "Done; no job was changed");
  if (b.failed > 0) return mark("degraded", `DONE, ${number(b.failed)} FAILED`, "The other jobs were changed or skipped");
  return b.succeeded === 0 ? mark("canceled", "NOTHING TO DO", "Done; all jobs were skipped") : badge(b.state);
}

export function page(context) {
  return {
    title: "Bulk changes",
    load: read("bulk", context.query, [], 50),
    view: list => [heading("Bulk changes"), listing("bulk", context, list, empty("No bulk changes yet.", ["Filter ", link("jobs", "jobs"), " and retry, cancel or delete all matching jobs."]), () => table([
        { title: "Change", cell: b => idLink("bulk", b.bulk_id, true) }, { title: "Action", cell: b => b.action }, { title: "State", cell: outcome },
        { title: "Done", cell: b => [bar(b), ` ${number(b.done)} of ${number(b.total)}`] }, { title: "Failed", num: true, cell: b => number(b.failed) },
        { title: "Jobs", class: "wrap", cell: b => mono(filterText(b.filter)) }, { title: "By", cell: b => b.operator || clientLink(b.client_id) }, { title: "Begun", num: true, cell: b => time(b.created_at) },
      ], list.data, { key: b => b.bulk_id, open: b => "#/bulk/" + b.bulk_id, caption: "Bulk changes" }))],
  };
}

export function one(context, id) {
  const at = `bulk/${encodeURIComponent(id)}`;
  const abort = () => confirm({ title: "Stop this change?", text: "Jobs that were already changed stay changed; the others do not change.", action: "Stop it", danger: true,
    act: () => post(at + "/abort") }).then(() => context.refresh());
  return {
    title: "Bulk change",
    async load(signal) {
      const [bulk, items] = await Promise.all([get(at, {}, signal), get(at + "/items", { limit: 50 }, signal)]);
      return { bulk, items };
    },
    view: ({ bulk: b, items }) => [
      heading(["Bulk change ", h("span", { class: "quiet" }, b.action)], running(b) && !context.session.read_only ? button("Stop", abort, { class: "danger" }) : null),
      card(null, h("div", { class: "progress" }, outcome(b), bar(b), h("span", { class: "num" }, `${number(b.done)} of ${number(b.total)}`)), facts([
        ["Succeeded", number(b.succeeded)], ["Skipped", number(b.skipped), "Their state does not allow this change"], ["Failed", number(b.failed)],
        ["Jobs", mono(filterText(b.filter))], ["By", b.operator || clientLink(b.client_id)], ["Begun", time(b.created_at)], ["Ended", time(b.finished_at)],
        ["Took", b.finished_at ? span(new Date(b.finished_at) - new Date(b.created_at)) : undefined],
      ])),
      b.left.length ? card(`Why ${number(b.failed + b.skipped)} of ${number(b.total)} did not change`, table([
        { title: "Jobs", num: true, cell: r => number(r.count) }, { title: "Result", cell: r => badge(r.result) },
        { title: "Why", class: "wrap", cell: r => r.detail }, { title: "Code", cell: r => mono(r.code) },
      ], b.left, { key: r => r.result + r.detail, caption: "Reasons" })) : null,
      items.data.length ? card(null, h("details", { "data-key": "items" }, h("summary", {}, items.page?.next_cursor ? `The first ${items.data.length} jobs` : plural(items.data.length, "job")), table([
        { title: "Job", cell: i => jobLink(i.job_id, true) }, { title: "Result", cell: i => badge(i.result) },
        { title: "Why", class: "wrap", cell: i => i.detail || "" },
      ], items.data, { key: i => i.job_id, open: i => "#/jobs/" + i.job_id, caption: "Jobs of this change" }))) : null,
    ],
  };
}
