// The result of a job: its properties, a preview of its beginning, and a download.
import { addressOf, fetchText } from "../api.js";
import { h } from "../dom.js";
import { age, bytes, serviceNow, time } from "../format.js";
import { button, card, facts, failed, missing, mono } from "../parts.js";

const PREVIEW = 4096, MOST = 4 << 20; // number of characters shown; maximum size in bytes of a result with a preview

export function resultCard(job, ui, draw) {
  const r = job.result;
  if (!r) return null;
  const path = `jobs/${encodeURIComponent(job.job_id)}/result`;
  const gone = new Date(r.expires_at) <= serviceNow();
  return card("Result", facts([["Type", mono(r.media_type)], ["Size", bytes(r.size_bytes)], ["Expires", [time(r.expires_at), " (", age(r.expires_at), ")"]], ["SHA-256", h("code", { class: "wrap" }, r.sha256)]]),
    gone ? h("p", { class: "quiet" }, "It has expired.") : h("div", { class: "toolbar" },
      h("a", { class: "button", href: addressOf(path), download: `result-${job.job_id}` }, "Download"),
      r.size_bytes <= MOST && text(r.media_type) ? button("Preview", () => preview(path, ui, draw)) : null),
    ui.result instanceof Error ? (ui.result.missing ? missing("The result") : failed(ui.result)) : null,
    ui.result && !(ui.result instanceof Error) ? [h("pre", { class: "preview", tabindex: "0" }, ui.result.text), ui.result.more ? h("p", { class: "quiet" }, `These are its first ${PREVIEW} characters.`) : null] : null);
}

const text = mediaType => /^text\/|[/+]json\b|[/+]xml\b/.test(mediaType);

async function preview(path, ui, draw) {
  try {
    ui.result = await fetchText(path, PREVIEW);
  } catch (failure) {
    ui.result = failure;
  }
  draw();
}
