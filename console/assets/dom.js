// h and s make HTML and SVG elements. Text is always a text node, so that clients' text is never markup. morph changes the shown tree into
// a new one, and keeps the user's state: focus, selection, scrolling, open parts, input.

const SVG = "http://www.w3.org/2000/svg";

export function h(tag, props, ...children) {
  return build(document.createElement(tag), props, children);
}

export function s(tag, props, ...children) {
  return build(document.createElementNS(SVG, tag), props, children);
}

function build(element, props, children) {
  for (const [name, value] of Object.entries(props || {})) set(element, name, value);
  append(element, children);
  if (props && "value" in props) element.value = props.value; // a select needs its options first
  return element;
}

function set(element, name, value) {
  if (value === null || value === undefined || value === false) return;
  if (name.startsWith("on")) {
    (element.handlers ||= {})[name] = value;
    element[name] = value;
  } else if (name === "value" || name === "checked" || name === "indeterminate") {
    (element.held ||= {})[name] = value;
    element[name] = value;
  } else if (name === "href" || name === "src" || name === "action") {
    if (allowed(String(value))) element.setAttribute(name, value);
  } else if (name === "vars") { // CSS custom properties; the policy forbids a style attribute
    element.vars = value;
    for (const [key, v] of Object.entries(value)) element.style.setProperty(key, v);
  } else {
    element.setAttribute(name, value === true ? "" : value);
  }
}

// allowed addresses are relative, or of http, https and mailto.
export function allowed(address) {
  return !/^[\s\u0000-\u001f]*[a-z][a-z0-9+.\s-]*:/i.test(address) || /^(https?:\/\/|mailto:|blob:)/i.test(address);
}

function append(element, children) {
  for (const child of children) {
    if (Array.isArray(child)) append(element, child);
    else if (child instanceof Node) element.append(child);
    else if (child !== null && child !== undefined && child !== false && child !== "") element.append(String(child));
  }
}

export function morph(old, made) {
  if (old.nodeType !== made.nodeType || old.nodeName !== made.nodeName || keyOf(old) !== keyOf(made) || made.opaque) {
    old.replaceWith(made);
    return made;
  }
  if (old.nodeType !== Node.ELEMENT_NODE) {
    if (old.data !== made.data) old.data = made.data;
    return old;
  }
  attributes(old, made);
  handlers(old, made);
  children(old, made);
  held(old, made);
  return old;
}

const keyOf = node => node.nodeType === Node.ELEMENT_NODE ? node.getAttribute("data-key") : null;

// theirs are the attributes that the user changes, so morph keeps them.
const theirs = new Set(["open", "style"]);

function attributes(old, made) {
  for (const { name } of [...old.attributes]) {
    if (!theirs.has(name) && !made.hasAttribute(name)) old.removeAttribute(name);
  }
  for (const { name, value } of [...made.attributes]) {
    if (!theirs.has(name) && old.getAttribute(name) !== value) old.setAttribute(name, value);
  }
  if (made.vars) {
    for (const [key, v] of Object.entries(made.vars)) old.style.setProperty(key, v);
  }
}

function handlers(old, made) {
  for (const name of Object.keys(old.handlers || {})) {
    if (!made.handlers || !(name in made.handlers)) old[name] = null;
  }
  for (const [name, handler] of Object.entries(made.handlers || {})) old[name] = handler;
  old.handlers = made.handlers;
}

function held(old, made) {
  for (const [name, value] of Object.entries(made.held || {})) {
    if (name === "value" && (old === document.activeElement || old.held?.value === value)) continue;
    if (old[name] !== value) old[name] = value;
  }
  old.held = made.held;
}

function children(old, made) {
  const keyed = new Map();
  for (const child of old.childNodes) {
    const key = keyOf(child);
    if (key !== null) keyed.set(key, child);
  }
  let at = old.firstChild;
  for (const child of [...made.childNodes]) {
    const key = keyOf(child);
    const same = key !== null ? keyed.get(key) : at && keyOf(at) === null ? at : null;
    if (!same) {
      old.insertBefore(child, at);
      continue;
    }
    if (same !== at) old.insertBefore(same, at);
    const next = same.nextSibling;
    morph(same, child);
    at = next;
  }
  while (at) {
    const next = at.nextSibling;
    at.remove();
    at = next;
  }
}
