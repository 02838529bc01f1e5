// Changes many jobs. The console changes selected jobs one by one; the server changes all jobs that match filters.
import { post, remove } from "../api.js";
import { checkbox, confirm, field } from "../dialogs.js";
import { h } from "../dom.js";
import { number, plural } from "../format.js";
import { badge, empty, failed, jobLink, missing } from "../parts.js";

export const DOES = {
  retry: "Failed jobs are queued for their next attempt; other jobs do not change.",
  cancel: "Unfinished jobs are canceled immediately; other jobs do not change.",
  delete: "Finished jobs are deleted with their results and reports. This cannot be undone.",
};

export const one = {
  retry: (id, override) => post(`jobs/${id}/retry`, { override }), cancel: id => post(`jobs/${id}/cancel`), delete: id => remove(`jobs/${id}`),
};

export const override = () => checkbox("override", "Also retry jobs that are not retryable or have no attempts left");

const DONE = { retry: "retried", cancel: "canceled", delete: "deleted" };

// changeSelected continues after failures, reports their number and reasons, and then retries only those.
export function changeSelected(action, jobs, context) {
  const progress = h("progress", { max: jobs.length, value: 0, hidden: true, "aria-label": "Jobs done" }), said = h("div", {});
  let stopped = false, left = jobs;
  const act = async form => {
    progress.hidden = false;
    const refused = [], reasons = new Map();
    for (const [i, job] of left.entries()) {
      if (stopped) break;
      try {
        await one[action](job.job_id, form.has("override"));
      } catch (failure) {
        refused.push(job);
        reasons.set(failure.message, (reasons.get(failure.message) || 0) + 1);
      }
      progress.max = left.length;
      progress.value = i + 1;
    }
    context.say(`${jobs.length - refused.length} of ${jobs.length} ${DONE[action]}.`);
    left = refused;
    if (refused.length === 0) return true;
    said.replaceChildren(reasonList([...reasons].map(([detail, count]) => ({ detail, count }))));
    throw new Error(`${jobs.length - refused.length} of ${jobs.length} were ${DONE[action]}; the others were not.`);
  };
  const can = action === "retry" ? jobs.filter(j => j.can_retry).length : jobs.length;
  const done = confirm({
    title: `${capital(action)} ${plural(jobs.length, "job")}?`, action: capital(action), danger: action !== "retry",
    text: [DOES[action], can < jobs.length ? `${number(can)} of them can be retried now.` : ""].filter(Boolean),
    fields: [action === "retry" ? override() : null, progress, said], act,
  });
  return done.finally(() => { stopped = true; });
}

const capital = word => word[0].toUpperCase() + word.slice(1);

// reasonList lists the reasons why jobs are not changed, each with its number of jobs.
export const reasonList = reasons => h("ul", { class: "reasons" }, reasons.map(r => h("li", {}, h("span", { class: "num strong" }, number(r.count)), h("span", {}, r.detail))));

// changeMatching shows what would change, by a dry run, before it changes all matching jobs.
export async function changeMatching(action, filter, context) {
  const shown = h("div", { class: "preview-of", "aria-live": "polite" }), label = h("span", {}, capital(action));
  const asked = form => ({ action, filter, override: action === "retry" && form?.has("override") || undefined });
  async function look(form) {
    const trial = await post("bulk", { ...asked(form), dry_run: true });
    shown.replaceChildren(preview(action, trial));
    label.textContent = `${capital(action)} ${number(trial.changes)}${trial.more ? "+" : ""}`;
    const button = label.closest("button");
    if (button) button.disabled = trial.changes === 0;
    return trial;
  }
  try {
    await look();
  } catch (failure) {
    await confirm({ title: "Change all matching jobs", text: failure.missing ? missing("Changing many jobs") : failure.message, action: "Close", act: async () => {} });
    return;
  }
  const again = action === "retry" ? override() : null;
  again?.addEventListener("change", event => look(new FormData(event.target.form)).catch(failure => shown.replaceChildren(failed(failure))));
  const started = confirm({
    title: `${capital(action)} all matching jobs?`, action: label, danger: action !== "retry", text: [h("p", {}, DOES[action]), shown],
    fields: [again, field("Maximum per second", h("input", { type: "number", name: "rate", min: 1, max: 1000, placeholder: "200" }),
      "Limits the load on workers and receivers.")],
    act: form => post("bulk", { ...asked(form), dry_run: false, rate: Number(form.get("rate")) || undefined }),
  });
  const yes = label.closest("button");
  yes.disabled = label.textContent.endsWith(" 0");
  (yes.disabled || action !== "retry" ? yes.previousElementSibling : yes).focus();
  const made = await started;
  if (made) context.go("#/bulk/" + made.bulk_id);
}

function preview(action, trial) {
  if (trial.count === 0) return empty("No job matches now.");
  const more = trial.more ? " or more" : "", some = trial.changes > 0;
  return h("div", { class: "note " + (some ? "plain" : "warn") },
    h("p", {}, h("span", { class: "strong" }, `${number(trial.count)}${more} ${trial.count === 1 ? "job matches" : "jobs match"}`),
      trial.left.length === 0 ? "." : [", ", h("span", { class: "strong" }, some ? `${number(trial.changes)}${more} can be ${DONE[action]}` : `none can be ${DONE[action]}`), some ? ". The others do not change:" : ". None of them changes:"]),
    trial.left.length ? reasonList(trial.left) : null,
    h("details", {}, h("summary", {}, "The newest jobs"),
      h("ul", { class: "sample" }, trial.sample.slice(0, 5).map(j => h("li", {}, jobLink(j.job_id), " ", badge(j.state), " ", j.work_kind)))));
}
