// Changes of many jobs: of those that were selected, one by one; of all that match filters, by the server.
import { post, remove } from "../api.js";
import { checkbox, confirm, field } from "../dialogs.js";
import { h } from "../dom.js";
import { number, plural } from "../format.js";
import { badge, empty, jobLink, missing } from "../parts.js";

export const DOES = {
  retry: "Failed jobs are queued for their next attempt; others stay as they are.",
  cancel: "Jobs that have not ended are canceled at once; others stay as they are.",
  delete: "Jobs that have ended are deleted with their results and reports. This cannot be undone.",
};

export const one = {
  retry: (id, override) => post(`jobs/${id}/retry`, { override }), cancel: id => post(`jobs/${id}/cancel`), delete: id => remove(`jobs/${id}`),
};

export const override = () => checkbox("override", "Retry also what is not retryable or has no attempts left");

// changeSelected goes on after failures, and tells how many there were.
export function changeSelected(action, jobs, context) {
  const progress = h("progress", { max: jobs.length, value: 0, hidden: true }), said = h("p", { class: "quiet" });
  let stopped = false;
  const act = async form => {
    progress.hidden = false;
    const failures = [];
    for (const [i, job] of jobs.entries()) {
      if (stopped) break;
      try {
        await one[action](job.job_id, form.has("override"));
      } catch (failure) {
        failures.push(`${job.job_id}: ${failure.message}`);
      }
      progress.value = i + 1;
      said.textContent = `${i + 1} of ${jobs.length}, ${failures.length} refused`;
    }
    context.say(`${capital(action)}: ${jobs.length - failures.length} of ${jobs.length} done.`);
    if (failures.length) {
      said.replaceChildren(h("details", { open: true }, h("summary", {}, `${failures.length} of ${jobs.length} were refused`), h("ul", {}, failures.slice(0, 20).map(f => h("li", {}, f)))));
      throw new Error("Not all could be changed; the reasons are above. Once more tries all again.");
    }
    return true;
  };
  const done = confirm({
    title: `${capital(action)} ${plural(jobs.length, "job")}?`, text: DOES[action], action: capital(action), danger: action !== "retry",
    fields: [action === "retry" ? override() : null, progress, said], act,
  });
  return done.finally(() => { stopped = true; });
}

const capital = word => word[0].toUpperCase() + word.slice(1);

// changeMatching asks the server first what would change.
export async function changeMatching(action, filter, context) {
  let trial;
  try {
    trial = await post("bulk", { action, filter, dry_run: true });
  } catch (failure) {
    await confirm({ title: "Change all that match", text: failure.missing ? missing("Changing many jobs") : failure.message, action: "Close", act: async () => {} });
    return;
  }
  const started = await confirm({
    title: `${capital(action)} all that match?`, action: `${capital(action)} ${number(trial.count)}${trial.more ? "+" : ""}`, danger: action !== "retry",
    text: [h("p", {}, DOES[action]), preview(trial)],
    fields: [action === "retry" ? override() : null, field("At most per second", h("input", { type: "number", name: "rate", min: 1, max: 1000, placeholder: "200" }),
      "A rate spares workers and receivers what comes of it.")],
    act(form) {
      if (trial.count === 0) throw new Error("No job matches: there is nothing to do.");
      return post("bulk", { action, filter, dry_run: false, rate: Number(form.get("rate")) || undefined, override: action === "retry" && form.has("override") || undefined });
    },
  });
  if (started) context.go("#/bulk/" + started.bulk_id);
}

function preview(trial) {
  if (trial.count === 0) return empty("No job matches now.");
  return h("div", {}, h("p", {}, h("span", { class: "strong" }, `${number(trial.count)}${trial.more ? " or more" : ""} ${trial.count === 1 ? "job matches" : "jobs match"}`), ", for example:"),
    h("ul", { class: "sample" }, (trial.sample || []).slice(0, 5).map(j => h("li", {}, jobLink(j.job_id), " ", badge(j.state), " ", j.work_kind))));
}
