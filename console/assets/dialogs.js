// Dialogs: questions before something is changed, and the list of keys.
import { h } from "./dom.js";
import { failed } from "./parts.js";

// open shows a dialog and returns its element. Closing the dialog removes the element.
export function open(title, ...content) {
  const before = document.activeElement;
  const dialog = h("dialog", { "aria-labelledby": "dialog-title" }, h("h2", { id: "dialog-title" }, title), content);
  dialog.addEventListener("close", () => {
    dialog.remove();
    if (before?.isConnected && document.activeElement === document.body) before.focus(); // not after navigation
  });
  dialog.addEventListener("click", event => { if (event.target === dialog) dialog.close(); });
  document.body.append(dialog);
  dialog.showModal();
  return dialog;
}

// confirm asks before it runs an action, act(form). If act fails, the dialog stays open. It resolves to the result of act, or to undefined
// if the user cancels.
export function confirm({ title, text, action, danger, fields = [], act }) {
  return new Promise(resolve => {
    let result;
    const trouble = h("div", { "aria-live": "polite" });
    const yes = h("button", { class: danger ? "danger" : "primary" }, action);
    const form = h("form", {
      async onsubmit(event) {
        event.preventDefault();
        yes.disabled = true;
        trouble.replaceChildren();
        try {
          result = await act(new FormData(form));
          dialog.close();
        } catch (failure) {
          trouble.replaceChildren(failed(failure));
          yes.disabled = false;
        }
      },
    }, [].concat(text).map(t => t instanceof Node ? t : h("p", {}, t)), fields, trouble,
    h("div", { class: "buttons" }, h("button", { type: "button", autofocus: danger, onclick: () => dialog.close() }, "Back"), yes));
    const dialog = open(title, form);
    dialog.addEventListener("close", () => resolve(result));
  });
}

export const checkbox = (name, label, checked = false) =>
  h("label", { class: "check" }, h("input", { type: "checkbox", name, checked }), h("span", {}, label));

export function field(label, control, hint) {
  return h("label", { class: "field" }, h("span", { class: "label" }, label), control, hint ? h("small", {}, hint) : null);
}

// tell shows important text, such as a new key.
export const tell = (title, ...content) => {
  const dialog = open(title, content, h("div", { class: "buttons" },
    h("button", { class: "primary", type: "button", onclick: () => dialog.close() }, "Close")));
  return dialog;
};

const KEYS = [
  ["/", "Search"], ["j, k", "Next and previous row"], ["Enter", "Open the row"], ["x", "Select the row"], ["p", "Pause or resume updates"], ["r", "Refresh now"],
  ["g o", "Overview"], ["g j", "Jobs"], ["g n", "New job"], ["g f", "Failures"], ["g w", "Workers"], ["g q", "Queues"], ["g d", "Deliveries"],
  ["?", "This list"], ["Esc", "Close, or leave a field"],
];

export function help() {
  if (document.querySelector("dialog[open]")) return;
  tell("Keyboard shortcuts and search", h("dl", { class: "keys" }, KEYS.map(([key, what]) => h("div", {}, h("dt", {}, key.split(/(, | )/).map(k =>
    k === ", " || k === " " ? k : h("kbd", {}, k))), h("dd", {}, what)))),
  h("h3", {}, "Search"),
  h("p", {}, "Enter any id, part of a correlation id, a client name or a webhook address to open it. Filter jobs with words:"),
  h("p", {}, h("code", {}, "state:FAILED kind:RUNS_LONG client:… batch:… correlation:… code:RFA_EXEC_TIMEOUT type:DEFERRED since:2h")),
  h("p", { class: "quiet" }, "from: and to: take a time such as 2030-01-31T12:00Z; since: takes 15m, 2h or 3d."));
}
