// The login, which exchanges a token for a session.
import { login } from "./api.js";
import { h } from "./dom.js";

export function loginPage(why, done) {
  const trouble = h("p", { class: "trouble", role: "alert" }, why || "");
  const token = h("input", { type: "password", name: "token", autocomplete: "current-password", required: true, "aria-describedby": "token-hint" });
  const enter = h("button", { class: "primary" }, "Log in");
  return h("main", { class: "login", id: "main" }, h("form", {
    async onsubmit(event) {
      event.preventDefault();
      enter.disabled = true;
      try {
        await login(token.value);
        done();
      } catch (failure) {
        trouble.textContent = failure.status === 401 ? "No operator has this token." : failure.message +
          (failure.retryAfter ? ` Try again in ${failure.retryAfter} s.` : "");
        enter.disabled = false;
        token.select();
      }
    },
  },
  h("img", { src: "console/icon.svg", alt: "", width: 40, height: 40 }), h("h1", {}, "ForgeRun console"),
  h("input", { type: "text", name: "username", value: "operator", autocomplete: "username", hidden: true }),
  h("label", { class: "field" }, h("span", { class: "label" }, "Operator's token"), token),
  h("p", { id: "token-hint", class: "quiet" }, "A token from FORGERUN_ADMIN_TOKEN, or from FORGERUN_ADMIN_READ_TOKEN for read access."),
  trouble, enter));
}
