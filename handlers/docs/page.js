"use strict";
// The page works without this script; it adds search, copying and "Try it". The
// key is read from its field when a request is sent, and is kept nowhere else.
(() => {
  const $ = (selector, within = document) => within.querySelector(selector);
  const all = (selector, within = document) => [...within.querySelectorAll(selector)];
  const forms = JSON.parse($("#forms").textContent);
  const base = new URL(".", location.href); // /docs and / are both one level deep
  const key = $("#key"), search = $("#search"), found = $("#found");
  const mostShown = 256 * 1024; // characters of an answer
  const ids = {}; // of what answers made, by the name of their member

  const make = (tag, properties = {}, ...children) => {
    const element = Object.assign(document.createElement(tag), properties);
    element.append(...children);
    return element;
  };

  // ---- links into what is folded

  function reveal() {
    const target = location.hash && document.getElementById(decodeURIComponent(location.hash.slice(1)));
    if (!target) return;
    for (let e = target; e; e = e.parentElement) if (e.tagName === "DETAILS") e.open = true;
    target.scrollIntoView();
  }

  // ---- search

  let folded; // what was open before the search
  const items = all("[data-find]");
  const texts = new Map(); // in lower case, made at the first search
  function find() {
    const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
    if (words.length && !folded) folded = all("details.group").map(g => [g, g.open]);
    let matches = 0;
    for (const item of items) {
      if (!texts.has(item)) texts.set(item, (item.id + " " + item.textContent).toLowerCase());
      item.hidden = !words.every(word => texts.get(item).includes(word));
      if (!item.hidden) matches++;
    }
    for (const group of all("details.group")) {
      const within = items.filter(item => group.contains(item));
      group.hidden = words.length > 0 && within.every(item => item.hidden);
      if (words.length) group.open = !group.hidden;
    }
    if (!words.length && folded) {
      for (const [group, open] of folded) group.open = open;
      folded = undefined;
    }
    found.textContent = words.length ? matches + (matches === 1 ? " match" : " matches") : "";
  }

  // ---- copying

  async function copy(button, text) {
    try {
      await navigator.clipboard.writeText(text); // not there without TLS, but for localhost
    } catch {
      const area = make("textarea", { value: text });
      document.body.append(area);
      area.select();
      document.execCommand("copy");
      area.remove();
    }
    button.textContent = "Copied";
    setTimeout(() => { button.textContent = "Copy"; }, 1500);
  }

  function addCopyButtons() {
    for (const box of all(".copy")) {
      const button = make("button", { type: "button", textContent: "Copy" });
      button.addEventListener("click", () => copy(button, $("pre", box).textContent));
      box.append(button);
    }
  }

  // ---- try it

  // The member that names what a path is about: its ids are filled in once an answer had one.
  const memberOf = { jobs: "job_id", batches: "batch_id", bulk: "bulk_id", webhooks: "webhook_id", clients: "client_id", sessions: "session_id" };
  const idName = (form, field) => field.name === "id" ? memberOf[form.path.split("/{")[0].split("/").pop()] : field.name;

  function fieldOf(parameter, id) {
    const known = parameter.in === "path" && parameter.example || "";
    if (!parameter.values) return make("input", { id, value: known, spellcheck: false, autocomplete: "off" });
    const select = make("select", { id }, ...(parameter.required ? [] : [make("option", { value: "", textContent: "" })]),
      ...parameter.values.map(v => make("option", { value: v, textContent: v })));
    if (known) select.value = known;
    return select;
  }

  function labelled(text, input) { return make("label", { htmlFor: input.id }, text, input); }

  function panel(id, form) {
    const inputs = form.parameters.map((p, i) => [p, fieldOf(p, `${id}-p${i}`)]);
    const fields = which => make("div", { className: "fields" },
      ...inputs.filter(([p]) => which(p)).map(([p, input]) => labelled(p.name + (p.required ? "" : " (optional)"), input)));
    const parts = [fields(p => p.in !== "header")];
    const headers = fields(p => p.in === "header");
    const accept = make("select", { id: `${id}-accept` }, ...(form.accept || []).map(m => make("option", { value: m, textContent: m })));
    if (accept.options.length > 1) headers.prepend(labelled("Accept", accept));
    if (headers.children.length) {
      parts.push(make("details", { className: "more" }, make("summary", { textContent: "Headers" }), headers));
    }
    const body = make("textarea", { id: `${id}-body`, spellcheck: false });
    if (form.bodies) {
      body.value = form.optional ? "" : form.bodies[0].text;
      const box = make("div", { className: "body" });
      if (form.bodies.length > 1 || form.optional) {
        const samples = form.optional ? [{ title: "no body", text: "" }, ...form.bodies] : form.bodies;
        const choice = make("select", { id: `${id}-choice` },
          ...samples.map((b, i) => make("option", { value: i, textContent: b.title || "sample" })));
        choice.addEventListener("change", () => { body.value = samples[choice.value].text; });
        box.append(labelled("Sample", choice));
      }
      box.append(labelled("Body", body));
      parts.push(box);
    }
    const send = make("button", { type: "button", className: "main send", textContent: "Send" });
    const stop = make("button", { type: "button", textContent: "Stop", hidden: true });
    const state = make("span", { className: "soft state" });
    state.setAttribute("role", "status");
    const answer = make("pre", { className: "answer", hidden: true, tabIndex: 0 });
    send.addEventListener("click", () => run(form, inputs, accept, body, { send, stop, state, answer }));
    parts.push(make("div", { className: "actions" }, send, stop, state), answer);
    const box = make("details", { className: "try" }, make("summary", { textContent: "Try it" }), ...parts);
    box.addEventListener("toggle", () => {
      for (const [p, input] of inputs) if (p.in === "path" && input.value === p.example && ids[idName(form, p)]) input.value = ids[idName(form, p)];
    });
    return box;
  }

  function requestOf(form, inputs, accept, body) {
    let path = form.path.slice(1);
    const query = new URLSearchParams(), headers = new Headers();
    for (const [p, input] of inputs) {
      const value = input.value.trim();
      if (p.in === "path") {
        if (!value) throw new Error(`${p.name} is required.`);
        path = path.replace(`{${p.name}}`, encodeURIComponent(value));
      } else if (value && p.in === "query") query.set(p.name, value);
      else if (value) headers.set(p.name, value);
    }
    if (accept.value) headers.set("Accept", accept.value);
    if (form.access !== "open" && key.value.trim()) headers.set("Authorization", `Bearer ${key.value.trim()}`);
    const url = new URL(path, base);
    if ([...query].length) url.search = query;
    const init = { method: form.method, headers, credentials: "omit", cache: "no-store", referrerPolicy: "no-referrer" };
    if (form.bodies && body.value.trim()) {
      headers.set("Content-Type", form.media);
      init.body = body.value;
    }
    return [url, init];
  }

  async function run(form, inputs, accept, body, ui) {
    const control = new AbortController();
    const stop = () => control.abort();
    ui.send.disabled = true;
    ui.stop.hidden = false;
    ui.stop.addEventListener("click", stop);
    ui.state.classList.remove("bad");
    ui.state.textContent = "waiting";
    ui.answer.hidden = true;
    ui.answer.textContent = "";
    try {
      const [url, init] = requestOf(form, inputs, accept, body);
      const began = performance.now();
      const response = await fetch(url, { ...init, signal: control.signal });
      ui.answer.hidden = false;
      ui.answer.textContent = head(response);
      const text = await read(response, ui, control);
      remember(text);
      ui.state.textContent = `${response.status} in ${Math.round(performance.now() - began)} ms`;
      if (!response.ok) ui.state.classList.add("bad");
      if (response.status === 401 && !key.value) ui.state.textContent += ": enter an API key at the top of the page";
    } catch (error) {
      const stopped = error.name === "AbortError";
      ui.state.textContent = stopped ? "stopped" : error.message;
      ui.state.classList.toggle("bad", !stopped);
    } finally {
      ui.stop.removeEventListener("click", stop);
      ui.stop.hidden = true;
      ui.send.disabled = false;
    }
  }

  const head = response => `HTTP ${response.status} ${response.statusText}\n` +
    [...response.headers].map(([name, value]) => `${name}: ${value}\n`).join("") + "\n";

  // read shows an answer as it comes, which of a stream has no end.
  async function read(response, ui, control) {
    const before = ui.answer.textContent;
    let text = "";
    if (response.body) {
      const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
      for (;;) {
        const { value, done } = await reader.read();
        if (done) break;
        text += value;
        if (text.length > mostShown) {
          ui.answer.textContent = before + text.slice(0, mostShown) + "\n(the rest is not shown)";
          control.abort();
          return "";
        }
        ui.answer.textContent = before + text;
      }
    }
    if (/json/.test(response.headers.get("Content-Type") || "")) {
      try { ui.answer.textContent = before + JSON.stringify(JSON.parse(text), null, 2); } catch { /* as it came */ }
    }
    return text;
  }

  function remember(text) {
    try {
      const made = JSON.parse(text);
      for (const name of [...Object.values(memberOf), "delivery_id"]) if (typeof made[name] === "string") ids[name] = made[name];
    } catch { /* not JSON */ }
  }

  function addPanels() {
    for (const [id, form] of Object.entries(forms)) {
      const operation = document.getElementById(id);
      operation.addEventListener("toggle", () => {
        if (!operation.open || $(":scope > .inside > .try", operation)) return;
        all(":scope > .inside > .copy", operation).pop().after(panel(id, form));
      });
    }
  }

  // ----

  $("#tools").hidden = false;
  addCopyButtons();
  addPanels();
  search.addEventListener("input", find);
  document.addEventListener("keydown", event => {
    if (event.key === "/" && !/^(INPUT|TEXTAREA|SELECT)$/.test(event.target.tagName)) {
      event.preventDefault();
      search.focus();
    }
  });
  addEventListener("hashchange", reveal);
  addEventListener("pagehide", () => { key.value = ""; }); // so that no cache of pages has it
  reveal();
})();
