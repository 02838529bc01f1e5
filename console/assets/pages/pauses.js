// The operators' pauses. The page of queues lists and begins them; the pages of clients and workers begin them too.
import { get, optional, post, remove } from "../api.js";
import { confirm, field } from "../dialogs.js";
import { h } from "../dom.js";
import { age } from "../format.js";
import { badge, button, card, clientLink, filterLink, mono, table } from "../parts.js";

// read returns all pauses; null if this server's version has no pauses.
export const read = signal => optional(get("pauses", {}, signal)).then(list => list?.data ?? null);

const reason = () => field("Why", h("input", { name: "reason", required: true, maxlength: 1000 }), "Shown in the audit log.");

const WHAT = { PAUSE: "Start none", DRAIN: "Accept none" };

const does = p => p.scope === "WORKER" ? "takes no jobs" : p.mode === "PAUSE" ? "jobs are not started" : "jobs are not accepted";

const of = p => p.scope === "ALL" ? "All jobs" : p.scope === "KIND" ? ["Jobs of kind ", filterLink("jobs", "kind", p.target)]
  : p.scope === "CLIENT" ? ["Jobs of client ", clientLink(p.target)] : ["Worker ", mono(p.target)];

// begin asks for the mode and the reason, and pauses a scope.
export function begin(context, scope, target, kinds) {
  const chosen = kinds && field("Of", h("select", { name: "target" }, h("option", { value: "" }, "all kinds"), kinds.map(k => h("option", { value: k }, k))));
  const mode = scope === "WORKER" ? null : field("What", h("select", { name: "mode" }, ["PAUSE", "DRAIN"].map(m => h("option", { value: m }, WHAT[m]))),
    "Start none: new jobs are accepted but wait. Accept none: new jobs are refused, and accepted jobs still run.");
  const text = scope === "WORKER" ? "The worker finishes its jobs and takes no more. Other workers take new jobs." : "Running jobs continue.";
  return confirm({ title: scope === "WORKER" ? "Drain this worker?" : "Stop jobs?", text, action: scope === "WORKER" ? "Drain" : "Stop", danger: true,
    fields: [chosen, mode, reason()],
    act: form => {
      const kind = form.get("target");
      const what = scope === "ALL" && kind ? { scope: "KIND", target: kind } : target ? { scope, target } : { scope };
      return post("pauses", { ...what, mode: form.get("mode") || "DRAIN", reason: form.get("reason") });
    } }).then(() => context.refresh());
}

export function resume(context, p) {
  return confirm({ title: "Resume?", text: "Waiting jobs start in the order in which they were queued.", action: "Resume", act: () => remove("pauses/" + p.pause_id) })
    .then(() => context.refresh());
}

// list shows the pauses, if there are any.
export const list = (context, pauses) => !pauses || pauses.length === 0 ? null : card("Stopped", table([
  { title: "Scope", cell: of }, { title: "Mode", cell: p => badge(p.mode) }, { title: "What", cell: does }, { title: "Why", cell: p => p.reason },
  { title: "By", cell: p => p.operator }, { title: "Since", num: true, cell: p => age(p.created_at) },
  { title: "", cell: p => context.session.read_only ? "" : button("Resume…", () => resume(context, p), { class: "small" }) },
], pauses, { key: p => p.pause_id, caption: "Pauses and drains" }));
